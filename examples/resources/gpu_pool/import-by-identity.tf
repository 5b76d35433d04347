import {
  to = gpu_pool.render
  identity = {
    cluster = "azl-vdi" # or host, on a standalone host
    name    = "render"
  }
}
