# Without any host or fleet: a mocked inventory has no hosts, so this is also how the module
# does while its host does not answer.
mock_provider "gpu" {}

variables {
  host          = "n1"
  vms           = ["v1"]
  high_mmio_mib = 33280
}

run "resources_are_as_the_variables" {
  variables {
    containers = { vm = "v2", sharing = "time_slicing", replicas = 3 }
  }
  assert {
    condition     = keys(gpu_vm_assignment.this) == ["v1", "v2"] && gpu_pool.this.hosts == toset(["n1"])
    error_message = "The VMs are ${jsonencode(keys(gpu_vm_assignment.this))}."
  }
  assert {
    condition     = yamldecode(output.device_plugin_config).sharing.timeSlicing.resources[0].replicas == 3
    error_message = "The device plugin is told ${output.device_plugin_config}"
  }
}

run "nothing_needs_a_GPU" {
  command = plan
  variables {
    vms = []
  }
  expect_failures = [var.containers]
}

run "one_VM_for_both" {
  command = plan
  variables {
    containers = { vm = "V1" }
  }
  expect_failures = [var.containers]
}

run "one_replica" {
  command = plan
  variables {
    containers = { vm = "v2", replicas = 1 }
  }
  expect_failures = [var.containers]
}

run "room_for_a_GPU_is_not_guessed" {
  command = plan
  variables {
    high_mmio_mib = null
  }
  expect_failures = [gpu_pool.this]
}
