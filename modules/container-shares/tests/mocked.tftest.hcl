# Without any host or fleet: a mocked inventory has no hosts, so this is also how the module
# does while hosts do not answer.
mock_provider "gpu" {}

variables {
  hosts  = ["n1"]
  uid    = 1000
  teams  = { search = { gpus = 1 } }
  shares = { rank = { team = "search", memory_mib = 1024, threads = 50 } }
}

run "resources_are_as_the_variables" {
  assert {
    condition     = gpu_share.this["rank"].memory.limit_mib == 1024 && gpu_share.this["rank"].owner_label == "search"
    error_message = "The share is ${jsonencode(gpu_share.this["rank"])}."
  }
  assert {
    condition     = gpu_pool.this.quotas["search"].gpus == 1 && gpu_partition_config.this.mps.uid == 1000
    error_message = "The pool is ${jsonencode(gpu_pool.this)}."
  }
}

run "a_team_that_nobody_has" {
  command = plan
  variables {
    shares = { rank = { team = "vision", memory_mib = 1024, threads = 50 } }
  }
  expect_failures = [var.shares]
}

run "more_than_a_GPU" {
  command = plan
  variables {
    shares = { rank = { team = "search", memory_mib = 1024, threads = 150 } }
  }
  expect_failures = [var.shares]
}

run "more_memory_than_the_team_may_have" {
  command = plan
  variables {
    teams = { search = { gpus = 1, memory_mib = 512 } }
  }
  expect_failures = [var.shares]
}

run "a_name_that_CDI_does_not_take" {
  command = plan
  variables {
    shares = { "rank of search" = { team = "search", memory_mib = 1024, threads = 50 } }
  }
  expect_failures = [var.shares]
}

run "a_user_that_cannot_be" {
  command = plan
  variables {
    uid = -1
  }
  expect_failures = [var.uid]
}
