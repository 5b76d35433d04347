# Policies for a plan report (GPU_PLAN_REPORT), for OPA 1.0 or later and conftest 0.60 or later. The
# input is the report: no configuration says anything twice for it.
package report

# Settings, each from data.gpu if it is there (`--data settings.json`).
default golden_vms := ["(?i)golden"] # patterns of names

golden_vms := data.gpu.golden_vms

default max_stops := 5

max_stops := data.gpu.max_stops

default ticket := ""

ticket := data.gpu.change_ticket

# What is not known is not judged: it is refused.
deny contains msg if {
	not input.complete
	msg := sprintf("the report is not complete: %s", [concat(" ", object.get(input, "incomplete", ["it does not say why"]))])
}

# No golden VM stops.
deny contains msg if {
	some vm in stopped
	some pattern in golden_vms
	regex.match(pattern, vm)
	msg := sprintf("golden VM %s would be stopped", [vm])
}

# No VM stays off.
deny contains msg if {
	some c in input.changes
	some s in c.stops
	not s.starts_again
	msg := sprintf("%s leaves VM %s off", [c.label, s.vm])
}

# More than max_stops VMs stop only with a ticket.
deny contains msg if {
	count(stopped) > max_stops
	trim_space(ticket) == ""
	msg := sprintf("%d VMs would be stopped, and more than %d need a change_ticket: %s", [count(stopped), max_stops, concat(", ", sort(stopped))])
}

# No GPU is reset, and no process ends.
deny contains msg if {
	some c in input.changes
	some id in c.resets
	msg := sprintf("%s resets GPU %s on %s", [c.label, id, c.host])
}

deny contains msg if {
	some c in input.changes
	some p in c.ends
	msg := sprintf("%s terminates process %d (%s) on %s", [c.label, p.pid, p.name, c.host])
}

stopped contains s.vm if {
	some c in input.changes
	some s in c.stops
}
