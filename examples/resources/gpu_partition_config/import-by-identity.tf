import {
  to = gpu_partition_config.vdi
  identity = {
    id = "vdi"
  }
}
