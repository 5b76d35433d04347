locals {
  slurm = provider::gpu::slurm_gres([
    {
      name = "gpu[01-02]"
      gpus = [
        { device = 0, type = "a100", cores = "0-31" },
        { device = 1, type = "a100", cores = "32-63", mps = 100 },
        { device = 2, type = "t4", cores = "32-63" },
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

# What slurm.conf says must agree. cgroup.conf is heeded by the plugin task/cgroup.
output "slurm_conf" {
  value = concat(
    ["GresTypes=${local.slurm.gres_types}", "TaskPlugin=task/cgroup"],
    [for node, gres in local.slurm.gres : "NodeName=${node} Gres=${gres}"],
  )
}

output "cgroup_conf" {
  value = local.slurm.cgroup_conf
}

# Another cluster, where up to four jobs share a GPU without limits.
output "notebooks" {
  value = provider::gpu::slurm_gres([
    { name = "nb01", gpus = [{ device = 0, type = "t4", shards = 4 }, { device = 1, type = "t4" }] },
  ])
}
