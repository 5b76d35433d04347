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

module "right_size" {
  source = "../.." # of a registry: gpufleet/right-size/gpu

  hosts = [for n in ["hgx01", "hgx02"] : {
    name = n
    gpus = [for g in ["1", "2"] : {
      id    = "GPU-00000000-0000-4000-8000-00000${trimprefix(n, "hgx0")}00000${g}"
      model = "H100 80GB HBM3"
    }]
  }]
  workloads = {
    llm     = { kind = "mig", count = 1, profile = "3g.40gb" }
    embed   = { kind = "mig", count = 3, profile = "1g.10gb" }
    jupyter = { kind = "share", count = 4, memory_mib = 16000, threads = 25 }
  }
  on_destroy = "restore"
}

output "layouts" {
  description = "What each GPU in use is laid out as."
  value       = module.right_size.layouts
}
