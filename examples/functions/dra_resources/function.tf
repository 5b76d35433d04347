locals {
  # Usually gpu_partition_config.inference.gpus.
  gpus = {
    node01 = {
      gpus = {
        "GPU-2c0d8a52-7f2e-4c39-9a61-50f1d0a7c001" = { layout = "mig:1g.10gb@0+3g.40gb@4", instances = [{ profile = "1g.10gb" }, { profile = "3g.40gb" }] }
      }
    }
    node02 = {
      gpus = {
        "GPU-2c0d8a52-7f2e-4c39-9a61-50f1d0a7c002" = { layout = "mig:3g.40gb@0", instances = [{ profile = "3g.40gb" }] }
      }
    }
  }
}

output "manifests" {
  value = provider::gpu::dra_resources({ name = "inference", namespace = "ml", gpus = local.gpus })
}
