data "gpu_inventory" "this" {
  hosts = var.hosts
}

data "gpu_partition_options" "this" {
  for_each = var.hosts

  host = each.key
}

locals {
  profiles = {
    for profile in distinct([for workload in var.workloads : workload.profile]) :
    profile => sum([for workload in var.workloads : workload.count if workload.profile == profile])
  }
  selector = var.model == null ? null : { models = [var.model] }

  # What a host has counts once every host has answered.
  answered = length(setsubtract(var.hosts, keys(data.gpu_inventory.this.inventory))) == 0

  # The GPUs with MIG that the layout takes.
  gpus = {
    for host, options in data.gpu_partition_options.this : host => [
      for gpu in options.gpus : gpu
      if gpu.mig_enabled != null && (var.model == null ? true : trimprefix(gpu.model, "NVIDIA ") == trimprefix(var.model, "NVIDIA "))
    ]
  }
  models   = distinct(flatten([for gpus in local.gpus : [for gpu in gpus : gpu.model]]))
  offered  = distinct(flatten([for gpus in local.gpus : [for gpu in gpus : [for profile in gpu.mig_profiles : profile.profile]]]))
  unknown  = setsubtract(keys(local.profiles), local.offered)
  too_many = distinct(flatten([for gpus in local.gpus : [for gpu in gpus : [for profile in gpu.mig_profiles : "${profile.profile} fits ${profile.max} times" if try(local.profiles[profile.profile], 0) > profile.max]]]))

  nodes = { for host in var.hosts : host => lookup(var.node_names, host, host) }
}

# What the run does to the GPUs, for whoever approves it. It is also where a wish that the
# hosts cannot fulfil ends.
data "gpu_change_forecast" "this" {
  hosts    = var.hosts
  selector = local.selector
  mig      = { profiles = local.profiles }

  lifecycle {
    precondition {
      condition     = !local.answered || alltrue([for gpus in local.gpus : length(gpus) > 0])
      error_message = "Each of the hosts needs a GPU with MIG, and these have none of the model: ${join(", ", [for host, gpus in local.gpus : host if length(gpus) == 0])}."
    }
    precondition {
      condition     = !local.answered || length(local.models) <= 1
      error_message = "The hosts have GPUs of several models with MIG, whose profiles differ: ${join(", ", local.models)}. Name one in model, or leave out hosts."
    }
    precondition {
      condition     = !local.answered || length(local.unknown) == 0
      error_message = "The workloads have profiles that the GPUs do not offer: ${join(", ", local.unknown)}. They offer ${join(", ", local.offered)}."
    }
    precondition {
      condition     = !local.answered || length(local.too_many) == 0
      error_message = "The workloads have more instances than a GPU takes: ${join(", ", local.too_many)}."
    }
  }
}

resource "gpu_partition_config" "this" {
  name           = var.name
  hosts          = var.hosts
  selector       = local.selector
  mig            = { profiles = local.profiles }
  quiesce_units  = length(var.quiesce_units) == 0 ? null : var.quiesce_units
  max_disruption = var.max_disruption
  on_destroy     = var.on_destroy

  lifecycle {
    # Whether the instances fit together depends on their places, which the provider knows.
    precondition {
      condition     = !local.answered || length(local.unplaced) == 0
      error_message = "The workloads do not fit a GPU of the hosts together. ${join(" ", local.unplaced)}"
    }
  }
}

locals {
  unplaced = distinct([
    for violation in data.gpu_change_forecast.this.violations : violation.found if violation.rule == "mig-placement" && violation.level == "error"
  ])
}
