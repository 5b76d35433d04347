resource "gpu_pool" "render" {
  name     = "render"
  members  = { hv01 = ["PCIROOT(B0)#PCI(0200)#PCI(0000)"] }
  dismount = { force = true }
}

# What the pool has on that host now, and how much of it is free.
data "gpu_pool" "render" {
  name = gpu_pool.render.name
  host = "hv01"

  # The name is known before the pool is there.
  depends_on = [gpu_pool.render]
}

output "pool" {
  value = data.gpu_pool.render
}
