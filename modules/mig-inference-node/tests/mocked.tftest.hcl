# Without any host or fleet: a mocked inventory has no hosts, so this is also how the module
# does while hosts do not answer.
mock_provider "gpu" {}

variables {
  hosts     = ["n1", "n2"]
  workloads = { llm = { profile = "3g.40gb" }, chat = { profile = "3g.40gb" } }
}

run "resources_are_as_the_variables" {
  assert {
    condition     = gpu_partition_config.this.mig.profiles == tomap({ "3g.40gb" = 2 }) && gpu_partition_config.this.max_disruption == "none"
    error_message = "The layout is ${jsonencode(gpu_partition_config.this)}."
  }
  assert {
    condition     = sort(keys(output.node_labels)) == tolist(["n1", "n2"])
    error_message = "The labels are ${jsonencode(output.node_labels)}."
  }
}

run "no_instances" {
  command = plan
  variables {
    workloads = { llm = { profile = "3g.40gb", count = 0 } }
  }
  expect_failures = [var.workloads]
}

run "a_name_that_is_no_label" {
  command = plan
  variables {
    name = "Inference nodes"
  }
  expect_failures = [var.name]
}

run "a_node_that_is_no_host" {
  command = plan
  variables {
    node_names = { n9 = "gpu-node-09" }
  }
  expect_failures = [var.node_names]
}
