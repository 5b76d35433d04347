# On a simulated fleet: what a host makes of it. The test destroys what it has applied.
provider "gpu" {
  owner           = "test"
  simulated_fleet = "fleet.json"
}

run "desktops_get_partitions" {
  variables {
    desktops = ["desk-01", "desk-02"]
  }

  assert {
    condition     = alltrue([for d in gpu_vm_assignment.desktop : !d.pending && length(d.drift) == 0])
    error_message = "every desktop has what is declared"
  }

  assert {
    condition     = gpu_partition_config.vdi.partition_vram_mib > 3000
    error_message = "a quarter of an A2 is enough for a desktop"
  }
}

run "a_second_plan_changes_nothing" {
  command = plan

  variables {
    desktops = ["desk-01", "desk-02"]
  }

  assert {
    condition     = output.with_a_partition == ["desk-01", "desk-02"]
    error_message = "the desktops are known at plan"
  }
}
