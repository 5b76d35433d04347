terraform {
  required_providers {
    gpu = {
      source = "gpufleet/gpu"
    }
  }
}

# All hosts of the provider. Name some with hosts = ["hv01"].
data "gpu_inventory" "all" {}

output "inventory" {
  value = data.gpu_inventory.all
}
