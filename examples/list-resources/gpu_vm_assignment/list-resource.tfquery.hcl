list "gpu_vm_assignment" "desktops" {
  provider = gpu

  config {
    cluster   = "azl-vdi"
    kind      = "partition"
    unmanaged = true
  }
}
