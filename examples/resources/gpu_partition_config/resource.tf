# Eight equal partitions on every GPU of the two nodes that supports GPU-P.
resource "gpu_partition_config" "vdi" {
  name  = "vdi"
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = 8 }

  # Do it only if no VM has to be stopped for it. This is the default.
  max_disruption = "none"

  # One node after the other; put back what was changed if one fails.
  rollout = {
    max_unavailable = 1
    on_failure      = "rollback"
  }
}
