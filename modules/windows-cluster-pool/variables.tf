variable "name" {
  description = "Name of the pool. VMs that fail over find the pool of this name on the other node."
  type        = string
  nullable    = false

  validation {
    condition     = trimspace(var.name) != "" && lower(var.name) != "primordial"
    error_message = "The name must be neither empty nor Primordial, which is Hyper-V's own pool."
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

variable "gpu_ids" {
  description = "The GPUs of the pool, by host: PCI location paths. As many on each node, of one model."
  type        = map(set(string))
  nullable    = false

  validation {
    condition     = toset(keys(var.gpu_ids)) == var.hosts
    error_message = "The gpu_ids must name GPUs of each of the hosts, and of no other: ${join(", ", setunion(setsubtract(keys(var.gpu_ids), var.hosts), setsubtract(var.hosts, keys(var.gpu_ids))))}."
  }
  validation {
    condition     = length(distinct([for ids in var.gpu_ids : length(ids)])) <= 1
    error_message = "The gpu_ids must be as many on each of the hosts, so that each VM finds its GPUs after a failover: ${join(", ", [for host, ids in var.gpu_ids : "${host} has ${length(ids)}"])}."
  }
  validation {
    condition     = alltrue([for ids in var.gpu_ids : length(ids) > 0])
    error_message = "The gpu_ids must be one at least for each of the hosts."
  }
}

variable "vms" {
  description = "The VMs, by name or id, and how many GPUs each gets."
  type        = map(object({ gpus = optional(number, 1) }))
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for vm in var.vms : vm.gpus >= 1 && floor(vm.gpus) == vm.gpus])
    error_message = "Each of the vms gets whole GPUs, one at least."
  }
  validation {
    condition     = alltrue([for vm in var.vms : vm.gpus <= max(0, [for ids in var.gpu_ids : length(ids)]...)])
    error_message = "The vms have one that needs more GPUs than the gpu_ids name on a node: ${join(", ", [for name, vm in var.vms : name if vm.gpus > max(0, [for ids in var.gpu_ids : length(ids)]...)])}."
  }
  validation {
    condition = sum(concat([0], [for vm in var.vms : vm.gpus])) <= (
      sum(concat([0], [for ids in var.gpu_ids : length(ids)])) - (var.keep_failover_gpus ? max(0, [for ids in var.gpu_ids : length(ids)]...) : 0)
    )
    error_message = "The vms need ${sum(concat([0], [for vm in var.vms : vm.gpus]))} GPUs, more than the pool has%{if var.keep_failover_gpus} when a node fails (keep_failover_gpus)%{endif}: the gpu_ids name ${sum(concat([0], [for ids in var.gpu_ids : length(ids)]))} on ${length(var.gpu_ids)} nodes."
  }
}

variable "keep_failover_gpus" {
  description = "Whether the nodes that are left when one fails must have a GPU for every VM (N+1)."
  type        = bool
  default     = true
  nullable    = false
}

variable "allow_shutdown" {
  description = "Whether VMs that run may be shut down to get their GPUs. They are started again."
  type        = bool
  default     = false
  nullable    = false
}

variable "force_dismount" {
  description = "Whether GPUs are dismounted without the platform's checks. NVIDIA GPUs without their mitigation driver need it."
  type        = bool
  default     = false
  nullable    = false
}

variable "low_mmio_mib" {
  description = "Low memory-mapped IO space of each VM, in MiB."
  type        = number
  default     = 3072
  nullable    = false
}

variable "high_mmio_mib" {
  description = "High memory-mapped IO space of each VM, in MiB. Default: twice the memory of its GPUs, and 512."
  type        = number
  default     = null
}

variable "on_destroy" {
  description = "What becomes of the GPUs when the module is destroyed: `keep` leaves them dismounted, `mount_back` mounts them on their hosts."
  type        = string
  default     = "keep"
  nullable    = false

  validation {
    condition     = contains(["keep", "mount_back"], var.on_destroy)
    error_message = "The on_destroy must be keep or mount_back."
  }
}
