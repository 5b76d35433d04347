# On a fleet in a file: a host with two H100, and one with an H200.
provider "gpu" {
  owner           = "module-tests"
  simulated_fleet = "tests/fleet.json"
}

variables {
  hosts = ["hgx01"]
  workloads = {
    llm     = { profile = "3g.40gb" }
    rerank  = { profile = "2g.20gb" }
    embed   = { profile = "1g.10gb" }
    whisper = { profile = "1g.10gb" }
  }
  quiesce_units = ["nvidia-dcgm", "nvidia-persistenced"]
  on_destroy    = "restore"
}

run "workloads_of_one_profile_add_up" {
  assert {
    condition     = output.profiles == { "3g.40gb" = 1, "2g.20gb" = 1, "1g.10gb" = 2 }
    error_message = "The profiles are ${jsonencode(output.profiles)}."
  }
  assert {
    condition     = alltrue([for devices in output.devices["hgx01"] : length(devices) == 4]) && length(output.devices["hgx01"]) == 2
    error_message = "The devices are ${jsonencode(output.devices)}."
  }
  assert {
    condition     = output.resources["whisper"] == "nvidia.com/mig-1g.10gb"
    error_message = "A pod asks for ${output.resources["whisper"]}."
  }
  assert {
    condition     = yamldecode(yamldecode(output.config_map).data["inference"]).flags.migStrategy == "mixed"
    error_message = "The ConfigMap is ${output.config_map}"
  }
  assert {
    condition     = output.node_labels == { hgx01 = { "nvidia.com/device-plugin.config" = "inference" } }
    error_message = "The labels are ${jsonencode(output.node_labels)}."
  }
}

run "more_instances_of_a_profile_than_a_GPU_takes" {
  command = plan
  variables {
    workloads = { llm = { profile = "3g.40gb", count = 3 } }
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "more_instances_together_than_a_GPU_takes" {
  command = plan
  variables {
    workloads = {
      llm    = { profile = "3g.40gb", count = 2 }
      rerank = { profile = "2g.20gb" }
    }
  }
  expect_failures = [gpu_partition_config.this]
}

run "an_unknown_profile" {
  command = plan
  variables {
    workloads = { llm = { profile = "5g.60gb" } }
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "mixed_GPUs" {
  command = plan
  variables {
    hosts = ["hgx01", "hgx09"]
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "single_needs_one_profile" {
  command = plan
  variables {
    mig_strategy = "single"
  }
  expect_failures = [var.mig_strategy]
}

run "single" {
  command = plan
  variables {
    workloads    = { chat = { profile = "3g.40gb" }, code = { profile = "3g.40gb" } }
    mig_strategy = "single"
    node_names   = { hgx01 = "gpu-node-01" }
  }
  assert {
    condition     = output.resources == { chat = "nvidia.com/gpu", code = "nvidia.com/gpu" } && keys(output.node_labels) == ["gpu-node-01"]
    error_message = "Pods ask for ${jsonencode(output.resources)} on ${jsonencode(output.node_labels)}."
  }
}
