package changeforecast_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestAccChangeForecast_ForecastOfSharing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	const data = "data.gpu_change_forecast.wanted"
	text, null, none := knownvalue.StringExact, knownvalue.Null(), knownvalue.ListSizeExact(0)
	forecast := func(kind, layout string) string {
		return "data \"gpu_change_forecast\" \"wanted\" {\n  hosts = [\"gpu01\"]\n  " + kind + " = { " + layout + " }\n}\n"
	}
	before := r.Snapshot()
	r.Steps(
		resource.TestStep{
			Config: r.Block() + forecast("mps", rig.HalfEach),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(data, rig.Jsonpath("feasible"), knownvalue.Bool(true)),
				statecheck.ExpectKnownValue(data, rig.Jsonpath("disruption"), text("none")),
				statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus"), knownvalue.ListSizeExact(2)),
				statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "from_partition_count"), null),
				statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "mig"), null),
				statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "sharing"), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"from_compute_mode": text("default"), "to_compute_mode": text("exclusive_process"), "from_time_slice": null, "to_time_slice": null,
					"mps_daemons": knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
						"name": knownvalue.NotNull(), "action": text("start"), "clients": none,
					})}),
				})),
			},
		},
		resource.TestStep{
			Config: r.Block() + forecast("time_slicing", rig.FourTurns),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 0, "sharing"), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"from_compute_mode": null, "to_compute_mode": null, "from_time_slice": text("default"), "to_time_slice": text("long"),
					"mps_daemons": none,
				})),
				statecheck.ExpectKnownValue(data, rig.Jsonpath("violations", 0, "rule"), text("time-slicing-no-isolation")),
			},
		},
	)
	r.WantUnchanged(before)
}
