terraform {
  required_version = ">= 1.9"

  required_providers {
    gpu = {
      source  = "gpufleet/gpu"
      version = ">= 0.1.0"
    }
  }
}

provider "gpu" {
  owner           = "ml-platform"
  simulated_fleet = "fleet.json"
}

# One large instance, a middle one and two small ones on each GPU of hgx01.
resource "gpu_partition_config" "inference" {
  name  = "inference"
  hosts = ["hgx01"]
  mig   = { profiles = { "3g.40gb" = 1, "2g.20gb" = 1, "1g.10gb" = 2 } }

  quiesce_units = ["nvidia-dcgm", "nvidia-persistenced"]
  on_destroy    = "restore"
}

# The first two GPUs of hgx02 become two halves each. The second has that already, and
# what a container does there goes on.
resource "gpu_partition_config" "training" {
  name  = "training"
  hosts = ["hgx02"]
  selector = {
    gpu_ids = {
      hgx02 = ["GPU-6f1d0200-5c1e-4d7a-9b20-3ac2910f2000", "GPU-6f1d0211-5c1e-4d7a-9b21-3ac2910f2101"]
    }
  }
  mig = { profiles = { "3g.40gb" = 2 } }
}

output "layouts" {
  value = {
    for host, on in merge(gpu_partition_config.inference.gpus, gpu_partition_config.training.gpus) :
    host => { for id, g in on.gpus : id => g.layout }
  }
}
