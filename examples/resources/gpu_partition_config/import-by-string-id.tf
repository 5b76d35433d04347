import {
  to = gpu_partition_config.vdi
  id = "hv01,hv02"
}
