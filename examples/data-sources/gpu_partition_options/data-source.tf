# The partition counts that each GPU of the host accepts, and the memory of one
# partition at each.
data "gpu_partition_options" "hv01" {
  host = "hv01"
}

output "options" {
  value = data.gpu_partition_options.hv01
}
