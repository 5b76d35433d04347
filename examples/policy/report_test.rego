package report_test

import data.report

stop(vm, again) := {"vm": vm, "vm_id": vm, "host": "hv01", "starts_again": again}

plan(changes) := {"format": "gpu-plan-report/v1", "complete": true, "changes": changes}

change(stops) := {"label": "vdi", "host": "hv01", "stops": stops, "ends": [], "resets": []}

test_nothing_is_allowed if count(report.deny) == 0 with input as plan([])

test_a_stop_is_allowed if count(report.deny) == 0 with input as plan([change([stop("avd-01", true)])])

test_incomplete if {
	report.deny == {"the report is not complete: Host hv02 did not answer."} with input as {
		"complete": false,
		"incomplete": ["Host hv02 did not answer."], "changes": [],
	}
}

test_golden if report.deny == {"golden VM golden-1 would be stopped"} with input as plan([change([stop("golden-1", true)])])

test_left_off if report.deny == {"vdi leaves VM avd-01 off"} with input as plan([change([stop("avd-01", false)])])

test_many if {
	many := plan([change([stop(sprintf("avd-%d", [i]), true) | some i in numbers.range(1, 6)])])
	count(report.deny) == 1 with input as many
	count(report.deny) == 0 with input as many with data.gpu.change_ticket as "CHG-7"
	count(report.deny) == 0 with input as many with data.gpu.max_stops as 6
}

test_resets_and_ends if {
	report.deny == {"ml resets GPU GPU-1 on hgx01", "ml terminates process 7 (python) on hgx01"} with input as plan([{
		"label": "ml", "host": "hgx01", "stops": [], "resets": ["GPU-1"],
		"ends": [{"pid": 7, "name": "python", "gpu": "GPU-1"}],
	}])
}
