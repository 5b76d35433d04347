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
  owner           = "edge"
  simulated_fleet = "${path.module}/../../tests/fleet.json" # hosts in a file
}

module "site" {
  source = "../.." # of a registry: gpufleet/edge-site/gpu

  host           = "edge01"
  vms            = ["vision-01"]
  containers     = { vm = "kube-01", replicas = 6 }
  allow_shutdown = true
  force_dismount = true
  on_destroy     = "mount_back"
}

output "device_plugin_config" {
  description = "For the Kubernetes in kube-01."
  value       = module.site.device_plugin_config
}
