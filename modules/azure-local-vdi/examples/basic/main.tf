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
  owner           = "vdi"
  simulated_fleet = "${path.module}/../../tests/fleet.json" # hosts in a file
}

module "vdi" {
  source = "../.." # of a registry: gpufleet/azure-local-vdi/gpu

  hosts = ["hv01", "hv02"]
  groups = {
    office = { desktops = ["avd-01", "avd-02", "avd-05"], vram_mib = 900 }
    cad    = { desktops = ["avd-07", "avd-08"], vram_mib = 1800 }
  }
  allow_shutdown = true
  on_destroy     = "restore"
}

output "desktops" {
  description = "The node of each desktop, by group."
  value       = module.vdi.desktops
}
