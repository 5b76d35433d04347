# The id of the VM, or its host and name.
terraform import 'gpu_vm_assignment.desktop["avd-01"]' hv01/avd-01
