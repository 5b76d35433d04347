# A config whose VMs may move to other nodes by live migration.
resource "gpu_partition_config" "vdi" {
  hosts   = ["hv01", "hv02"]
  gpu_p   = { partition_count = 4 }
  rollout = { drain = true }
}

# Before maintenance: terraform apply -invoke=action.gpu_host_drain.hv01
action "gpu_host_drain" "hv01" {
  config {
    host  = "hv01"
    state = "drained"
  }
}

# And after it: terraform apply -invoke=action.gpu_host_drain.hv01_up
action "gpu_host_drain" "hv01_up" {
  config {
    host  = "hv01"
    state = "up"
  }
}
