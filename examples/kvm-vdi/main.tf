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
  owner           = "kvm-desks"
  simulated_fleet = "${path.module}/fleet.json"
}

# Each of the two L40S is cut into four vGPUs of 12 GiB.
resource "gpu_partition_config" "desks" {
  name       = "desks"
  hosts      = ["kvm01"]
  vgpu       = { type = "L40S-12Q" }
  on_destroy = "restore"
}

# VMs that are there: libvirt's definition of each gets a vGPU. Those that run are shut down for it and started again.
resource "gpu_vm_assignment" "desk" {
  for_each = toset(["desk-01", "desk-02", "desk-03"])

  vm        = each.key
  partition = { config = gpu_partition_config.desks.id }
  power     = { allow_shutdown = true }
}

# A VM that is still to come, whose own resource writes its devices (with-libvirt has that): a vGPU is only reserved for it.
resource "gpu_vm_assignment" "render" {
  vm        = "render-01"
  partition = { config = gpu_partition_config.desks.id, attach = "none" }
}

output "vgpus" {
  description = "The PCI address of the vGPU that each VM has, or is to have."
  value = merge(
    { for name, desk in gpu_vm_assignment.desk : name => desk.partition_address },
    { render-01 = gpu_vm_assignment.render.partition_address },
  )
}
