# What an approver reads, in Markdown, from `terraform show -json` of a saved plan.
def list(title): if length > 0 then "**\(title)**", .[], "" else empty end;

# A text of somebody else, such as the name of a VM, as code: one line in which nothing is markup, a link or a
# mention, on no server. Its fence is longer than any in it.
def code: tostring | gsub("[\\p{C}\\p{Zl}\\p{Zp}]"; "\ufffd") as $text
  | ("`" * (1 + ([$text | match("`+"; "g").length] | max // 0))) as $fence
  | if $text | test("`|^ | $|^$") then "\($fence) \($text) \($fence)" else "`\($text)`" end;
# A plain word stands as it is.
def md: tostring | if test("^[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*\\z") then . else code end;

[.prior_state.values | .. | objects | select(.type? == "gpu_change_forecast")] as $forecasts
| [.resource_changes[]? | select(.mode == "managed" and (.type | startswith("gpu_")))] as $resources
| [$resources[] | select(.change.actions != ["no-op"] and .change.actions != ["read"])] as $changed
| if ($changed | length) == 0 then "No change of GPUs." else
    "### GPUs", "",
    ([$changed[] | "- \(.address | code): \(.change.actions | join(", "))"] | list("Changes")),
    ($forecasts[] | .address as $at | .values |
      "**Forecast of \($at | code)**: disruption \(.disruption | code)\(if .feasible then "" else ", **not feasible**" end)", "",
      ([.vms[] | "- VM \(.vm | md) on \(.host | md): \(.effect | md)\(if .allowed then "" else " (not allowed)" end)"] | list("VMs that stop or move")),
      ([.resets_gpus[] | "- \(.gpu_id | md) on \(.host | md)"] | list("GPUs that are reset")),
      ([.seats[] | "- \(.host | md): \(.left) of \(.total)"] | list("Seats left")),
      ([.violations[] | "- \(.level | md): \(.found | code) (\(.rule | md))"] | list("What the rules find"))
    ),
    ([$changed[] | select(.type == "gpu_vm_assignment" and (.change.actions | index("delete"))) | "- VM \(.change.before.vm | md)"]
      | list("VMs that lose their GPU, and stop for it if they run"))
  end
