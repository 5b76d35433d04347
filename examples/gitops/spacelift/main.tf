# Stack, policy, keys and drift detection of Spacelift, by its own provider.
terraform {
  required_providers {
    spacelift = {
      source = "spacelift-io/spacelift"
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

resource "spacelift_stack" "gpus" {
  name           = "gpus"
  repository     = "gpus"
  branch         = "main"
  project_root   = "gpus/stack"
  worker_pool_id = var.worker_pool
  autodeploy     = false # somebody confirms each run
  manage_state   = true

  # The JSON goes to the policy, and the forecast into the log of the run.
  after_plan = [
    "terraform show -json spacelift.plan > gpu.custom.spacelift.json",
    "jq -r -f ../forecast.jq gpu.custom.spacelift.json",
  ]
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
  policy_id = spacelift_policy.gpus.id
  stack_id  = spacelift_stack.gpus.id
}

resource "spacelift_drift_detection" "gpus" {
  stack_id  = spacelift_stack.gpus.id
  reconcile = false
  schedule  = ["17 2 * * *"]
}
