# On a fleet in a file: two hosts with two L40S each, and one with an L4.
provider "gpu" {
  owner           = "module-tests"
  simulated_fleet = "tests/fleet.json"
}

variables {
  hosts = ["infer01", "infer02"]
  uid   = 1000
  teams = {
    search = { gpus = 2.5, shares = 8 }
    vision = { gpus = 1.5, memory_mib = 73728 }
  }
  shares = {
    search-rank   = { team = "search", memory_mib = 24576, threads = 50 }
    search-embed  = { team = "search", memory_mib = 12288, threads = 25 }
    vision-detect = { team = "vision", memory_mib = 36864, threads = 75 }
  }
}

run "each_share_has_a_host_and_a_device" {
  assert {
    condition     = alltrue([for share in output.shares : contains(["infer01", "infer02"], share.host)])
    error_message = "The shares are ${jsonencode(output.shares)}."
  }
  assert {
    condition     = output.shares["search-rank"].run_options == "--user 1000 --device gpufleet.com/share=search-rank"
    error_message = "A container is run with ${output.shares["search-rank"].run_options}."
  }
  assert {
    condition     = output.environment["vision-detect"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "75"
    error_message = "A process is run with ${jsonencode(output.environment["vision-detect"])}."
  }
  assert {
    condition     = output.granted == { gpus = 4, teams = 4 }
    error_message = "The teams have ${jsonencode(output.granted)}."
  }
}

run "more_GPUs_for_teams_than_the_hosts_have" {
  command = plan
  variables {
    teams = { search = { gpus = 3.5 }, vision = { gpus = 1.5 } }
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "more_memory_than_a_GPU_has" {
  command = plan
  variables {
    shares = { search-rank = { team = "search", memory_mib = 65536, threads = 50 } }
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "mixed_GPUs" {
  command = plan
  variables {
    hosts = ["infer01", "infer02", "infer09"]
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "a_model_that_a_host_lacks" {
  command = plan
  variables {
    model = "L4"
  }
  expect_failures = [data.gpu_change_forecast.this]
}

run "more_shares_than_a_team_may_have" {
  command = plan
  variables {
    teams = { search = { gpus = 2.5, shares = 1 }, vision = { gpus = 1.5 } }
  }
  expect_failures = [var.shares]
}

run "more_threads_than_a_team_has_GPUs" {
  command = plan
  variables {
    teams = { search = { gpus = 0.5 }, vision = { gpus = 1.5 } }
  }
  expect_failures = [var.shares]
}
