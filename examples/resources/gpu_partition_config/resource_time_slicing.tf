# Four shares take turns on every GPU of a Linux host. Nothing holds one of them to a
# quarter of the time or of the memory.
resource "gpu_partition_config" "development" {
  name  = "development"
  hosts = ["gpu01"]
  time_slicing = {
    interval = "long"
    replicas = 4
  }
}

# Two shares take turns on each GPU instance of another host.
resource "gpu_partition_config" "batch" {
  name  = "batch"
  hosts = ["hgx01"]
  mig = {
    profiles     = { "3g.40gb" = 2 }
    time_slicing = { replicas = 2 }
  }
}
