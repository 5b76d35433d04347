data "gpu_inventory" "this" {
  hosts = var.hosts
}

data "gpu_partition_options" "this" {
  for_each = var.hosts

  host = each.key
}

locals {
  desktops = flatten([for group in var.groups : [for vm in group.desktops : lower(vm)]])
  vram_mib = max(0, [for group in var.groups : group.vram_mib]...)

  # What a host has counts once every host has answered.
  answered = length(setsubtract(var.hosts, keys(data.gpu_inventory.this.inventory))) == 0

  selector = var.model == null && var.gpu_ids == null ? null : {
    models  = var.model == null ? null : [var.model]
    gpu_ids = var.gpu_ids
  }

  # The GPUs that it takes.
  gpus = {
    for host in var.hosts : host => {
      for id, gpu in try(data.gpu_inventory.this.inventory[host].gpus, {}) : id => gpu
      if gpu.partition_count != null && gpu.pool == null && gpu.dismounted != true
      && (var.model == null ? true : trimprefix(gpu.model, "NVIDIA ") == trimprefix(var.model, "NVIDIA "))
      && contains([for wanted in try(var.gpu_ids[host], [id]) : lower(wanted)], lower(id))
    }
  }
  models = distinct(flatten([for gpus in local.gpus : [for gpu in gpus : gpu.model]]))
  vms    = flatten([for host in data.gpu_inventory.this.inventory : [for id, vm in host.vms : [lower(id), lower(vm.name)]]])

  # Every count that every one of these GPUs offers, with the least memory that a partition
  # then has.
  options = [
    for host, gpus in local.gpus : {
      for id, gpu in data.gpu_partition_options.this[host].gpus : "${host}/${id}" => {
        for option in gpu.options : option.partition_count => option.partition_vram_mib
      } if contains(keys(gpus), id)
    }
  ]
  counts = distinct(flatten([for gpus in local.options : [for gpu in gpus : [for count in keys(gpu) : tonumber(count)]]]))
  memory = {
    for count in local.counts : count => min(flatten([for gpus in local.options : [for gpu in gpus : try(gpu[count], 0)]])...)
  }
  fitting         = [for count, memory in local.memory : tonumber(count) if memory >= local.vram_mib]
  partition_count = var.partition_count != null ? var.partition_count : try(max(local.fitting...), 1)

  seats     = { for host, gpus in local.gpus : host => length(gpus) * local.partition_count }
  total     = sum(values(local.seats))
  one_down  = local.total - max(values(local.seats)...)
  available = var.keep_failover_seats ? local.one_down : local.total
}

# What the run does to the desktops, for whoever approves it. It is also where a wish that
# the hosts cannot fulfil ends.
data "gpu_change_forecast" "this" {
  hosts       = var.hosts
  selector    = local.selector
  gpu_p       = { partition_count = local.partition_count }
  assignments = [for vm in local.desktops : { vm = vm, allow_shutdown = var.allow_shutdown }]

  lifecycle {
    precondition {
      condition     = local.answered || var.partition_count != null
      error_message = "Some of the hosts do not answer: the number of partitions cannot be worked out. Set partition_count meanwhile."
    }
    precondition {
      condition     = !local.answered || alltrue([for gpus in local.gpus : length(gpus) > 0])
      error_message = "Each of the hosts needs a GPU that can be partitioned, and these have none of the model and gpu_ids: ${join(", ", [for host, gpus in local.gpus : host if length(gpus) == 0])}."
    }
    precondition {
      condition     = length(local.models) <= 1
      error_message = "The hosts have GPUs of several models, and the desktops need one: ${join(", ", local.models)}. Name it in model, or leave out hosts."
    }
    precondition {
      condition     = !local.answered || length(setsubtract(local.desktops, local.vms)) == 0
      error_message = "The groups name VMs that none of the hosts has: ${join(", ", setsubtract(local.desktops, local.vms))}."
    }
    precondition {
      condition     = !local.answered || length(local.fitting) > 0
      error_message = "The groups need ${local.vram_mib} MiB for a desktop, and the GPUs offer partitions of at most ${max(0, values(local.memory)...)} MiB."
    }
    precondition {
      condition     = !local.answered || try(local.memory[local.partition_count], 0) >= local.vram_mib
      error_message = "The partition_count ${local.partition_count} is none that leaves each desktop the ${local.vram_mib} MiB that the groups need. Those that do: ${join(", ", local.fitting)}."
    }
    precondition {
      condition     = !local.answered || length(local.desktops) <= local.available
      error_message = "The groups have ${length(local.desktops)} desktops, more than the ${local.available} seats%{if var.keep_failover_seats} that are left when a node fails (keep_failover_seats)%{endif}: the hosts have ${local.total} seats with partitions of ${try(local.memory[local.partition_count], 0)} MiB."
    }
  }
}

resource "gpu_partition_config" "this" {
  name           = var.name
  hosts          = var.hosts
  selector       = local.selector
  gpu_p          = { partition_count = local.partition_count }
  max_disruption = var.max_disruption
  on_destroy     = var.on_destroy

  depends_on = [data.gpu_change_forecast.this] # its preconditions come first
}

resource "gpu_vm_assignment" "desktop" {
  for_each = toset(local.desktops)

  vm        = each.key
  hosts     = var.hosts
  partition = { config = gpu_partition_config.this.id }
  power     = { allow_shutdown = var.allow_shutdown }

  # A VM that holds a GPU cannot be saved.
  automatic_stop_action = "shut_down"
  offline_action        = "force_shutdown"
}
