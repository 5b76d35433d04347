# On a fleet in a file: a host with two T4, and one with a T4 and an A2.
provider "gpu" {
  owner           = "module-tests"
  simulated_fleet = "tests/fleet.json"
}

variables {
  host           = "edge01"
  allow_shutdown = true
  force_dismount = true
  on_destroy     = "mount_back"
}

run "two_VMs" {
  variables {
    vms = ["vision-01", "vision-02"]
  }
  assert {
    condition     = length(output.gpu_ids) == 2 && length(output.gpu_ids["vision-01"]) == 1
    error_message = "The VMs have ${jsonencode(output.gpu_ids)}."
  }
  assert {
    condition     = output.device_plugin_config == null
    error_message = "There are no containers, but ${jsonencode(output.device_plugin_config)}"
  }
}

run "one_VM_and_containers" {
  variables {
    vms        = ["vision-01"]
    containers = { vm = "kube-01", replicas = 6 }
  }
  assert {
    condition     = contains(keys(output.gpu_ids), "kube-01") && !contains(keys(output.gpu_ids), "vision-02")
    error_message = "The VMs have ${jsonencode(output.gpu_ids)}."
  }
  assert {
    condition     = yamldecode(output.device_plugin_config).sharing.mps.resources[0].replicas == 6
    error_message = "The device plugin is told ${output.device_plugin_config}"
  }
}

run "more_VMs_than_GPUs" {
  command = plan
  variables {
    vms        = ["vision-01", "vision-02"]
    containers = { vm = "kube-01" }
  }
  expect_failures = [gpu_pool.this]
}

run "an_unknown_VM" {
  command = plan
  variables {
    vms = ["vision-01", "vision-77"]
  }
  expect_failures = [gpu_pool.this]
}

run "mixed_GPUs" {
  command = plan
  variables {
    host = "edge02"
    vms  = ["vision-01"]
  }
  expect_failures = [gpu_pool.this]
}
