package changeforecast_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccChangeForecast_ForecastOfAVGPULayout(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0), rig.L40s(1), rig.L40s(2)))
	for n, name := range []string{"L40S-12Q", "L40S-24Q"} {
		r.Must(r.Fleet.SetVirtualFunctionsOutside(t.Context(), "kvm01", rig.VGPUCard(n), true))
		r.Must(r.Fleet.CreateVGPUOutside(t.Context(), "kvm01", rig.VGPUCard(n), gpu.VGPUPlace{Type: name, Function: 3}))
	}
	before := r.Snapshot()
	const data = "data.gpu_change_forecast.desks"
	text, none := knownvalue.StringExact, knownvalue.ListSizeExact(0)
	place := func(name string, function int64) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{"type": text(name), "function": knownvalue.Int64Exact(function)})
	}
	list := func(places ...knownvalue.Check) knownvalue.Check { return knownvalue.ListExact(places) }
	r.Steps(resource.TestStep{
		Config: r.Block() + "data \"gpu_change_forecast\" \"desks\" {\n  hosts = [\"kvm01\"]\n  vgpu  = { " + rig.TwoDesks + " }\n}\n",
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(data, rig.Jsonpath("feasible"), knownvalue.Bool(true)),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("disruption"), text("none")),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus"), knownvalue.ListSizeExact(3)),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 0, "from_partition_count"), knownvalue.Null()),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 0, "mig"), knownvalue.Null()),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 0, "vgpu"), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"from_layout": text("vgpu:1xL40S-12Q"), "to_layout": text("vgpu:2xL40S-12Q"), "switches_functions": knownvalue.Null(),
				"switches_heterogeneous": knownvalue.Null(),
				"keeps":                  list(place("L40S-12Q", 3)), "removes": none, "creates": list(place("L40S-12Q", 0)),
			})),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 1, "vgpu", "removes"), list(place("L40S-24Q", 3))),
			statecheck.ExpectKnownValue(data, rig.Jsonpath("gpus", 2, "vgpu", "switches_functions"), text("on")),
		},
	})
	r.WantUnchanged(before)
}
