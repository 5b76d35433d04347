# On a fleet in a file: two nodes of a Windows Server 2025 cluster with two A2 each, and a
# third host with an A16.
provider "gpu" {
  owner           = "module-tests"
  simulated_fleet = "tests/fleet.json"
}

variables {
  name  = "cad"
  hosts = ["hv01", "hv02"]
  gpu_ids = {
    hv01 = ["PCIROOT(16)#PCI(0000)#PCI(0000)", "PCIROOT(B0)#PCI(0200)#PCI(0000)"]
    hv02 = ["PCIROOT(16)#PCI(0000)#PCI(0000)", "PCIROOT(B0)#PCI(0200)#PCI(0000)"]
  }
  vms            = { "CAD-01" = {}, cad-02 = {} }
  allow_shutdown = true
  force_dismount = true
  on_destroy     = "mount_back"
}

run "each_VM_has_a_GPU" {
  assert {
    condition     = output.gpus == { total = 4, one_node_down = 2, taken = 2 }
    error_message = "The GPUs are ${jsonencode(output.gpus)}."
  }
  assert {
    condition     = output.vms["CAD-01"].host == "hv01" && length(output.vms["CAD-01"].gpu_ids) == 1
    error_message = "The VMs are ${jsonencode(output.vms)}."
  }
  assert {
    condition     = gpu_vm_assignment.this["cad-02"].high_memory_mapped_io_space_mib == 2 * 16384 + 512
    error_message = "A VM has ${gpu_vm_assignment.this["cad-02"].high_memory_mapped_io_space_mib} MiB for its GPU."
  }
}

run "a_VM_more_than_a_failover_leaves_room_for" {
  command = plan
  variables {
    vms = { cad-01 = {}, cad-02 = {}, cad-03 = {} }
  }
  expect_failures = [var.vms]
}

run "without_N_plus_1_it_fits" {
  command = plan
  variables {
    vms                = { "CAD-01" = {}, cad-02 = {}, cad-03 = {} }
    keep_failover_gpus = false
  }
  assert {
    condition     = output.gpus.taken == 3
    error_message = "The VMs take ${output.gpus.taken} GPUs."
  }
}

run "more_GPUs_than_a_node_has" {
  command = plan
  variables {
    vms = { cad-01 = { gpus = 3 } }
  }
  expect_failures = [var.vms]
}

run "an_unknown_VM" {
  command = plan
  variables {
    vms = { cad-01 = {}, cad-77 = {} }
  }
  expect_failures = [gpu_pool.this]
}

run "an_unknown_GPU" {
  command = plan
  variables {
    gpu_ids = {
      hv01 = ["PCIROOT(16)#PCI(0000)#PCI(0000)"]
      hv02 = ["PCIROOT(77)#PCI(0000)#PCI(0000)"]
    }
    vms = { cad-01 = {} }
  }
  expect_failures = [gpu_pool.this]
}

run "mixed_GPUs" {
  command = plan
  variables {
    hosts = ["hv01", "hv03"]
    gpu_ids = {
      hv01 = ["PCIROOT(16)#PCI(0000)#PCI(0000)"]
      hv03 = ["PCIROOT(16)#PCI(0000)#PCI(0000)"]
    }
    vms = { cad-01 = {} }
  }
  expect_failures = [gpu_pool.this]
}

run "unequal_nodes" {
  command = plan
  variables {
    gpu_ids = {
      hv01 = ["PCIROOT(16)#PCI(0000)#PCI(0000)", "PCIROOT(B0)#PCI(0200)#PCI(0000)"]
      hv02 = ["PCIROOT(16)#PCI(0000)#PCI(0000)"]
    }
    vms = { cad-01 = {} }
  }
  expect_failures = [var.gpu_ids]
}
