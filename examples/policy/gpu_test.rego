package main_test

import data.main

forecast(values) := {"prior_state": {"values": {"root_module": {"child_modules": [{"resources": [{
	"address": "data.gpu_change_forecast.run", "mode": "data", "type": "gpu_change_forecast",
	"values": object.union({"disruption": "none", "feasible": true, "vms": [], "resets_gpus": [], "assignments": []}, values),
}]}]}}}}

restarts(names) := forecast({"disruption": "vm_restart", "vms": [{"vm": n, "effect": "restarted"} | some n in names]})

assignment(actions, before, after) := {"resource_changes": [{
	"address": "gpu_vm_assignment.a", "mode": "managed", "type": "gpu_vm_assignment",
	"change": {"actions": actions, "before": before, "after": after, "after_unknown": {"gpu_ids": true}},
}]}

test_harmless if count(main.deny) == 0 with input as forecast({})

test_nothing_of_gpus if count(main.deny) == 0 with input as {"resource_changes": []}

test_golden if main.deny == {"golden VM avd-golden would be stopped"} with input as restarts(["avd-golden"])

test_golden_by_name if main.deny == {"golden VM db would be stopped"} with input as restarts(["db"]) with data.gpu.golden_vms as ["^db$"]

test_a_golden_vm_that_is_moved if {
	count(main.deny) == 0 with input as forecast({"vms": [{"vm": "avd-golden", "effect": "moved"}]})
}

test_stops_without_ticket if {
	count(main.deny) == 1 with input as restarts(["a", "b"]) with data.gpu.max_stops as 1
	count(main.deny) == 1 with input as object.union(restarts(["a", "b"]), {"variables": {"change_ticket": {"value": " "}}}) with data.gpu.max_stops as 1
	count(main.deny) == 0 with input as object.union(restarts(["a", "b"]), {"variables": {"change_ticket": {"value": "CHG-7"}}}) with data.gpu.max_stops as 1
	count(main.deny) == 0 with input as restarts(["a"]) with data.gpu.max_stops as 1
}

reset := forecast({"disruption": "gpu_reset", "resets_gpus": [{"host": "hgx01", "gpu_id": "GPU-1"}]})

# 2026-11-23 is a Monday.
test_reset_in_hours if {
	monday := time.parse_rfc3339_ns("2026-11-23T10:00:00Z")
	main.deny == {"data.gpu_change_forecast.run: GPUs would be reset in business hours: GPU-1 on hgx01"} with input as reset with data.gpu.now_ns as monday
}

test_reset_at_night_and_on_sunday if {
	count(main.deny) == 0 with input as reset with data.gpu.now_ns as time.parse_rfc3339_ns("2026-11-23T18:00:00Z")
	count(main.deny) == 0 with input as reset with data.gpu.now_ns as time.parse_rfc3339_ns("2026-11-22T10:00:00Z")
}

test_infeasible if count(main.deny) == 1 with input as forecast({"feasible": false})

test_no_forecast if count(main.deny) == 1 with input as assignment(["create"], null, {"vm": "a"})

test_forecast_known_after_apply if {
	count(main.deny) == 1 with input as {"resource_changes": [{
		"address": "data.gpu_change_forecast.run", "mode": "data", "type": "gpu_change_forecast",
		"change": {"actions": ["read"], "before": null, "after": {}, "after_unknown": {}},
	}]}
}

test_an_assignment_that_no_forecast_covers if {
	"golden VM golden-1 would be stopped" in main.deny with input as object.union(forecast({}), assignment(["create"], null, {"vm": "golden-1"}))
	"golden VM golden-1 would be stopped" in main.deny with input as object.union(forecast({}), assignment(["delete"], {"vm": "golden-1"}, null))
	count(main.deny) == 0 with input as object.union(forecast({"assignments": [{"vm": "golden-1"}]}), assignment(["create"], null, {"vm": "golden-1"}))
}
