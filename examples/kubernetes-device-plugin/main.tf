terraform {
  required_version = ">= 1.9"

  required_providers {
    gpu = {
      source  = "gpufleet/gpu"
      version = ">= 0.1.0"
    }
  }
}

variable "nodes" {
  description = "Names of the cluster's nodes with GPUs, and how each shares them."
  type        = map(string)
  default = {
    gpu-node-01 = "inference"
    gpu-node-02 = "notebooks"
    gpu-node-03 = "whole"
  }

  validation {
    condition     = alltrue([for config in values(var.nodes) : contains(["whole", "inference", "notebooks"], config)])
    error_message = "A node has one of the configurations whole, inference and notebooks."
  }
}

locals {
  # What the device plugin may be told, by name.
  configs = {
    # Nothing is shared.
    whole = provider::gpu::device_plugin_config({ mig_strategy = "none" })

    # Ten pods at once for each GPU, with a tenth of its memory and of its threads each.
    inference = provider::gpu::device_plugin_config({
      mig_strategy = "none"
      mps          = { resources = { "nvidia.com/gpu" = 10 } }
    })

    # Four pods in turn, without any limit on memory.
    notebooks = provider::gpu::device_plugin_config({
      mig_strategy = "none"
      time_slicing = {
        resources                      = { "nvidia.com/gpu" = 4 }
        rename_by_default              = true
        fail_requests_greater_than_one = true
      }
    })
  }

  # The GPU Operator's device plugin reads the label of its node.
  labels = { for node, config in var.nodes : node => { "nvidia.com/device-plugin.config" = config } }
}

output "configs" {
  description = "The device plugin's configurations, by name."
  value       = local.configs
}

# For kubectl apply, or for anything else that takes YAML.
output "manifest" {
  description = "The ConfigMap of the device plugin's configurations."
  value = yamlencode({
    apiVersion = "v1"
    kind       = "ConfigMap"
    metadata   = { name = "device-plugin-configs", namespace = "gpu-operator" }
    data       = local.configs
  })
}

output "labels" {
  description = "The labels of the nodes, for kubectl label."
  value       = local.labels
}
