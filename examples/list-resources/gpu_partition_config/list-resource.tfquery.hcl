list "gpu_partition_config" "mig" {
  provider = gpu

  config {
    host      = "hgx01"
    kind      = "mig"
    unmanaged = true
  }
}
