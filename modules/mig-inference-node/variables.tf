variable "name" {
  description = "Name of the layout on the hosts, and of the device plugin's configuration."
  type        = string
  default     = "inference"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", var.name))
    error_message = "The name must be lower-case letters, digits and hyphens: it is the value of a label."
  }
}

variable "hosts" {
  description = "The hosts, as the provider names them."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.hosts) > 0
    error_message = "The hosts must be one at least."
  }
}

variable "node_names" {
  description = "Names of hosts as Kubernetes nodes, where these differ."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(setsubtract(keys(var.node_names), var.hosts)) == 0
    error_message = "The node_names name hosts that are none of hosts: ${join(", ", setsubtract(keys(var.node_names), var.hosts))}."
  }
}

variable "workloads" {
  description = "What runs on each GPU: the MIG profile of each workload, and how many instances of it each GPU gets."
  type = map(object({
    profile = string
    count   = optional(number, 1)
  }))
  nullable = false

  validation {
    condition     = length(var.workloads) > 0
    error_message = "The workloads must be one at least."
  }
  validation {
    condition     = alltrue([for workload in var.workloads : workload.count >= 1 && floor(workload.count) == workload.count])
    error_message = "Each of the workloads has a whole count, 1 at least."
  }
}

variable "model" {
  description = "Model of the GPUs, such as `H100 80GB HBM3`. Needed only where the hosts have GPUs of several models with MIG."
  type        = string
  default     = null
}

variable "mig_strategy" {
  description = "How the device plugin names instances: `mixed` by profile, `single` as whole GPUs, for which all workloads must have one profile."
  type        = string
  default     = "mixed"
  nullable    = false

  validation {
    condition     = contains(["mixed", "single"], var.mig_strategy)
    error_message = "The mig_strategy must be mixed or single."
  }
  validation {
    condition     = var.mig_strategy != "single" || length(distinct([for workload in var.workloads : workload.profile])) == 1
    error_message = "The mig_strategy single needs one profile, and the workloads have ${join(", ", distinct([for workload in var.workloads : workload.profile]))}."
  }
}

variable "namespace" {
  description = "Namespace of the device plugin's ConfigMap."
  type        = string
  default     = "gpu-operator"
  nullable    = false
}

variable "quiesce_units" {
  description = "systemd units that only watch GPUs, stopped while MIG mode is switched."
  type        = set(string)
  default     = []
  nullable    = false
}

variable "max_disruption" {
  description = "The most that a change may disturb: `none` or `gpu_reset`, which switching MIG mode needs before Hopper."
  type        = string
  default     = "none"
  nullable    = false

  validation {
    condition     = contains(["none", "gpu_reset"], var.max_disruption)
    error_message = "The max_disruption must be none or gpu_reset."
  }
}

variable "on_destroy" {
  description = "What becomes of the instances when the module is destroyed: `keep` or `restore`."
  type        = string
  default     = "keep"
  nullable    = false

  validation {
    condition     = contains(["keep", "restore"], var.on_destroy)
    error_message = "The on_destroy must be keep or restore."
  }
}
