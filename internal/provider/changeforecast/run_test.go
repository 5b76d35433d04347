package changeforecast_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const run = "data.gpu_change_forecast.run"

func vm(host, name string, n int, effect, why string, allowed bool) knownvalue.Check {
	reason := knownvalue.StringExact("")
	if !allowed {
		reason = knownvalue.StringExact("it runs, and its assignment does not allow a shutdown")
	}
	return knownvalue.ObjectExact(map[string]knownvalue.Check{
		"host": knownvalue.StringExact(host), "vm": knownvalue.StringExact(name), "vm_id": knownvalue.StringExact(rig.VMID(n)),
		"effect": knownvalue.StringExact(effect), "why": knownvalue.StringExact(why), "allowed": knownvalue.Bool(allowed), "reason": reason,
	})
}

// The layout and the assignments of a run are one forecast: who is stopped, and what is left.
func TestAccChangeForecast_ForecastOfAWholeRun(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	before := r.Snapshot()
	seats := func(host string, total, taken int64) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{
			"host": knownvalue.StringExact(host), "total": knownvalue.Int64Exact(total), "taken": knownvalue.Int64Exact(taken),
			"left": knownvalue.Int64Exact(total - taken),
		})
	}
	config := func(assignments string) string {
		return r.Block() + `
data "gpu_change_forecast" "run" {
  hosts       = ["hv01", "hv02"]
  gpu_p       = { partition_count = 1 }
  assignments = [` + assignments + `]
}
resource "terraform_data" "known_at_plan" {
  count = length([for vm in data.gpu_change_forecast.run.vms : vm if vm.effect == "restarted"])
}
`
	}
	known := func(n string) resource.ConfigPlanChecks {
		return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("terraform_data.known_at_plan["+n+"]", plancheck.ResourceActionCreate),
		}}
	}
	const added = "a partition is added"
	r.Steps(
		resource.TestStep{
			Config: config(`
    { vm = "avd-01", allow_shutdown = true }, { vm = "avd-02", allow_shutdown = true }, { vm = "avd-03", allow_shutdown = true }, { vm = ` +
				`"made-later" }`),
			ConfigPlanChecks: known("1"),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(run, rig.Jsonpath("disruption"), knownvalue.StringExact("vm_restart")),
				statecheck.ExpectKnownValue(run, rig.Jsonpath("feasible"), knownvalue.Bool(true)),
				statecheck.ExpectKnownValue(run, rig.Jsonpath("vms"), knownvalue.ListExact([]knownvalue.Check{ // avd-03 is off
					vm("hv01", "avd-01", 1, "restarted", added, true), vm("hv01", "avd-02", 2, "restarted", added, true),
				})),
				statecheck.ExpectKnownValue(run, rig.Jsonpath("seats"),
					knownvalue.ListExact([]knownvalue.Check{seats("hv01", 2, 3), seats("hv02", 2, 0)})),
				statecheck.ExpectKnownValue(run, rig.Jsonpath("resets_gpus"), knownvalue.ListSizeExact(0)),
			},
		},
		resource.TestStep{
			Config: config(`{ vm = "avd-01", allow_shutdown = true }, { vm = "avd-05" }`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(run, rig.Jsonpath("feasible"), knownvalue.Bool(false)),
				statecheck.ExpectKnownValue(run, rig.Jsonpath("vms"), knownvalue.ListExact([]knownvalue.Check{
					vm("hv01", "avd-01", 1, "restarted", added, true), vm("hv02", "avd-05", 5, "restarted", added, false),
				})),
			},
		},
	)
	r.WantUnchanged(before)
}

// A VM that holds a partition is stopped by the layout, and named once.
func TestAccChangeForecast_ForecastOfARunThatRepartitions(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	had := r.Block() + rig.ConfigOf(16, rig.Both, `max_disruption = "vm_restart"`) + rig.Assign("avd-01", "allow_shutdown = true")
	asks := `
data "gpu_change_forecast" "run" {
  hosts       = ["hv01", "hv02"]
  gpu_p       = { partition_count = 8 }
  assignments = [{ vm = "avd-01" }, { vm = "avd-02", allow_shutdown = true }]
}
`
	r.Steps(
		resource.TestStep{Config: had},
		resource.TestStep{
			Config: had + asks,
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(run, rig.Jsonpath("vms"), knownvalue.ListExact([]knownvalue.Check{
					vm("hv01", "avd-01", 1, "restarted", "the partition count of its GPU changes", true),
					vm("hv01", "avd-02", 2, "restarted", "a partition is added", true),
				})),
				statecheck.ExpectKnownValue(run, rig.Jsonpath("seats", 0, "left"), knownvalue.Int64Exact(14)),
			},
			Check: rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1) }),
		},
	)
}

// Resets are listed, host by host.
func TestAccChangeForecast_ForecastListsResets(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.A100, 2))
	r.Steps(resource.TestStep{
		Config: r.Block() + `
data "gpu_change_forecast" "run" {
  hosts = ["hgx01"]
  mig   = { profiles = { "3g.40gb" = 2 } }
}
`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(run, rig.Jsonpath("disruption"), knownvalue.StringExact("gpu_reset")),
			statecheck.ExpectKnownValue(run, rig.Jsonpath("resets_gpus", 0, "gpu_id"), knownvalue.StringExact(rig.MIGGPU(0))),
			statecheck.ExpectKnownValue(run, rig.Jsonpath("resets_gpus"), knownvalue.ListSizeExact(2)),
			statecheck.ExpectKnownValue(run, rig.Jsonpath("seats"), knownvalue.ListSizeExact(0)),
		},
	})
}
