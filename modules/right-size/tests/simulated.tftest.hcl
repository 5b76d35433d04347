# On a fleet in a file: two Linux hosts with two H100 each, and a cluster of two Hyper-V hosts with an A2 each.
provider "gpu" {
  owner           = "module-tests"
  simulated_fleet = "tests/fleet.json"
}

variables {
  hosts = [
    {
      name = "hgx01"
      gpus = [
        { id = "GPU-00000000-0000-4000-8000-000001000001", model = "H100 80GB HBM3" },
        { id = "GPU-00000000-0000-4000-8000-000001000002", model = "H100 80GB HBM3" },
      ]
    },
    {
      name = "hgx02"
      gpus = [{ id = "GPU-00000000-0000-4000-8000-000002000001", model = "H100 80GB HBM3" }]
    },
    { name = "hv01", cluster = "vdi", gpus = [{ id = "PCIROOT(16)#PCI(0000)#PCI(0000)", model = "A2" }] },
    { name = "hv02", cluster = "vdi", gpus = [{ id = "PCIROOT(16)#PCI(0000)#PCI(0000)", model = "A2" }] },
  ]
  on_destroy = "restore"
}

run "instances_and_shares" {
  variables {
    workloads = {
      llm     = { kind = "mig", count = 1, profile = "3g.40gb" }
      embed   = { kind = "mig", count = 3, profile = "1g.10gb" }
      jupyter = { kind = "share", count = 2, memory_mib = 16000, threads = 25 }
    }
  }
  assert {
    condition     = length(gpu_partition_config.this) == 2 && length(gpu_share.this) == 2
    error_message = "The configs are ${jsonencode(keys(gpu_partition_config.this))}."
  }
  assert {
    condition     = length(output.unused) == 3
    error_message = "Unused are ${jsonencode(output.unused)}."
  }
  assert {
    condition = toset([for instance in gpu_partition_config.this["h100-80gb-hbm3-3-x-1g-10gb-1-x-3g-40gb"].gpus["hgx01"].gpus[output.placements["llm"][0].gpu_id].instances :
      "${instance.profile}@${instance.start}"
    ]) == toset([for at in concat(output.placements["llm"], output.placements["embed"]) : at.unit])
    error_message = "The host has other instances than fit said."
  }
}

run "desktops_with_a_node_to_spare" {
  variables {
    spare_hosts = 1
    workloads = {
      avd = { kind = "gpu_p", vram_mib = 3500, vms = ["avd-01", "avd-02", "avd-03"], count = 4 }
    }
  }
  assert {
    condition     = alltrue([for layout in values(output.layouts) : alltrue([for gpu in layout : gpu.gpu_p.partition_count == 4])]) && length(output.layouts) == 2
    error_message = "The layouts are ${jsonencode(output.layouts)}."
  }
  assert {
    condition     = length(gpu_vm_assignment.this) == 3 && alltrue([for config in gpu_partition_config.this : config.partition_vram_mib >= 3500])
    error_message = "The partitions have ${jsonencode({ for name, config in gpu_partition_config.this : name => config.partition_vram_mib })}."
  }
}

run "one_desktop_too_many" {
  command = plan
  variables {
    spare_hosts = 1
    workloads   = { avd = { kind = "gpu_p", vram_mib = 3500, count = 5 } }
  }
  expect_failures = [gpu_partition_config.this, output.layouts]
}

run "the_fleet_as_it_was_recorded" {
  command = plan
  variables {
    hosts     = []
    recording = "{\"format\":\"gpu-fleet/v1\",\"hosts\":[{\"name\":\"hgx02\",\"platform\":\"linux\",\"gpus\":[{\"id\":\"GPU-00000000-0000-4000-8000-000002000001\",\"model\":\"NVIDIA H100 80GB HBM3\",\"vendor\":\"NVIDIA\",\"vram\":85899345920,\"mig\":{\"enabled\":false}}]}]}"
    workloads = { llm = { kind = "mig", count = 2, profile = "3g.40gb" } }
  }
  assert {
    condition     = output.layouts["hgx02"]["GPU-00000000-0000-4000-8000-000002000001"].mig.profiles == tomap({ "3g.40gb" = 2 })
    error_message = "The layouts are ${jsonencode(output.layouts)}."
  }
}
