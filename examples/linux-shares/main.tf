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
  simulated_fleet = "fleet.json"
}

# Processes of user 1000 compute on the GPUs at the same time, each with its part.
resource "gpu_partition_config" "inference" {
  name  = "inference"
  hosts = ["infer01", "infer02"]
  mps   = { uid = 1000 }
}

# Two teams draw from the GPUs of both hosts.
resource "gpu_pool" "inference" {
  name  = "inference"
  hosts = ["infer01", "infer02"]
  quotas = {
    search = { gpus = 2.5, shares = 8 }
    vision = { gpus = 1.5, memory_mib = 73728 }
  }
}

locals {
  # What each service needs of a GPU: memory in MiB and multiprocessors in percent.
  services = {
    search-rank   = { team = "search", memory = 24576, threads = 50 }
    search-embed  = { team = "search", memory = 12288, threads = 25 }
    search-canary = { team = "search", memory = 8192, threads = 15 }
    vision-ocr    = { team = "vision", memory = 16384, threads = 30 }
    vision-detect = { team = "vision", memory = 36864, threads = 75 }
  }
}

resource "gpu_share" "service" {
  for_each = local.services

  name        = each.key
  pool        = gpu_pool.inference.id
  config      = gpu_partition_config.inference.id
  owner_label = each.value.team

  memory                   = { limit_mib = each.value.memory }
  active_thread_percentage = each.value.threads
}

# How each service is started, and on which host. With MPS a container runs as the user that
# the config names.
output "docker" {
  value = {
    for name, s in gpu_share.service :
    name => "ssh ${s.host} docker run --user 1000 --device ${s.cdi_device} registry.example/${name}"
  }
}

output "podman" {
  value = {
    for name, s in gpu_share.service :
    name => "ssh ${s.host} podman run --user 1000 --device ${s.cdi_device} registry.example/${name}"
  }
}

# A service that is no container gets the same by its environment.
output "unit" {
  value = join("\n", concat(
    [
      "# search-canary.service on ${gpu_share.service["search-canary"].host}",
      "[Service]",
      "User=1000",
      "ExecStart=/opt/search/canary",
    ],
    [for name, value in gpu_share.service["search-canary"].environment : "Environment=\"${name}=${value}\""],
  ))
}

# What holds each service to its part, and what it counts for.
output "shares" {
  value = {
    for name, s in gpu_share.service :
    name => { host = s.host, fraction = s.fraction, enforcement = s.enforcement, isolation = s.isolation }
  }
}
