# As many vGPUs of one type as every GPU of a Linux KVM host takes.
resource "gpu_partition_config" "desktops" {
  name  = "desktops"
  hosts = ["kvm01"]
  vgpu  = { type = "L40S-12Q" }

  # Put back what each GPU had, unless a VM holds a vGPU.
  on_destroy = "restore"
}

# Two sizes on one GPU of another host, which takes heterogeneous mode.
resource "gpu_partition_config" "workstations" {
  name     = "workstations"
  hosts    = ["kvm02"]
  selector = { gpu_ids = { kvm02 = ["GPU-7d2e0201-6a4f-4c1b-8a02-4bd3a2c02001"] } }
  vgpu = {
    types = {
      "L40S-24Q" = 1
      "L40S-12Q" = 2
    }
  }
}

# What goes into the definition of a VM: a UUID where the driver makes mediated
# devices, else the PCI address of the virtual function.
output "devices" {
  value = {
    for id, g in gpu_partition_config.desktops.gpus["kvm01"].gpus :
    id => [for v in g.vgpus : coalesce(v.uuid, v.address)]
  }
}
