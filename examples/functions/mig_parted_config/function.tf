output "config" {
  value = provider::gpu::mig_parted_config({
    # All GPUs alike.
    inference = { "1g.10gb" = 7 }

    # A layout for each model.
    balanced = [
      {
        models   = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"]
        profiles = { "1g.10gb" = 2, "2g.20gb" = 1, "3g.40gb" = 1 }
      },
      {
        models   = ["NVIDIA A30"]
        profiles = { "1g.6gb" = 2, "2g.12gb" = 1 }
      },
    ]

    # The first GPU whole, the second in halves.
    training = [
      { devices = [0], mig_enabled = false },
      { devices = [1], profiles = { "3g.40gb" = 2 } },
    ]
  })
}
