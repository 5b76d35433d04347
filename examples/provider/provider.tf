terraform {
  required_version = ">= 1.9"

  required_providers {
    gpu = {
      source  = "gpufleet/gpu"
      version = ">= 0.1.0"
    }
  }
}

# The hosts of a fleet file, by name. Without any hardware: for a first look and for tests.
provider "gpu" {
  # Names this state on the hosts, so that two states never take each other's GPUs.
  owner = "vdi-prod"

  hosts = {
    hv01 = {
      cluster   = "azl-vdi"
      simulated = { file = "${path.module}/fleet.json" }
    }
    hv02 = {
      cluster   = "azl-vdi"
      simulated = { file = "${path.module}/fleet.json" }
    }
  }

  # What may be done to the VMs of every assignment that does not say otherwise.
  power = {
    allow_shutdown   = true
    shutdown_timeout = "10m"
  }

  # A rule can be relaxed, or turned off.
  rules = {
    failover-headroom = "off"
  }
}

# The same in short: every host in the file.
provider "gpu" {
  alias           = "twin"
  owner           = "vdi-test"
  simulated_fleet = "${path.module}/fleet.json"
}
