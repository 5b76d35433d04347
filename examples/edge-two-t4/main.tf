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
  owner           = "edge-vision"
  simulated_fleet = "${path.module}/fleet.json"
}

# A T4 cannot be partitioned on Hyper-V: a VM gets it whole or not at all.
resource "gpu_pool" "inference" {
  name = "inference"
  members = {
    edge01 = ["PCIROOT(3A)#PCI(0000)#PCI(0000)", "PCIROOT(5D)#PCI(0000)#PCI(0000)"]
  }
  dismount   = { force = true }
  on_destroy = "mount_back"
}

resource "gpu_vm_assignment" "vision" {
  for_each = toset(["vision-01", "vision-02"])

  vm    = each.key
  pool  = { id = gpu_pool.inference.id }
  power = { allow_shutdown = true }

  low_memory_mapped_io_space_mib  = 512
  high_memory_mapped_io_space_mib = 1024
  guest_controlled_cache_types    = true
  automatic_stop_action           = "turn_off"
}

output "gpus" {
  description = "GPUs that each VM holds."
  value       = { for name, assignment in gpu_vm_assignment.vision : name => assignment.gpu_ids }
}
