package provider_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestPartitionOptionsListVGPUTypes(t *testing.T) {
	t.Parallel()
	s := kvm(l40s(0), l40s(1))
	s.Hosts[0].GPUs[1].VGPU.Types = append(s.Hosts[0].GPUs[1].VGPU.Types[1:2:2], gpu.VGPUType{Name: "L40S-1-12Q", FrameBuffer: 12 * 1024 * gpu.MiB, Max: 4, MIGProfile: "1g.12gb"})
	r := newRig(t, s)
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	const data = "data.gpu_partition_options.all"
	r.steps(resource.TestStep{
		Config: r.block() + "data \"gpu_partition_options\" \"all\" {\n  host = \"kvm01\"\n}\n",
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(data, jsonpath("common_vgpu_types"), knownvalue.ListExact([]knownvalue.Check{text("L40S-12Q")})),
			statecheck.ExpectKnownValue(data, jsonpath("common_mig_profiles"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", vgpuCard(0), "vgpu_heterogeneous_supported"), knownvalue.Bool(true)),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", vgpuCard(0), "mig_enabled"), knownvalue.Null()),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", vgpuCard(0), "vgpu_types", 1), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"type": text("L40S-12Q"), "frame_buffer_mib": number(12288), "max": number(4), "max_per_vm": number(16), "mig_profile": knownvalue.Null(),
			})),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", vgpuCard(1), "vgpu_types", 1), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"type": text("L40S-1-12Q"), "frame_buffer_mib": number(12288), "max": number(4), "max_per_vm": knownvalue.Null(), "mig_profile": text("1g.12gb"),
			})),
		},
	})
}

func TestForecastOfAVGPULayout(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0), l40s(1), l40s(2)))
	for n, name := range []string{"L40S-12Q", "L40S-24Q"} {
		r.must(r.fleet.SetVirtualFunctionsOutside(t.Context(), "kvm01", vgpuCard(n), true))
		r.must(r.fleet.CreateVGPUOutside(t.Context(), "kvm01", vgpuCard(n), gpu.VGPUPlace{Type: name, Function: 3}))
	}
	before := r.snapshot()
	const data = "data.gpu_change_forecast.desks"
	text, none := knownvalue.StringExact, knownvalue.ListSizeExact(0)
	place := func(name string, function int64) knownvalue.Check {
		return knownvalue.ObjectExact(map[string]knownvalue.Check{"type": text(name), "function": knownvalue.Int64Exact(function)})
	}
	list := func(places ...knownvalue.Check) knownvalue.Check { return knownvalue.ListExact(places) }
	r.steps(resource.TestStep{
		Config: r.block() + "data \"gpu_change_forecast\" \"desks\" {\n  hosts = [\"kvm01\"]\n  vgpu  = { " + twoDesks + " }\n}\n",
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(data, jsonpath("feasible"), knownvalue.Bool(true)),
			statecheck.ExpectKnownValue(data, jsonpath("disruption"), text("none")),
			statecheck.ExpectKnownValue(data, jsonpath("gpus"), knownvalue.ListSizeExact(3)),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 0, "from_partition_count"), knownvalue.Null()),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 0, "mig"), knownvalue.Null()),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 0, "vgpu"), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"from_layout": text("vgpu:1xL40S-12Q"), "to_layout": text("vgpu:2xL40S-12Q"), "switches_functions": knownvalue.Null(), "switches_heterogeneous": knownvalue.Null(),
				"keeps": list(place("L40S-12Q", 3)), "removes": none, "creates": list(place("L40S-12Q", 0)),
			})),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "vgpu", "removes"), list(place("L40S-24Q", 3))),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 2, "vgpu", "switches_functions"), text("on")),
		},
	})
	r.wantUnchanged(before)
}

func TestInventoryShowsVGPUsAndWhoHoldsThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, kvm(l40s(0)))
	r.must(r.fleet.SetVirtualFunctionsOutside(t.Context(), "kvm01", vgpuCard(0), true))
	place := gpu.VGPUPlace{Type: "L40S-12Q", Function: 4}
	r.must(r.fleet.CreateVGPUOutside(t.Context(), "kvm01", vgpuCard(0), place))
	r.holds(0, place, "web-01")
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_inventory.all", jsonpath("inventory", append([]any{"kvm01", "gpus", vgpuCard(0)}, steps...)...), want)
	}
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.steps(resource.TestStep{
		Config: r.block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(number(32), "virtual_functions"), is(knownvalue.Bool(true), "virtual_functions_enabled"), is(knownvalue.Bool(false), "vgpu_heterogeneous"),
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"type": text("L40S-12Q"), "function": number(4), "address": knownvalue.NotNull(), "uuid": knownvalue.Null(), "holder": text("VM web-01"),
			})}), "vgpus"),
		},
	})
}
