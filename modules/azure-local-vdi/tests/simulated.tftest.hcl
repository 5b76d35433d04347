# On a fleet in a file: two nodes with an A2 each, and a third host with an A16.
provider "gpu" {
  owner           = "module-tests"
  simulated_fleet = "tests/fleet.json"
}

variables {
  hosts = ["hv01", "hv02"]
  groups = {
    office = { desktops = ["avd-01", "avd-02", "avd-05"], vram_mib = 900 }
    cad    = { desktops = ["AVD-07", "avd-08"], vram_mib = 1800 }
  }
  allow_shutdown = true
  on_destroy     = "restore"
}

run "the_group_that_needs_most_decides_the_size" {
  assert {
    condition     = output.partition_count == 8 && output.partition_vram_mib >= 1800
    error_message = "Each GPU has ${output.partition_count} partitions of ${output.partition_vram_mib} MiB."
  }
  assert {
    condition     = output.seats == { total = 16, one_node_down = 8, taken = 5 }
    error_message = "The seats are ${jsonencode(output.seats)}."
  }
  assert {
    condition     = output.desktops["cad"]["AVD-07"] == "hv02" && output.desktops["office"]["avd-05"] == "hv01"
    error_message = "The desktops are on ${jsonencode(output.desktops)}."
  }
  assert {
    condition     = sort(output.forecast.restarted) == tolist(["avd-01", "avd-02", "avd-07", "avd-08"])
    error_message = "The plan says that ${jsonencode(output.forecast.restarted)} are restarted."
  }
}

run "a_desktop_more" {
  variables {
    groups = { office = { desktops = ["avd-01", "avd-02", "avd-05", "avd-07", "avd-08", "avd-10"], vram_mib = 1800 } }
  }
  assert {
    condition     = length(output.forecast.restarted) == 0 && output.seats.taken == 6
    error_message = "A desktop that is off disturbs ${jsonencode(output.forecast.restarted)}."
  }
}

run "more_desktops_than_seats" {
  command = plan
  variables {
    groups = { office = { desktops = ["avd-01", "avd-02", "avd-05"], vram_mib = 7000 } }
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "more_memory_than_a_GPU_has" {
  command = plan
  variables {
    groups = { cad = { desktops = ["avd-01"], vram_mib = 65536 } }
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "an_unknown_VM" {
  command = plan
  variables {
    groups = { office = { desktops = ["avd-01", "avd-77"], vram_mib = 900 } }
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "mixed_GPUs" {
  command = plan
  variables {
    hosts = ["hv01", "hv02", "hv03"]
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "a_model_that_a_host_lacks" {
  command = plan
  variables {
    model = "A16"
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "a_count_that_is_too_high" {
  command = plan
  variables {
    partition_count = 16
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "a_desktop_in_two_groups" {
  command = plan
  variables {
    groups = {
      office = { desktops = ["avd-01"], vram_mib = 900 }
      cad    = { desktops = ["AVD-01"], vram_mib = 900 }
    }
  }
  expect_failures = [var.groups]
}

run "a_desktop_without_memory" {
  command = plan
  variables {
    groups = { office = { desktops = ["avd-01"], vram_mib = 0 } }
  }
  expect_failures = [var.groups]
}
