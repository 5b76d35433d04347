# Four MIG instances on every GPU of a Linux host. The provider finds their places.
resource "gpu_partition_config" "inference" {
  name  = "inference"
  hosts = ["hgx01"]
  mig   = { profiles = { "3g.40gb" = 1, "2g.20gb" = 1, "1g.10gb" = 2 } }

  # Services that only watch GPUs, stopped while MIG mode is switched.
  quiesce_units = ["nvidia-dcgm.service", "nvidia-persistenced.service"]

  # Put back what each GPU had, unless something runs on it.
  on_destroy = "restore"
}

# Two instances with their places, on one GPU of another host.
resource "gpu_partition_config" "training" {
  name     = "training"
  hosts    = ["hgx02"]
  selector = { gpu_ids = { hgx02 = ["GPU-6f1d0222-5c1e-4d7a-9b22-3ac2910f2202"] } }
  mig = {
    placements = [
      { profile = "4g.40gb", start = 0 },
      { profile = "3g.40gb", start = 4 },
    ]
  }
}

# What a workload needs to find its instance.
output "devices" {
  value = {
    for id, g in gpu_partition_config.training.gpus["hgx02"].gpus :
    id => { for i in g.instances : "${i.profile}@${i.start}" => i.uuid }
  }
}
