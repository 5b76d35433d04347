# Policies for plans that change GPUs, for OPA 1.0 or later and conftest 0.60 or later. The
# input is `terraform show -json` of a saved plan. The plan has to have a
# gpu_change_forecast for each layout, with the assignments of the run.
package main

# Settings, each from data.gpu if it is there (`--data settings.json`).
default golden_vms := ["(?i)golden"] # patterns of names

golden_vms := data.gpu.golden_vms

default max_stops := 5

max_stops := data.gpu.max_stops

default business_hours := {"days": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"], "from": 8, "to": 18, "timezone": "UTC"}

business_hours := data.gpu.business_hours

default now_ns := 0 # 0 is the present

now_ns := data.gpu.now_ns

# A plan without a forecast is not judged: it is refused.
deny contains msg if {
	count(changed) > 0
	count(forecasts) == 0
	msg := sprintf("%d gpu_ resources change, and the plan has no gpu_change_forecast", [count(changed)])
}

deny contains msg if {
	some r in input.resource_changes
	r.type == "gpu_change_forecast"
	"read" in r.change.actions
	msg := sprintf("%s is only known after apply", [r.address])
}

# No golden VM stops.
deny contains msg if {
	some vm in stopped
	some pattern in golden_vms
	regex.match(pattern, vm)
	msg := sprintf("golden VM %s would be stopped", [vm])
}

# More than max_stops VMs stop only with a ticket, in the variable change_ticket.
deny contains msg if {
	count(stopped) > max_stops
	not has_ticket
	msg := sprintf("%d VMs would be stopped, and more than %d need a change_ticket: %s", [count(stopped), max_stops, concat(", ", sort(stopped))])
}

# No GPU is reset in business hours.
deny contains msg if {
	some f in forecasts
	f.values.disruption == "gpu_reset"
	in_business_hours
	msg := sprintf("%s: GPUs would be reset in business hours: %s", [f.address, concat(", ", [reset | some g in f.values.resets_gpus; reset := sprintf("%s on %s", [g.gpu_id, g.host])])])
}

# What somebody else's rule forbids does not get to the apply either.
deny contains msg if {
	some f in forecasts
	not f.values.feasible
	msg := sprintf("%s: the change is not feasible", [f.address])
}

has_ticket if trim_space(input.variables.change_ticket.value) != ""

in_business_hours if {
	at := [[now_ns, time.now_ns()][zero(now_ns)], business_hours.timezone]
	time.weekday(at) in business_hours.days
	[hour, _, _] := time.clock(at)
	hour >= business_hours.from
	hour < business_hours.to
}

zero(n) := 1 if n == 0

zero(n) := 0 if n != 0

# Data sources that were read at plan are in the prior state, in whatever module.
forecasts contains r if {
	walk(input.prior_state.values, [_, r])
	r.mode == "data"
	r.type == "gpu_change_forecast"
}

changed contains r if {
	some r in input.resource_changes
	r.mode == "managed"
	startswith(r.type, "gpu_")
	some action in r.change.actions
	action in {"create", "update", "delete"}
}

# Who is stopped: by the forecasts, and by assignments that no forecast covers.
stopped contains vm.vm if {
	some f in forecasts
	some vm in f.values.vms
	vm.effect in {"restarted", "left_off"}
}

stopped contains vm if {
	some r in changed
	r.type == "gpu_vm_assignment"
	"delete" in r.change.actions
	vm := r.change.before.vm
}

stopped contains vm if {
	some r in changed
	r.type == "gpu_vm_assignment"
	r.change.after_unknown.gpu_ids
	vm := r.change.after.vm
	not vm in covered
}

covered contains a.vm if {
	some f in forecasts
	some a in f.values.assignments
}
