list "gpu_share" "all" {
  provider = gpu

  config {
    host = "hgx01"
  }
}
