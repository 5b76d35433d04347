# Without any host or fleet: a mocked inventory has no hosts, so this is also how the module
# does while hosts do not answer.
mock_provider "gpu" {}

variables {
  name          = "cad"
  hosts         = ["n1", "n2"]
  gpu_ids       = { n1 = ["g1", "g2"], n2 = ["g3", "g4"] }
  vms           = { v1 = { gpus = 2 } }
  high_mmio_mib = 66048
}

run "resources_are_as_the_variables" {
  assert {
    condition     = gpu_pool.this.members["n2"] == toset(["g3", "g4"]) && !gpu_pool.this.dismount.force
    error_message = "The pool is ${jsonencode(gpu_pool.this)}."
  }
  assert {
    condition     = gpu_vm_assignment.this["v1"].pool.count == 2 && gpu_vm_assignment.this["v1"].high_memory_mapped_io_space_mib == 66048
    error_message = "The assignment is ${jsonencode(gpu_vm_assignment.this["v1"])}."
  }
}

run "room_for_a_GPU_is_not_guessed" {
  command = plan
  variables {
    high_mmio_mib = null
  }
  expect_failures = [gpu_pool.this]
}

run "GPUs_of_a_host_that_is_not_named" {
  command = plan
  variables {
    gpu_ids = { n1 = ["g1", "g2"], n9 = ["g3", "g4"] }
  }
  expect_failures = [var.gpu_ids]
}

run "half_a_GPU" {
  command = plan
  variables {
    vms = { v1 = { gpus = 0.5 } }
  }
  expect_failures = [var.vms]
}
