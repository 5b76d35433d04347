# Each GPU of a node for four pods in turn, each of its small MIG devices for two.
output "time_slicing" {
  value = provider::gpu::device_plugin_config({
    mig_strategy = "mixed"
    time_slicing = {
      resources = {
        "nvidia.com/gpu"         = 4
        "nvidia.com/mig-1g.10gb" = 2
      }
      rename_by_default              = true
      fail_requests_greater_than_one = true
    }
  })
}

# Each GPU for ten pods at once, with a tenth of its memory and of its threads each.
output "mps" {
  value = provider::gpu::device_plugin_config({
    mps = { resources = { "nvidia.com/gpu" = 10 } }
  })
}
