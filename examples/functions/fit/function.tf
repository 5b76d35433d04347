locals {
  # Four desktops of a node must find a place on the other one when it fails.
  fit = provider::gpu::fit(
    [
      { name = "hv01", cluster = "vdi", gpus = [{ id = "PCIROOT(16)#PCI(0000)#PCI(0000)", model = "A2" }] },
      { name = "hv02", cluster = "vdi", gpus = [{ id = "PCIROOT(16)#PCI(0000)#PCI(0000)", model = "A2" }] },
      { name = "hgx01", gpus = [for n in [0, 1, 2, 3] : { id = "gpu${n}", model = "H100 80GB HBM3" }] },
      { name = "hgx02", gpus = [for n in [0, 1, 2, 3] : { id = "gpu${n}", model = "H100 80GB HBM3" }] },
    ],
    [
      { name = "desks", count = 4, kind = "gpu_p", vram_mib = 3500 },
      { name = "llm", count = 2, kind = "mig", profile = "3g.40gb" },
      { name = "jupyter", count = 4, kind = "share", memory_mib = 16000, threads = 25 },
    ],
    { spare_hosts = 1 },
  )
}

output "fits" {
  value = local.fit.fits
}

# for_each of gpu_partition_config takes local.fit.configs.
output "layouts" {
  value = { for name, config in local.fit.configs : name => config.gpu_ids }
}

# What six desktops lack on one A2.
output "missing" {
  value = provider::gpu::fit(
    [{ name = "hv01", gpus = [{ id = "a", model = "A2" }] }],
    [{ name = "desks", count = 6, kind = "gpu_p", vram_mib = 3500 }], {},
  ).reason
}
