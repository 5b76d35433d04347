locals {
  demands = [for name, workload in var.workloads : {
    name       = name
    kind       = workload.kind
    count      = coalesce(workload.count, length(workload.vms))
    vram_mib   = workload.vram_mib
    profile    = workload.profile
    memory_mib = workload.memory_mib
    threads    = workload.threads
    gpus       = workload.gpus
  }]

  # A pure function of the variables: no host is asked, so that the plan and the apply have the same layouts.
  fit = provider::gpu::fit(coalesce(var.recording, jsonencode(var.hosts)), local.demands, { spare_hosts = var.spare_hosts })

  # The config of each GPU, by "host/id".
  config = merge([for name, config in local.fit.configs : merge([for host, ids in config.gpu_ids : {
    for id in ids : "${host}/${id}" => name
  }]...)]...)

  shares = merge([for name, workload in var.workloads : {
    for n, at in local.fit.placements[name] : "${name}-${n + 1}" => { workload = workload, at = at }
  } if workload.kind == "share"]...)

  vms = merge([for name, workload in var.workloads : {
    for vm in workload.vms : vm => distinct([for at in local.fit.placements[name] : local.config["${at.host}/${at.gpu_id}"]])
  }]...)
}

resource "gpu_partition_config" "this" {
  for_each = local.fit.configs

  name           = each.key
  hosts          = each.value.hosts
  selector       = { gpu_ids = each.value.gpu_ids }
  gpu_p          = each.value.gpu_p
  mig            = each.value.mig
  mps            = each.value.mps
  max_disruption = var.max_disruption
  on_destroy     = var.on_destroy

  lifecycle {
    precondition {
      condition     = local.fit.fits == true
      error_message = "The workloads do not fit. ${local.fit.reason}"
    }
  }
}

resource "gpu_share" "this" {
  for_each = local.shares

  name    = each.key
  host    = each.value.at.host
  gpu_ids = [each.value.at.gpu_id]
  config  = gpu_partition_config.this[local.config["${each.value.at.host}/${each.value.at.gpu_id}"]].id

  memory                   = { request_mib = each.value.workload.memory_mib }
  active_thread_percentage = each.value.workload.threads
}

resource "gpu_vm_assignment" "this" {
  for_each = local.vms

  vm        = each.key
  partition = { configs = [for name in each.value : gpu_partition_config.this[name].id] }
  power     = { allow_shutdown = var.allow_shutdown }
}
