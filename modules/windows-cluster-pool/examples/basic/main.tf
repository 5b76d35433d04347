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
  owner           = "cad"
  simulated_fleet = "${path.module}/../../tests/fleet.json" # hosts in a file
}

module "cad" {
  source = "../.." # of a registry: gpufleet/windows-cluster-pool/gpu

  name  = "cad"
  hosts = ["hv01", "hv02"]
  gpu_ids = { # both nodes are built alike
    for host in ["hv01", "hv02"] : host => ["PCIROOT(16)#PCI(0000)#PCI(0000)", "PCIROOT(B0)#PCI(0200)#PCI(0000)"]
  }
  vms            = { cad-01 = {}, cad-03 = {} }
  allow_shutdown = true
  force_dismount = true
  on_destroy     = "mount_back"
}

output "vms" {
  description = "The node of each VM, and its GPUs while it runs."
  value       = module.cad.vms
}
