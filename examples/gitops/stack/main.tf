terraform {
  required_version = ">= 1.9"

  required_providers {
    gpu = {
      source  = "gpufleet/gpu"
      version = ">= 0.1.0"
    }
  }

  # A backend that all jobs reach goes here.
}

variable "hosts" {
  description = "How each host is reached, as `hosts` of the provider: in hosts.auto.tfvars. Without it the environment says which fleet it is."
  type        = map(object({ ssh = object({ address = string, known_hosts_file = optional(string, "known_hosts") }) }))
  default     = null
}

variable "maintenance_window" {
  description = "When running desktops may be shut down."
  type        = object({ days = optional(set(string)), start = string, end = string, timezone = string })
  default     = { start = "22:00", end = "04:00", timezone = "Europe/Berlin" }
}

variable "change_ticket" {
  description = "The ticket of a change that stops many VMs; the policy asks for it."
  type        = string
  default     = ""
}

variable "nodes" {
  type    = set(string)
  default = ["hv01", "hv02"]
}

variable "partition_count" {
  type    = number
  default = 8
}

variable "desktops" {
  type    = set(string)
  default = ["avd-01", "avd-02", "avd-07"]
}

# The user and the key are not here: GPU_SSH_USER and GPU_SSH_PRIVATE_KEY are a reader's in
# jobs that plan, and an operator's in the job that applies.
provider "gpu" {
  owner              = "vdi-prod"
  hosts              = var.hosts
  maintenance_window = var.maintenance_window
}

# What an approver and the policies go by: warnings are not part of a saved plan.
data "gpu_change_forecast" "vdi" {
  hosts       = var.nodes
  gpu_p       = { partition_count = var.partition_count }
  assignments = [for vm in var.desktops : { vm = vm, allow_shutdown = true }]
}

resource "gpu_partition_config" "vdi" {
  name           = "vdi"
  hosts          = var.nodes
  gpu_p          = { partition_count = var.partition_count }
  max_disruption = "vm_restart"
  on_destroy     = "restore"
}

resource "gpu_vm_assignment" "desktop" {
  for_each = var.desktops

  vm                    = each.key
  partition             = { config = gpu_partition_config.vdi.id }
  power                 = { allow_shutdown = true }
  automatic_stop_action = "shut_down"
  offline_action        = "force_shutdown"
}
