terraform {
  required_version = ">= 1.9"

  required_providers {
    gpu = {
      source  = "gpufleet/gpu"
      version = ">= 0.1.0"
    }
  }
}

provider "gpu" {
  owner           = "ml-platform"
  simulated_fleet = "${path.module}/../../tests/fleet.json" # hosts in a file
}

module "inference" {
  source = "../.." # of a registry: gpufleet/mig-inference-node/gpu

  hosts = ["hgx01"]
  workloads = {
    llm    = { profile = "3g.40gb" }
    rerank = { profile = "2g.20gb" }
    embed  = { profile = "1g.10gb", count = 2 }
  }
  on_destroy = "restore"
}

# terraform output -raw config_map | kubectl apply -f -
output "config_map" {
  description = "The device plugin's configuration."
  value       = module.inference.config_map
}

output "node_labels" {
  description = "Labels of each Kubernetes node."
  value       = module.inference.node_labels
}
