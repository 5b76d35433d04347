import {
  to = gpu_pool.render
  id = "hv01/render"
}
