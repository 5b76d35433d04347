locals {
  slurm = provider::gpu::slurm_gres([
    {
      name = "gpu[01-02]"
      gpus = [
        { device = 0, type = "a100", cores = "0-31" },
        { device = 1, type = "a100", cores = "32-63", mps = 100 },
        { device = 2, type = "t4" },
      ]
    },
    {
      name        = "gpu03"
      auto_detect = "off"
      gpus = [{
        device = 0
        mig = [
          { type = "3g.40gb", capabilities = [21, 22] },
          { type = "3g.40gb", capabilities = [30, 31] },
        ]
      }]
    },
  ])
}

output "gres_conf" {
  value = local.slurm.conf
}

# What slurm.conf says must agree.
output "slurm_conf" {
  value = concat(
    ["GresTypes=${local.slurm.gres_types}"],
    [for node, gres in local.slurm.gres : "NodeName=${node} Gres=${gres}"],
  )
}
