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
  owner           = "vdi-prod"
  simulated_fleet = "${path.module}/fleet.json"
}

# Each node has an A2 and an A16. A config is of one model: each has one of its own, over the whole cluster.
resource "gpu_partition_config" "vdi" {
  for_each = { a2 = "NVIDIA A2", a16 = "NVIDIA A16" }

  name           = "vdi-${each.key}"
  cluster        = "azl-vdi"
  selector       = { models = [each.value] }
  gpu_p          = { partition_count = 4 }
  max_disruption = "vm_restart"
  on_destroy     = "restore"
}

# Hyper-V gives a clustered VM a partition of any GPU of the node where it starts: of either model.
resource "gpu_vm_assignment" "desktop" {
  for_each = toset([for n in range(1, 7) : format("avd-%02d", n)])

  vm        = each.key
  partition = { configs = [for config in gpu_partition_config.vdi : config.id] }
  power     = { allow_shutdown = true }
}

output "partition_vram_mib" {
  description = "Memory of a partition of each model."
  value       = { for name, config in gpu_partition_config.vdi : name => config.partition_vram_mib }
}
