# A config whose MPS clients may be terminated.
resource "gpu_partition_config" "inference" {
  hosts          = ["infer01"]
  mps            = { multi_user = true }
  max_disruption = "process_restart"
}

# terraform apply -invoke=action.gpu_mps_restart.infer01
action "gpu_mps_restart" "infer01" {
  config {
    host   = "infer01"
    config = gpu_partition_config.inference.id
  }
}
