data "gpu_inventory" "this" {
  hosts = var.hosts
}

locals {
  # What a host has counts once every host has answered.
  answered = length(setsubtract(var.hosts, keys(data.gpu_inventory.this.inventory))) == 0

  known = { for host, have in data.gpu_inventory.this.inventory : host => { for id, gpu in have.gpus : lower(id) => gpu } }
  gpus = flatten([
    for host, ids in var.gpu_ids : [for id in ids : { host = host, id = id, gpu = try(local.known[host][lower(id)], null) }]
  ])
  missing = [for g in local.gpus : "${g.id} on ${g.host}" if g.gpu == null]
  models  = distinct([for g in local.gpus : g.gpu.model if g.gpu != null])
  vram    = max(0, [for g in local.gpus : g.gpu.vram_mib if g.gpu != null]...)

  vms     = flatten([for host in data.gpu_inventory.this.inventory : [for id, vm in host.vms : [lower(id), lower(vm.name)]]])
  unknown = [for vm in keys(var.vms) : vm if !contains(local.vms, lower(vm))]
}

resource "gpu_pool" "this" {
  name       = var.name
  members    = var.gpu_ids
  dismount   = { force = var.force_dismount }
  on_destroy = var.on_destroy

  lifecycle {
    precondition {
      condition     = !local.answered || length(local.missing) == 0
      error_message = "The gpu_ids name GPUs that the hosts do not have: ${join(", ", local.missing)}."
    }
    precondition {
      condition     = length(local.models) <= 1
      error_message = "The gpu_ids name GPUs of several models, and a VM must find the same one on each node: ${join(", ", local.models)}."
    }
    precondition {
      condition     = !local.answered || length(local.unknown) == 0
      error_message = "The vms name VMs that none of the hosts has: ${join(", ", local.unknown)}."
    }
    precondition {
      condition     = local.answered || var.high_mmio_mib != null
      error_message = "Some of the hosts do not answer: the memory of the GPUs is not known. Set high_mmio_mib meanwhile."
    }
  }
}

resource "gpu_vm_assignment" "this" {
  for_each = var.vms

  vm    = each.key
  hosts = var.hosts
  pool  = { id = gpu_pool.this.id, count = each.value.gpus }
  power = { allow_shutdown = var.allow_shutdown }

  low_memory_mapped_io_space_mib  = var.low_mmio_mib
  high_memory_mapped_io_space_mib = coalesce(var.high_mmio_mib, 2 * local.vram * each.value.gpus + 512)
  guest_controlled_cache_types    = true

  # A VM that holds a GPU cannot be saved.
  automatic_stop_action = "turn_off"
  offline_action        = "force_shutdown"
}
