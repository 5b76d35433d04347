data "gpu_inventory" "this" {
  hosts = [var.host]
}

locals {
  vms = setunion(var.vms, var.containers == null ? [] : [var.containers.vm])

  # What the host has counts once it has answered.
  answered = contains(keys(data.gpu_inventory.this.inventory), var.host)

  # GPUs of the model that are not partitioned, and in no other pool.
  gpus = {
    for id, gpu in try(data.gpu_inventory.this.inventory[var.host].gpus, {}) : id => gpu
    if contains(["ready_for_dda", "assigned"], gpu.status) && (gpu.pool == null ? true : gpu.pool == var.name)
    && (var.model == null ? true : trimprefix(gpu.model, "NVIDIA ") == trimprefix(var.model, "NVIDIA "))
  }
  models  = distinct([for gpu in local.gpus : gpu.model])
  vram    = max(0, [for gpu in local.gpus : gpu.vram_mib]...)
  known   = flatten([for id, vm in try(data.gpu_inventory.this.inventory[var.host].vms, {}) : [lower(id), lower(vm.name)]])
  unknown = [for vm in local.vms : vm if !contains(local.known, lower(vm))]

  shared = { resources = { "nvidia.com/gpu" = try(var.containers.replicas, 2) } }
}

resource "gpu_pool" "this" {
  name       = var.name
  hosts      = [var.host]
  selector   = var.model == null ? null : { models = [var.model] }
  dismount   = { force = var.force_dismount }
  on_destroy = var.on_destroy

  lifecycle {
    precondition {
      condition     = !local.answered || length(local.unknown) == 0
      error_message = "The vms and containers name VMs that host ${var.host} does not have: ${join(", ", local.unknown)}."
    }
    precondition {
      condition     = length(local.models) <= 1
      error_message = "The host ${var.host} has GPUs of several models: ${join(", ", local.models)}. Name one in model."
    }
    precondition {
      condition     = !local.answered || length(local.vms) <= length(local.gpus)
      error_message = "The vms and containers need ${length(local.vms)} GPUs, and host ${var.host} has ${length(local.gpus)} of the model that can be given whole."
    }
    precondition {
      condition     = local.answered || var.high_mmio_mib != null
      error_message = "The host ${var.host} does not answer: the memory of its GPUs is not known. Set high_mmio_mib meanwhile."
    }
  }
}

resource "gpu_vm_assignment" "this" {
  for_each = local.vms

  vm    = each.key
  hosts = [var.host]
  pool  = { id = gpu_pool.this.id }
  power = { allow_shutdown = var.allow_shutdown }

  low_memory_mapped_io_space_mib  = var.low_mmio_mib
  high_memory_mapped_io_space_mib = coalesce(var.high_mmio_mib, 2 * local.vram + 512)
  guest_controlled_cache_types    = true
  automatic_stop_action           = "turn_off" # a VM that holds a GPU cannot be saved
}
