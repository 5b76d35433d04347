# All Linux hosts of the provider, watched for two seconds. A server that keeps DCGM's
# metrics adds how idle the GPUs were at nights and weekends:
#
#   prometheus = { url = "http://prometheus.example:9090", timezone = "Europe/Berlin" }
data "gpu_utilization" "all" {}

output "summary" {
  value = data.gpu_utilization.all.totals.summary
}

# What can be had back, by host.
output "unused" {
  value = { for a in data.gpu_utilization.all.advice : a.host => a.text... if a.kind == "unused" }
}
