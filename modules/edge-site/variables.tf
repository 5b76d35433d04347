variable "name" {
  description = "Name of the pool on the host."
  type        = string
  default     = "edge"
  nullable    = false

  validation {
    condition     = trimspace(var.name) != "" && lower(var.name) != "primordial"
    error_message = "The name must be neither empty nor Primordial, which is Hyper-V's own pool."
  }
}

variable "host" {
  description = "The host of the site, as the provider names it."
  type        = string
  nullable    = false
}

variable "model" {
  description = "Model of the GPUs, such as `T4`. Needed only where the host has GPUs of several models."
  type        = string
  default     = null
}

variable "vms" {
  description = "VMs that get a whole GPU each, by name or id."
  type        = set(string)
  default     = []
  nullable    = false
}

variable "containers" {
  description = "The VM that runs containers, by name or id: it gets a whole GPU, which Kubernetes in it shares by `mps` or `time_slicing`, for as many pods as replicas."
  type = object({
    vm       = string
    sharing  = optional(string, "mps")
    replicas = optional(number, 4)
  })
  default = null

  validation {
    condition     = length(var.vms) + (var.containers == null ? 0 : 1) > 0
    error_message = "Neither vms nor containers have anything that needs a GPU."
  }
  validation {
    condition     = var.containers == null ? true : contains(["mps", "time_slicing"], var.containers.sharing)
    error_message = "The sharing of containers must be mps or time_slicing."
  }
  validation {
    condition     = var.containers == null ? true : var.containers.replicas >= 2 && floor(var.containers.replicas) == var.containers.replicas
    error_message = "The replicas of containers must be a whole number, 2 at least."
  }
  validation {
    condition     = var.containers == null ? true : !contains([for vm in var.vms : lower(vm)], lower(var.containers.vm))
    error_message = "The VM of containers is one of vms as well, and would need two GPUs."
  }
}

variable "allow_shutdown" {
  description = "Whether VMs that run may be shut down to get their GPU. They are started again."
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
  default     = 512
  nullable    = false
}

variable "high_mmio_mib" {
  description = "High memory-mapped IO space of each VM, in MiB. Default: twice the memory of a GPU, and 512."
  type        = number
  default     = null
}

variable "on_destroy" {
  description = "What becomes of the GPUs when the module is destroyed: `keep` leaves them dismounted, `mount_back` mounts them on the host."
  type        = string
  default     = "keep"
  nullable    = false

  validation {
    condition     = contains(["keep", "mount_back"], var.on_destroy)
    error_message = "The on_destroy must be keep or mount_back."
  }
}
