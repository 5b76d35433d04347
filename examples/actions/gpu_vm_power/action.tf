resource "gpu_vm_assignment" "desktop" {
  vm        = "avd-01"
  partition = {}
  power     = { allow_shutdown = true }
}

# terraform apply -invoke=action.gpu_vm_power.off
action "gpu_vm_power" "off" {
  config {
    vm    = gpu_vm_assignment.desktop.vm
    state = "off"
  }
}
