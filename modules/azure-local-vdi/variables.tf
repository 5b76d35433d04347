variable "name" {
  description = "Name of the layout on the hosts."
  type        = string
  default     = "vdi"
  nullable    = false

  validation {
    condition     = trimspace(var.name) != ""
    error_message = "The name must not be empty."
  }
}

variable "hosts" {
  description = "The nodes of the cluster, as the provider names them."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.hosts) > 0
    error_message = "The hosts must be one node at least."
  }
}

variable "groups" {
  description = "Groups of desktops, by name: their VMs, by name or id, and the GPU memory in MiB that each of them needs. All partitions of a cluster have one size, so the group that needs most decides."
  type = map(object({
    desktops = set(string)
    vram_mib = number
  }))
  nullable = false

  validation {
    condition     = length(var.groups) > 0
    error_message = "The groups must be one at least."
  }
  validation {
    condition     = alltrue([for group in var.groups : group.vram_mib > 0])
    error_message = "The vram_mib of each of the groups must be above 0."
  }
  validation {
    condition = length(flatten([for group in var.groups : [for vm in group.desktops : lower(vm)]])) == length(
      distinct(flatten([for group in var.groups : [for vm in group.desktops : lower(vm)]]))
    )
    error_message = "A desktop is in two of the groups, or twice in one."
  }
}

variable "model" {
  description = "Model of the GPUs, such as `NVIDIA A2`. Needed only where the hosts have GPUs of several models that can be partitioned."
  type        = string
  default     = null
}

variable "gpu_ids" {
  description = "The GPUs to partition, by host. Default: all that can be partitioned and are in no pool."
  type        = map(set(string))
  default     = null
}

variable "partition_count" {
  description = "Partitions of each GPU. Default: as many as leave each desktop the memory that it needs."
  type        = number
  default     = null

  validation {
    condition     = var.partition_count == null ? true : var.partition_count >= 1
    error_message = "The partition_count must be 1 at least."
  }
}

variable "keep_failover_seats" {
  description = "Whether the nodes that are left when the largest one fails must have a seat for every desktop (N+1)."
  type        = bool
  default     = true
  nullable    = false
}

variable "allow_shutdown" {
  description = "Whether desktops that run may be shut down to get their partition. They are started again."
  type        = bool
  default     = false
  nullable    = false
}

variable "max_disruption" {
  description = "The most that a change of the layout may disturb: `none` or `vm_restart`."
  type        = string
  default     = "none"
  nullable    = false

  validation {
    condition     = contains(["none", "vm_restart"], var.max_disruption)
    error_message = "The max_disruption must be none or vm_restart."
  }
}

variable "on_destroy" {
  description = "What becomes of the partitions when the module is destroyed: `keep` or `restore`."
  type        = string
  default     = "keep"
  nullable    = false

  validation {
    condition     = contains(["keep", "restore"], var.on_destroy)
    error_message = "The on_destroy must be keep or restore."
  }
}
