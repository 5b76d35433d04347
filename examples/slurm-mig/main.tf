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
  owner           = "slurm"
  simulated_fleet = "fleet.json"
}

# Jobs on gpu01 ask for instances, jobs on gpu02 for whole GPUs.
resource "gpu_partition_config" "instances" {
  name  = "instances"
  hosts = ["gpu01"]
  mig   = { profiles = { "3g.40gb" = 1, "2g.20gb" = 1, "1g.10gb" = 2 } }
}

resource "gpu_partition_config" "whole" {
  name  = "whole"
  hosts = ["gpu02"]
  mig   = { enabled = false }
}

locals {
  slurm = provider::gpu::slurm_gres(concat(
    [gpu_partition_config.instances.gpus],
    [for host, on in gpu_partition_config.whole.gpus : { name = host, type = "h100", gpus = on.gpus }],
  ))
}

# The three files of a cluster: gres.conf, lines of slurm.conf, and cgroup.conf.
output "gres_conf" {
  value = local.slurm.conf
}

output "slurm_conf" {
  value = concat(
    ["GresTypes=${local.slurm.gres_types}", "TaskPlugin=task/cgroup"],
    [for node, gres in local.slurm.gres : "NodeName=${node} Gres=${gres}"],
  )
}

output "cgroup_conf" {
  value = local.slurm.cgroup_conf
}
