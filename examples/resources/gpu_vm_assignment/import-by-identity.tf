import {
  to = gpu_vm_assignment.desktop["avd-01"]
  identity = {
    vm_id = "AA3685B2-F0EF-42D4-B456-13BD8DFAC297"
  }
}
