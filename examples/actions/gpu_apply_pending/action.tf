# An assignment that waits for the VM's next power-off.
resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = {}
  power     = { allow_shutdown = true, when = "next_off" }
}

# In the maintenance window: terraform apply -invoke=action.gpu_apply_pending.desktop
action "gpu_apply_pending" "desktop" {
  config {
    vm = gpu_vm_assignment.desktop.vm
  }
}
