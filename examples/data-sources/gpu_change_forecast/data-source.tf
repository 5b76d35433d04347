# What would it cost to go to four partitions? Nothing is changed.
data "gpu_change_forecast" "four" {
  cluster = "azl-vdi"
  gpu_p   = { partition_count = 4 }
}

output "forecast" {
  value = data.gpu_change_forecast.four
}
