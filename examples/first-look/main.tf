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
  owner           = "lab"                       # names this state on the hosts
  simulated_fleet = "${path.module}/fleet.json" # a host in a file
}

# Four partitions on the host's GPU. A destroy gives it back the count that it had.
resource "gpu_partition_config" "lab" {
  name       = "lab"
  hosts      = ["lab01"]
  gpu_p      = { partition_count = 4 }
  on_destroy = "restore"
}

# A partition for each VM. desk-01 runs, so it is shut down for this and started again.
# desk-02 is off and stays off: it takes its partition when somebody starts it.
resource "gpu_vm_assignment" "desk" {
  for_each = toset(["desk-01", "desk-02"])

  vm        = each.key
  partition = { config = gpu_partition_config.lab.id }
  power     = { allow_shutdown = true }
}
