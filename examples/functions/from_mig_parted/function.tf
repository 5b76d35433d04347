locals {
  # Usually file("config.yaml"), or the data of the MIG manager's ConfigMap.
  config = <<-EOT
    version: v1
    mig-configs:
      all-balanced:
        # H100 with 80 GB, A100 with 80 GB
        - device-filter: ["0x233010DE", "0x20B210DE"]
          devices: all
          mig-enabled: true
          mig-devices:
            "1g.10gb": 2
            "2g.20gb": 1
            "3g.40gb": 1
        # A30
        - device-filter: "0x20B710DE"
          devices: all
          mig-enabled: true
          mig-devices:
            "1g.6gb": 2
            "2g.12gb": 1
  EOT

  balanced = provider::gpu::from_mig_parted(local.config, "all-balanced")
}

# Which models get which numbers of instances.
output "layouts" {
  value = [for e in local.balanced : { models = e.models, profiles = e.profiles } if e.mig_enabled]
}
