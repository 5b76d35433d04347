output "layouts" {
  description = "The layout of each GPU in use, by host and GPU id."
  value       = local.fit.layouts

  precondition {
    condition     = local.fit.fits == true
    error_message = "The workloads do not fit. ${local.fit.reason}"
  }
}

output "placements" {
  description = "Where each workload goes: a list of objects with `host`, `gpu_id` and `unit`."
  value       = local.fit.placements
}

output "unused" {
  description = "The GPUs that nothing was placed on."
  value       = local.fit.unused
}

output "remaining" {
  description = "What the GPUs in use still take, each MIG profile and kind alone."
  value       = local.fit.remaining
}

output "devices" {
  description = "The CDI device of each share."
  value       = { for name, share in gpu_share.this : name => share.cdi_device }
}
