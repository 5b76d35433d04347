terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
}
resource "gpu_vm_assignment" "a" {
  vm = "avd-03"
  partition = {}
}
