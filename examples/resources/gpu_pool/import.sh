# One host that has the pool, and the pool's name.
terraform import gpu_pool.render hv01/render
