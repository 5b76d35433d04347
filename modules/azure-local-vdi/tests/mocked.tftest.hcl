# Without any host or fleet: a mocked inventory has no hosts, so this is also how the module
# does while hosts do not answer.
mock_provider "gpu" {}

variables {
  hosts = ["n1", "n2"]
  groups = {
    office = { desktops = ["D1", "d2"], vram_mib = 900 }
    cad    = { desktops = ["d3"], vram_mib = 2000 }
  }
  partition_count = 4
}

run "resources_are_as_the_variables" {
  assert {
    condition     = gpu_partition_config.this.gpu_p.partition_count == 4 && gpu_partition_config.this.hosts == toset(["n1", "n2"])
    error_message = "The layout is ${jsonencode(gpu_partition_config.this)}."
  }
  assert {
    condition     = toset(keys(gpu_vm_assignment.desktop)) == toset(["d1", "d2", "d3"])
    error_message = "The desktops are ${jsonencode(keys(gpu_vm_assignment.desktop))}."
  }
  assert {
    condition     = alltrue([for desktop in gpu_vm_assignment.desktop : !desktop.power.allow_shutdown])
    error_message = "Desktops may be shut down that nobody said this of."
  }
}

run "a_count_is_not_guessed" {
  command = plan
  variables {
    partition_count = null
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "no_hosts" {
  command = plan
  variables {
    hosts = []
  }
  expect_failures = [var.hosts]
}

run "a_count_of_zero" {
  command = plan
  variables {
    partition_count = 0
  }
  expect_failures = [var.partition_count]
}
