# What an approver reads, in Markdown, from `terraform show -json` of a saved plan.
def list(title): if length > 0 then "**\(title)**", .[], "" else empty end;

[.prior_state.values | .. | objects | select(.type? == "gpu_change_forecast")] as $forecasts
| [.resource_changes[]? | select(.mode == "managed" and (.type | startswith("gpu_")))] as $resources
| [$resources[] | select(.change.actions != ["no-op"] and .change.actions != ["read"])] as $changed
| if ($changed | length) == 0 then "No change of GPUs." else
    "### GPUs", "",
    ([$changed[] | "- `\(.address)`: \(.change.actions | join(", "))"] | list("Changes")),
    ($forecasts[] | .address as $at | .values |
      "**Forecast of `\($at)`**: disruption `\(.disruption)`\(if .feasible then "" else ", **not feasible**" end)", "",
      ([.vms[] | "- VM \(.vm) on \(.host): \(.effect)\(if .allowed then "" else " (not allowed)" end)"] | list("VMs that stop or move")),
      ([.resets_gpus[] | "- \(.gpu_id) on \(.host)"] | list("GPUs that are reset")),
      ([.seats[] | "- \(.host): \(.left) of \(.total)"] | list("Seats left")),
      ([.violations[] | "- \(.level): \(.found) (\(.rule))"] | list("What the rules find"))
    ),
    ([$changed[] | select(.type == "gpu_vm_assignment" and (.change.actions | index("delete"))) | "- VM \(.change.before.vm)"]
      | list("VMs that lose their GPU, and stop for it if they run"))
  end
