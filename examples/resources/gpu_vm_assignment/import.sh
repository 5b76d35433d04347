# The id of the VM, or host/name, host/id or cluster/name.
terraform import 'gpu_vm_assignment.desktop["avd-01"]' hv01/avd-01
