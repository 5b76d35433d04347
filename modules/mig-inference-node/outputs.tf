output "config" {
  description = "The `id` of the layout, for shares."
  value       = gpu_partition_config.this.id
}

output "profiles" {
  description = "Instances of each GPU, by profile."
  value       = local.profiles
}

output "resources" {
  description = "What a pod of each workload asks for."
  value       = { for name, workload in var.workloads : name => var.mig_strategy == "single" ? "nvidia.com/gpu" : "nvidia.com/mig-${workload.profile}" }
}

output "device_plugin_config" {
  description = "The configuration of NVIDIA's device plugin, in YAML."
  value       = provider::gpu::device_plugin_config({ mig_strategy = var.mig_strategy })
}

output "config_map" {
  description = "A ConfigMap with that configuration, for `kubectl apply`."
  value = yamlencode({
    apiVersion = "v1"
    kind       = "ConfigMap"
    metadata   = { name = "device-plugin-${var.name}", namespace = var.namespace }
    data       = { (var.name) = provider::gpu::device_plugin_config({ mig_strategy = var.mig_strategy }) }
  })
}

output "node_labels" {
  description = "Labels of each Kubernetes node, for `kubectl label`."
  value       = { for node in local.nodes : node => { "nvidia.com/device-plugin.config" = var.name } }
}

output "devices" {
  description = "UUIDs of the MIG devices by host, GPU and place. They are new each time that an instance is made."
  value = {
    for host, on in gpu_partition_config.this.gpus : host => {
      for id, gpu in on.gpus : id => { for instance in gpu.instances : "${instance.profile}@${instance.start}" => instance.uuid }
    }
  }
}

output "forecast" {
  description = "What this plan does, and so another value in the next: class of the disruption, and the GPUs that are reset."
  value = {
    disruption = data.gpu_change_forecast.this.disruption
    resets     = [for gpu in data.gpu_change_forecast.this.resets_gpus : "${gpu.gpu_id} on ${gpu.host}"]
  }
}
