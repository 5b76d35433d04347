# A warning in every plan as long as somebody holds a GPU and does nothing with it. Since the
# data source is in the check, a host that does not answer is a warning too.
check "no_gpu_is_held" {
  data "gpu_utilization" "now" {}

  assert {
    condition     = !contains(data.gpu_utilization.now.advice[*].kind, "held")
    error_message = join("\n", [for a in data.gpu_utilization.now.advice : "${a.host}: ${a.text}" if a.kind == "held"])
  }
}
