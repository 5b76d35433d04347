import {
  to = gpu_vm_assignment.desktop["avd-01"]
  id = "hv01/avd-01"
}
