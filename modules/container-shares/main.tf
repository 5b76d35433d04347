data "gpu_inventory" "this" {
  hosts = var.hosts
}

locals {
  selector = var.model == null ? null : { models = [var.model] }

  # What a host has counts once every host has answered.
  answered = length(setsubtract(var.hosts, keys(data.gpu_inventory.this.inventory))) == 0

  gpus = {
    for host, have in data.gpu_inventory.this.inventory : host => [
      for gpu in have.gpus : gpu
      if gpu.vendor == "NVIDIA" && (var.model == null ? true : trimprefix(gpu.model, "NVIDIA ") == trimprefix(var.model, "NVIDIA "))
    ]
  }
  models  = distinct(flatten([for gpus in local.gpus : [for gpu in gpus : gpu.model]]))
  count   = length(flatten(values(local.gpus)))
  vram    = try(min(flatten([for gpus in local.gpus : [for gpu in gpus : gpu.vram_mib]])...), 0)
  granted = sum([for team in var.teams : team.gpus])
  large   = [for name, share in var.shares : name if share.memory_mib > local.vram]
}

# What the run does to the GPUs, for whoever approves it. It is also where a wish that the
# hosts cannot fulfil ends.
data "gpu_change_forecast" "this" {
  hosts    = var.hosts
  selector = local.selector
  mps      = { uid = var.uid }

  lifecycle {
    precondition {
      condition     = !local.answered || alltrue([for gpus in local.gpus : length(gpus) > 0])
      error_message = "Each of the hosts needs an NVIDIA GPU, and these have none of the model: ${join(", ", [for host, gpus in local.gpus : host if length(gpus) == 0])}."
    }
    precondition {
      condition     = length(local.models) <= 1
      error_message = "The hosts have GPUs of several models, and a percentage of one is not that of another: ${join(", ", local.models)}. Name one in model, or leave out hosts."
    }
    precondition {
      condition     = !local.answered || local.granted <= local.count
      error_message = "The teams may take ${local.granted} GPUs together, and the hosts have ${local.count}."
    }
    precondition {
      condition     = !local.answered || length(local.large) == 0
      error_message = "The shares have some with more memory than a GPU of the hosts, which is ${local.vram} MiB: ${join(", ", local.large)}."
    }
  }
}

resource "gpu_partition_config" "this" {
  name           = var.name
  hosts          = var.hosts
  selector       = local.selector
  mps            = { uid = var.uid }
  max_disruption = var.max_disruption

  depends_on = [data.gpu_change_forecast.this] # its preconditions come first
}

resource "gpu_pool" "this" {
  name     = var.name
  hosts    = var.hosts
  selector = local.selector
  quotas   = var.teams

  depends_on = [data.gpu_change_forecast.this]
}

resource "gpu_share" "this" {
  for_each = var.shares

  name        = each.key
  pool        = gpu_pool.this.id
  config      = gpu_partition_config.this.id
  owner_label = each.value.team

  memory                   = { limit_mib = each.value.memory_mib }
  active_thread_percentage = each.value.threads
}
