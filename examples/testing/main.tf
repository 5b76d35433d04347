terraform {
  required_version = ">= 1.9"

  required_providers {
    gpu = {
      source  = "gpufleet/gpu"
      version = ">= 0.1.0"
    }
  }
}

variable "desktops" {
  type = set(string)
}

resource "gpu_partition_config" "vdi" {
  name       = "vdi"
  hosts      = ["lab01"]
  gpu_p      = { partition_count = 4 }
  on_destroy = "restore"
}

resource "gpu_vm_assignment" "desktop" {
  for_each = var.desktops

  vm        = each.key
  partition = { config = gpu_partition_config.vdi.id }
  power     = { allow_shutdown = true }
}

output "with_a_partition" {
  value = keys(gpu_vm_assignment.desktop)
}
