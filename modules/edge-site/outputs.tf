output "pool" {
  description = "The `id` of the pool."
  value       = gpu_pool.this.id
}

output "gpu_ids" {
  description = "The GPUs of each VM, while it runs."
  value       = { for vm, assignment in gpu_vm_assignment.this : vm => assignment.gpu_ids }
}

output "device_plugin_config" {
  description = "The configuration of NVIDIA's device plugin in the VM that runs containers, in YAML; null without containers."
  # Without parentheses around it: OpenTofu 1.10 finds no function of a provider in them.
  value = var.containers == null ? null : provider::gpu::device_plugin_config({ (var.containers.sharing) = local.shared })
}
