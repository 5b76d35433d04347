output "config" {
  description = "The `id` of the layout, for further assignments."
  value       = gpu_partition_config.this.id
}

output "partition_count" {
  description = "Partitions of each GPU."
  value       = local.partition_count
}

output "partition_vram_mib" {
  description = "Memory of each desktop's partition, in MiB."
  value       = gpu_partition_config.this.partition_vram_mib
}

output "seats" {
  description = "Seats of all nodes, those left when the largest node fails, and those that desktops of the module take."
  value       = { total = local.total, one_node_down = local.one_down, taken = length(local.desktops) }
}

output "desktops" {
  description = "The node of each desktop, by group and VM."
  value = {
    for name, group in var.groups : name => { for vm in group.desktops : vm => gpu_vm_assignment.desktop[lower(vm)].owner_host }
  }
}

output "forecast" {
  description = "What this plan does, and so another value in the next: class of the disruption, VMs that are restarted, and seats left on each host."
  value = {
    disruption = data.gpu_change_forecast.this.disruption
    restarted  = [for vm in data.gpu_change_forecast.this.vms : vm.vm if vm.effect == "restarted"]
    seats_left = { for seats in data.gpu_change_forecast.this.seats : seats.host => seats.left }
  }
}
