# Stacks, policies, keys and drift detection of Spacelift, by its own provider.
#
# A stack has one set of variables, for what it proposes and for what it applies. So there are two: one without a key, which
# plans pull requests on a recording and applies nothing, and one with the operator's key, which sees only main. What is merged
# runs there with that key as soon as it is planned, before anybody confirms the run: the review of the merge guards the key.
# Whoever may write to that stack in Spacelift can have it run a proposal of any commit, and with it read the key.
terraform {
  required_version = ">= 1.9"

  required_providers {
    spacelift = {
      source  = "spacelift-io/spacelift"
      version = ">= 1.0"
    }
  }
}

variable "operator_key" {
  description = "The operator's private key: Spacelift plans and applies with one set of variables."
  type        = string
  sensitive   = true
}

variable "worker_pool" {
  description = "The private workers that reach the hosts."
  type        = string
}

locals {
  # What makes the text that an approver reads is mounted: a branch does not have it.
  after_plan = [
    "terraform show -json spacelift.plan > gpu.custom.spacelift.json",
    "env -i PATH=\"$PATH\" jq -r -f /mnt/workspace/forecast.jq gpu.custom.spacelift.json",
  ]
}

# Pull requests, on Spacelift's own workers. The state is in the backend of the configuration, which lets this stack read it.
resource "spacelift_stack" "proposals" {
  name         = "gpus-proposals"
  repository   = "gpus"
  branch       = "main"
  project_root = "gpus/stack"
  autodeploy   = false
  manage_state = false
  after_plan   = local.after_plan
}

resource "spacelift_mounted_file" "recording" {
  stack_id      = spacelift_stack.proposals.id
  relative_path = "recorded.json"
  content       = filebase64("${path.module}/../stack/recorded.json")
}

resource "spacelift_environment_variable" "recording" {
  stack_id   = spacelift_stack.proposals.id
  name       = "GPU_INVENTORY_SNAPSHOT"
  value      = "/mnt/workspace/recorded.json"
  write_only = false
}

resource "spacelift_policy" "proposals" {
  name = "gpus-proposals"
  type = "GIT_PUSH"
  body = <<-REGO
    package spacelift
    propose { not is_null(input.pull_request) }
    ignore { not propose }
  REGO
}

resource "spacelift_policy_attachment" "proposals" {
  policy_id = spacelift_policy.proposals.id
  stack_id  = spacelift_stack.proposals.id
}

# What is merged.
resource "spacelift_stack" "gpus" {
  name                 = "gpus"
  repository           = "gpus"
  branch               = "main"
  project_root         = "gpus/stack"
  worker_pool_id       = var.worker_pool
  autodeploy           = false # somebody confirms each run
  enable_local_preview = false # a preview runs somebody's own files with the key
  manage_state         = false
  after_plan           = local.after_plan
}

resource "spacelift_policy" "merged" {
  name = "gpus-merged"
  type = "GIT_PUSH"
  body = <<-REGO
    package spacelift
    track { input.push.branch == input.stack.branch }
    ignore { not track }
  REGO
}

resource "spacelift_policy_attachment" "merged" {
  policy_id = spacelift_policy.merged.id
  stack_id  = spacelift_stack.gpus.id
}

resource "spacelift_environment_variable" "user" {
  stack_id   = spacelift_stack.gpus.id
  name       = "GPU_SSH_USER"
  value      = "gpu-operator"
  write_only = false
}

resource "spacelift_environment_variable" "key" {
  stack_id   = spacelift_stack.gpus.id
  name       = "GPU_SSH_PRIVATE_KEY"
  value      = var.operator_key
  write_only = true
}

resource "spacelift_mounted_file" "forecast" {
  for_each = { proposals = spacelift_stack.proposals.id, gpus = spacelift_stack.gpus.id }

  stack_id      = each.value
  relative_path = "forecast.jq"
  content       = filebase64("${path.module}/../forecast.jq")
}

# The policy for OPA, with the plan's JSON where Spacelift puts what hooks leave.
resource "spacelift_policy" "gpus" {
  name = "gpus"
  type = "PLAN"
  body = replace(
    replace(file("${path.module}/../../policy/gpu.rego"), "package main", "package spacelift"),
    "input.", "input.third_party_metadata.custom.gpu.",
  )
}

resource "spacelift_policy_attachment" "gpus" {
  for_each = { proposals = spacelift_stack.proposals.id, gpus = spacelift_stack.gpus.id }

  policy_id = spacelift_policy.gpus.id
  stack_id  = each.value
}

resource "spacelift_drift_detection" "gpus" {
  stack_id  = spacelift_stack.gpus.id
  reconcile = false
  schedule  = ["17 2 * * *"]
}
