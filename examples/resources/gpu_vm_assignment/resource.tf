resource "gpu_partition_config" "vdi" {
  name  = "vdi"
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = 8 }
}

# One partition for each desktop. Hyper-V chooses the GPU when the VM starts.
resource "gpu_vm_assignment" "desktop" {
  for_each = toset(["avd-01", "avd-02", "avd-07"])

  # A name works for a VM that exists. Refer to the id of a VM that Terraform creates.
  vm        = each.key
  partition = { config = gpu_partition_config.vdi.id }

  # Without this a running VM is never stopped, and the plan says that it must be.
  power = { allow_shutdown = true }
}
