package changeforecast_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestAccChangeForecast_ForecastOfAMIGLayout(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.A100, 3))
	for _, n := range []int{0, 1} {
		r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(n), true))
		r.Must(r.Fleet.ResetGPU(t.Context(), "hgx01", rig.MIGGPU(n)))
		r.CreateOutside(n, rig.At("3g.40gb", 0))
	}
	r.CreateOutside(0, rig.At("1g.10gb", 4))
	r.CreateOutside(1, rig.At("3g.40gb", 4))
	pid := r.Runs(2, nil, "python")
	before := r.Snapshot()
	const data = "data.gpu_change_forecast.halves"
	text := knownvalue.StringExact
	placed := func(profile string, start int64) knownvalue.Check {
		return knownvalue.ListExact([]knownvalue.Check{
			knownvalue.ObjectExact(map[string]knownvalue.Check{"profile": text(profile), "start": knownvalue.Int64Exact(start)}),
		})
	}
	none := knownvalue.ListSizeExact(0)
	r.Steps(resource.TestStep{
		Config:      r.Block() + "data \"gpu_change_forecast\" \"x\" {\n  hosts = [\"hgx01\"]\n}\n",
		ExpectError: rig.Says("Exactly one of these attributes must be configured: [gpu_p,mig,vgpu,mps,time_slicing]"),
	}, resource.TestStep{
		Config: r.Block() + `
data "gpu_change_forecast" "halves" {
  hosts = ["hgx01"]
  mig   = { ` + rig.Halves + ` }
}
# The values are known in the plan, so that a policy can judge them.
resource "terraform_data" "resets" {
  count = length([for g in data.gpu_change_forecast.halves.gpus : g if g.mig.resets_gpu])
}
`,
		ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("terraform_data.resets[0]", plancheck.ResourceActionCreate),
		}},
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(data, rig.Jsonpath("disruption"), text("gpu_reset")),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("feasible"), knownvalue.Bool(false)),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("violations", 0, "rule"), text("mig-mode")),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus"), knownvalue.ListSizeExact(2)), // the second is as wanted
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 0, "from_partition_count"), knownvalue.Null()),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 0, "mig"), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"from_layout": text("3g.40gb@0+1g.10gb@4"), "to_layout": text("3g.40gb@0+3g.40gb@4"), "switches_mode": knownvalue.Null(),
				"resets_gpu": knownvalue.Bool(false), "keeps": placed("3g.40gb", 0), "removes": placed("1g.10gb", 4), "creates": placed("3g.40gb", 4),
			})),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "holders"),
				knownvalue.ListExact([]knownvalue.Check{text(fmt.Sprintf("process %d (python, container 3f2a)", pid))})),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "mig", "from_layout"), text("off")),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "mig", "switches_mode"), text("on")),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "mig", "resets_gpu"), knownvalue.Bool(true)),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "mig", "removes"), none),
		},
	})
	r.WantUnchanged(before)
}
