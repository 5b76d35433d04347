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
  owner           = "vdi-prod"
  simulated_fleet = "${path.module}/fleet.json"
}

locals {
  nodes = ["hv01", "hv02"]

  # Both nodes are built alike, so the location paths are the same on each.
  desktop_gpu = "PCIROOT(16)#PCI(0000)#PCI(0000)"
  render_gpu  = "PCIROOT(B0)#PCI(0200)#PCI(0000)"

  desktops = toset([for n in range(1, 11) : format("avd-%02d", n)])
}

# The second GPU of each node leaves GPU partitioning and goes into a pool, whole.
resource "gpu_pool" "render" {
  name       = "render"
  members    = { for node in local.nodes : node => [local.render_gpu] }
  dismount   = { force = true }
  on_destroy = "mount_back"
}

# The first GPU of each node is shared by eight desktops.
resource "gpu_partition_config" "vdi" {
  name       = "vdi"
  hosts      = local.nodes
  selector   = { gpu_ids = { for node in local.nodes : node => [local.desktop_gpu] } }
  gpu_p      = { partition_count = 8 }
  on_destroy = "restore"

  # All partitioned GPUs of a cluster must have one count: the GPUs that keep the
  # old one go first.
  depends_on = [gpu_pool.render]
}

resource "gpu_vm_assignment" "desktop" {
  for_each = local.desktops

  vm        = each.key
  partition = { config = gpu_partition_config.vdi.id }
  power     = { allow_shutdown = true }

  # A VM that holds a GPU cannot be saved.
  automatic_stop_action = "shut_down"
  offline_action        = "force_shutdown"
}

resource "gpu_vm_assignment" "render" {
  vm    = "avd-11"
  pool  = { id = gpu_pool.render.id }
  power = { allow_shutdown = true }

  # An A2 shows 16 GiB of memory to its VM.
  low_memory_mapped_io_space_mib  = 3072
  high_memory_mapped_io_space_mib = 33280
  guest_controlled_cache_types    = true
  automatic_stop_action           = "turn_off"
  offline_action                  = "force_shutdown"
}

output "partition_vram_mib" {
  description = "Memory of one desktop's partition."
  value       = gpu_partition_config.vdi.partition_vram_mib
}

output "desktops" {
  description = "Node of each desktop."
  value       = { for name, assignment in gpu_vm_assignment.desktop : name => assignment.owner_host }
}

output "render_node" {
  description = "Node of the VM that has a GPU to itself."
  value       = gpu_vm_assignment.render.owner_host
}
