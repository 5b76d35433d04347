list "gpu_pool" "all" {
  provider = gpu

  config {
    cluster = "azl-vdi"
  }
}
