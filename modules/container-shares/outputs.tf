output "pool" {
  description = "The `id` of the pool, for further shares."
  value       = gpu_pool.this.id
}

output "config" {
  description = "The `id` of the layout, for further shares."
  value       = gpu_partition_config.this.id
}

output "shares" {
  description = "Each share: its host, its CDI device, the options for `docker run` and `podman run`, and what keeps it apart from others and holds it to its part."
  value = {
    for name, share in gpu_share.this : name => {
      host        = share.host
      cdi_device  = share.cdi_device
      run_options = "--user ${var.uid} --device ${share.cdi_device}"
      isolation   = share.isolation
      enforcement = share.enforcement
    }
  }
}

output "environment" {
  description = "The environment of a process of the host that is to be in the share without a container."
  value       = { for name, share in gpu_share.this : name => share.environment }
}

output "granted" {
  description = "GPUs of the hosts, and those that the teams may take."
  value       = { gpus = local.count, teams = local.granted }
}

output "forecast" {
  description = "What this plan does, and so another value in the next: class of the disruption."
  value       = { disruption = data.gpu_change_forecast.this.disruption }
}
