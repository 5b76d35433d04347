# Without any fleet: what the configuration itself says.
mock_provider "gpu" {}

run "a_partition_for_each_desktop" {
  command = plan

  variables {
    desktops = ["desk-01", "desk-02"]
  }

  assert {
    condition     = length(gpu_vm_assignment.desktop) == 2
    error_message = "each desktop gets an assignment"
  }

  assert {
    condition     = gpu_vm_assignment.desktop["desk-01"].power.allow_shutdown
    error_message = "a desktop that runs may be shut down for it"
  }
}
