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

module "shares" {
  source = "../.." # of a registry: gpufleet/container-shares/gpu

  hosts = ["infer01", "infer02"]
  uid   = 1000
  teams = {
    search = { gpus = 2.5, shares = 8 }
    vision = { gpus = 1.5, memory_mib = 73728 }
  }
  shares = {
    search-rank   = { team = "search", memory_mib = 24576, threads = 50 }
    search-embed  = { team = "search", memory_mib = 12288, threads = 25 }
    vision-detect = { team = "vision", memory_mib = 36864, threads = 75 }
  }
}

output "shares" {
  description = "How each share is used."
  value       = module.shares.shares
}
