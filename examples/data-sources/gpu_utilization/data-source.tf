terraform {
  required_providers {
    gpu = {
      source = "gpufleet/gpu"
    }
  }
}

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

# A warning in every plan as long as somebody holds a GPU and does nothing with it.
check "no_gpu_is_held" {
  assert {
    condition     = !contains(data.gpu_utilization.all.advice[*].kind, "held")
    error_message = join("\n", [for a in data.gpu_utilization.all.advice : "${a.host}: ${a.text}" if a.kind == "held"])
  }
}
