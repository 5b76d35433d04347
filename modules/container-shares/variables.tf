variable "name" {
  description = "Name of the layout and of the pool on the hosts."
  type        = string
  default     = "shares"
  nullable    = false

  validation {
    condition     = trimspace(var.name) != ""
    error_message = "The name must not be empty."
  }
}

variable "hosts" {
  description = "The Linux hosts, as the provider names them."
  type        = set(string)
  nullable    = false

  validation {
    condition     = length(var.hosts) > 0
    error_message = "The hosts must be one at least."
  }
}

variable "uid" {
  description = "Id of the user whose processes and containers compute on the GPUs: MPS serves one user at a time."
  type        = number
  nullable    = false

  validation {
    condition     = var.uid >= 0 && floor(var.uid) == var.uid
    error_message = "The uid must be the id of a user, a whole number."
  }
}

variable "teams" {
  description = "What the shares of each team may take together: GPUs (such as 1.5), number of shares, and memory in MiB."
  type = map(object({
    gpus       = number
    shares     = optional(number)
    memory_mib = optional(number)
  }))
  nullable = false

  validation {
    condition     = length(var.teams) > 0 && alltrue([for team in var.teams : team.gpus > 0])
    error_message = "The teams must be one at least, and the gpus of each above 0."
  }
}

variable "shares" {
  description = "The shares, by name: the team that each counts for, its memory in MiB, and the percentage of a GPU's multiprocessors that each of its processes may use."
  type = map(object({
    team       = string
    memory_mib = number
    threads    = number
  }))
  nullable = false

  validation {
    condition     = alltrue([for name in keys(var.shares) : can(regex("^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$", name))])
    error_message = "The names of shares are letters, digits and hyphens."
  }
  validation {
    condition     = alltrue([for share in var.shares : share.threads > 0 && share.threads <= 100 && share.memory_mib > 0])
    error_message = "The shares have threads above 0 and at most 100, and memory_mib above 0: ${join(", ", [for name, share in var.shares : name if share.threads <= 0 || share.threads > 100 || share.memory_mib <= 0])}."
  }
  validation {
    condition     = alltrue([for share in var.shares : contains(keys(var.teams), share.team)])
    error_message = "The shares name teams that teams does not have: ${join(", ", distinct([for share in var.shares : share.team if !contains(keys(var.teams), share.team)]))}."
  }
  validation {
    condition = alltrue([
      for name, team in var.teams : sum(concat([0], [for share in var.shares : share.threads if share.team == name])) <= team.gpus * 100
    ])
    error_message = "The shares of a team have more threads than the gpus of the team: ${join(", ", [
      for name, team in var.teams : "${name} has ${sum(concat([0], [for share in var.shares : share.threads if share.team == name]))}% of ${team.gpus * 100}%"
      if sum(concat([0], [for share in var.shares : share.threads if share.team == name])) > team.gpus * 100
    ])}."
  }
  validation {
    condition = alltrue([
      for name, team in var.teams : team.memory_mib == null ? true : sum(concat([0], [for share in var.shares : share.memory_mib if share.team == name])) <= team.memory_mib
    ])
    error_message = "The shares of a team have more memory than the memory_mib of the team."
  }
  validation {
    condition = alltrue([
      for name, team in var.teams : team.shares == null ? true : length([for share in var.shares : share if share.team == name]) <= team.shares
    ])
    error_message = "A team has more shares than its number in teams."
  }
}

variable "model" {
  description = "Model of the GPUs, such as `L40S`. Needed only where the hosts have GPUs of several models."
  type        = string
  default     = null
}

variable "max_disruption" {
  description = "The most that a change may disturb: `none` or `process_restart`, which terminates what computes through MPS."
  type        = string
  default     = "none"
  nullable    = false

  validation {
    condition     = contains(["none", "process_restart"], var.max_disruption)
    error_message = "The max_disruption must be none or process_restart."
  }
}
