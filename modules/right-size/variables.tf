variable "hosts" {
  description = "The hosts and their GPUs. The `name` is as the provider has it, the `id` of a GPU as its inventory has it, and the `model` as the guide on GPU models has it. A `cluster` is a failover cluster; `platform` is `hyperv` or `linux`."
  type = list(object({
    name     = string
    cluster  = optional(string)
    platform = optional(string)
    gpus     = list(object({ id = string, model = string }))
  }))
  default  = []
  nullable = false
}

variable "recording" {
  description = "A fleet as JSON in place of `hosts`: a recording (`gpu-agent record`), whose layouts are kept where they will do. It must not be read from a fleet that the run changes."
  type        = string
  default     = null

  validation {
    condition     = (var.recording == null) != (length(var.hosts) == 0)
    error_message = "Exactly one of hosts and recording says which GPUs there are."
  }
}

variable "workloads" {
  description = "What the GPUs are for. The `kind` is `gpu_p` (partitions with `vram_mib`), `mig` (instances of `profile`), `share` (`memory_mib`, and `threads` in percent) or `gpu` (whole GPUs, `gpus` on one host). The `vms` are virtual machines that get the partitions; `count` may be left out then."
  type = map(object({
    kind       = string
    count      = optional(number)
    vms        = optional(list(string), [])
    vram_mib   = optional(number)
    profile    = optional(string)
    memory_mib = optional(number)
    threads    = optional(number)
    gpus       = optional(number)
  }))
  nullable = false

  validation {
    condition     = length(var.workloads) > 0
    error_message = "The workloads must be one at least."
  }
  validation {
    condition     = alltrue([for workload in var.workloads : workload.count != null || length(workload.vms) > 0])
    error_message = "Each of the workloads has a count, or vms."
  }
  validation {
    condition     = alltrue([for workload in var.workloads : length(workload.vms) == 0 || workload.kind == "gpu_p"])
    error_message = "Only workloads of kind gpu_p have vms."
  }
  validation {
    condition     = alltrue([for workload in var.workloads : workload.count == null ? true : workload.count >= length(workload.vms)])
    error_message = "A workload has more vms than its count."
  }
}

variable "spare_hosts" {
  description = "How many hosts may fail while the layouts of the others still hold all workloads."
  type        = number
  default     = 0
  nullable    = false
}

variable "max_disruption" {
  description = "The most that a change may disturb: `none`, `process_restart`, `vm_restart` or `gpu_reset`."
  type        = string
  default     = "none"
  nullable    = false

  validation {
    condition     = contains(["none", "process_restart", "vm_restart", "gpu_reset"], var.max_disruption)
    error_message = "The max_disruption must be none, process_restart, vm_restart or gpu_reset."
  }
}

variable "allow_shutdown" {
  description = "Whether VMs that run may be shut down to get their partition, and are started again."
  type        = bool
  default     = false
  nullable    = false
}

variable "on_destroy" {
  description = "What becomes of the layouts when the module is destroyed: `keep` or `restore`."
  type        = string
  default     = "keep"
  nullable    = false

  validation {
    condition     = contains(["keep", "restore"], var.on_destroy)
    error_message = "The on_destroy must be keep or restore."
  }
}
