# Without any host or fleet: fit asks none, so that the layouts are those of a real run.
mock_provider "gpu" {}

variables {
  hosts = [{
    name = "n1"
    gpus = [{ id = "a", model = "A100-SXM4-40GB" }, { id = "b", model = "A100-SXM4-40GB" }]
  }]
}

run "the_fewest_GPUs" {
  variables {
    workloads = {
      large = { kind = "mig", count = 1, profile = "4g.20gb" }
      small = { kind = "mig", count = 3, profile = "1g.5gb" }
    }
  }
  assert {
    condition     = length(gpu_partition_config.this) == 1 && length(output.unused) == 1
    error_message = "The layouts are ${jsonencode(output.layouts)}."
  }
  assert {
    condition     = output.placements["large"][0].unit == "4g.20gb@0" && output.remaining["gpu"] == 1
    error_message = "The places are ${jsonencode(output.placements)}."
  }
}

run "one_instance_too_many" {
  command = plan
  variables {
    workloads = { large = { kind = "mig", count = 3, profile = "4g.20gb" } }
  }
  expect_failures = [gpu_partition_config.this, output.layouts]
}

run "no_hosts" {
  command = plan
  variables {
    hosts     = []
    workloads = { large = { kind = "mig", count = 1, profile = "4g.20gb" } }
  }
  expect_failures = [var.recording]
}

run "a_share_has_no_VMs" {
  command = plan
  variables {
    workloads = { some = { kind = "share", memory_mib = 100, vms = ["v"] } }
  }
  expect_failures = [var.workloads]
}

run "neither_a_count_nor_VMs" {
  command = plan
  variables {
    workloads = { some = { kind = "share", memory_mib = 100 } }
  }
  expect_failures = [var.workloads]
}
