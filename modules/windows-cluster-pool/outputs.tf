output "pool" {
  description = "The `id` of the pool, for further assignments."
  value       = gpu_pool.this.id
}

output "gpus" {
  description = "GPUs of the pool, those left when a node fails, and those that VMs of the module take."
  value = {
    total         = length(local.gpus)
    one_node_down = length(local.gpus) - max(0, [for ids in var.gpu_ids : length(ids)]...)
    taken         = sum(concat([0], [for vm in var.vms : vm.gpus]))
  }
}

output "vms" {
  description = "The node of each VM, and its GPUs while it runs."
  value       = { for name, vm in gpu_vm_assignment.this : name => { host = vm.owner_host, gpu_ids = vm.gpu_ids } }
}
