resource "gpu_partition_config" "inference" {
  name  = "inference"
  hosts = ["infer01", "infer02"]
  mps   = { uid = 1000 }
}

resource "gpu_pool" "inference" {
  name   = "inference"
  hosts  = ["infer02"]
  quotas = { search = { gpus = 1.5 } }
}

# A quarter of a GPU of a host that is named.
resource "gpu_share" "ocr" {
  name   = "vision-ocr"
  host   = "infer01"
  config = gpu_partition_config.inference.id

  memory                   = { limit_mib = 12288 }
  active_thread_percentage = 25
}

# Part of a GPU of a pool: the host with room is chosen when the share is created.
resource "gpu_share" "rank" {
  name        = "search-rank"
  pool        = gpu_pool.inference.id
  config      = gpu_partition_config.inference.id
  owner_label = "search"

  memory = { request_mib = 16384, limit_mib = 24576 }
}

# docker run --user 1000 --device gpufleet.com/share=vision-ocr ...
output "device" {
  value = gpu_share.ocr.cdi_device
}
