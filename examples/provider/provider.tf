terraform {
  required_providers {
    gpu = {
      source = "gpufleet/gpu"
    }
  }
}

provider "gpu" {
  # Names this state on the hosts, so that two states never take each other's GPUs.
  owner = "vdi-prod"

  hosts = {
    hv01 = {
      cluster = "azl-vdi"
      ssh     = { address = "hv01.corp.example", user = "svc-terraform" }
    }
    hv02 = {
      cluster = "azl-vdi"
      ssh     = { address = "hv02.corp.example", user = "svc-terraform" }
    }
  }
}

# Without any hardware: a fleet in a file, for a first look and for tests.
provider "gpu" {
  alias           = "twin"
  owner           = "vdi-test"
  simulated_fleet = "fleet.json"
}
