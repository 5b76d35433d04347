locals {
  # Usually file("config.yaml").
  written = <<-EOT
    version: v1
    sharing:
      timeSlicing:
        resources:
        - {name: nvidia.com/gpu, replicas: 4}
  EOT
  config  = provider::gpu::from_device_plugin_config(local.written)
}

# The same, but pods that ask for two replicas are refused.
output "config" {
  value = provider::gpu::device_plugin_config(merge(local.config, {
    time_slicing = merge(local.config.time_slicing, { fail_requests_greater_than_one = true })
  }))
}
