package provider_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestPartitionOptionsListMIGProfiles(t *testing.T) {
	t.Parallel()
	s := hgx(h100, 1)
	s.Hosts[0].GPUs = append(s.Hosts[0].GPUs, migCard(1, "A30"))
	s.Hosts[0].GPUs[0].MIG.Profiles = nil // as some drivers list them while the mode is off
	r := newRig(t, s)
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	const all, one = "data.gpu_partition_options.all", "data.gpu_partition_options.one"
	r.steps(resource.TestStep{
		Config: r.block() + `
data "gpu_partition_options" "all" {
  host = "hgx01"
}
data "gpu_partition_options" "one" {
  host   = "hgx01"
  gpu_id = "` + migGPU(0) + `"
}
`,
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(all, jsonpath("gpus"), knownvalue.MapSizeExact(2)),
			statecheck.ExpectKnownValue(all, jsonpath("common_mig_profiles"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(all, jsonpath("common_partition_counts"), knownvalue.ListSizeExact(0)),
			statecheck.ExpectKnownValue(one, jsonpath("common_mig_profiles"), knownvalue.ListExact([]knownvalue.Check{
				text("1g.10gb"), text("1g.10gb+me"), text("1g.20gb"), text("2g.20gb"), text("3g.40gb"), text("4g.40gb"), text("7g.80gb"),
			})),
			statecheck.ExpectKnownValue(one, jsonpath("gpus", migGPU(0), "mig_enabled"), knownvalue.Bool(false)),
			statecheck.ExpectKnownValue(one, jsonpath("gpus", migGPU(0), "partition_count"), knownvalue.Null()),
			statecheck.ExpectKnownValue(one, jsonpath("gpus", migGPU(0), "mig_profiles", 4), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"profile": text("3g.40gb"), "max": number(2), "memory_mib": number(h100Memory(t, "3g.40gb")), "compute_slices": number(3), "memory_slices": number(4),
				"starts": knownvalue.ListExact([]knownvalue.Check{number(0), number(4)}),
			})),
		},
	})
}

// h100Memory is the memory of a profile in MiB.
func h100Memory(t *testing.T, profile string) int64 {
	t.Helper()
	p, ok := migCard(0, h100).MIG.Profile(profile)
	if !ok {
		t.Fatalf("no profile %s", profile)
	}
	return p.Memory.MiB()
}

func TestForecastOfAMIGLayout(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(a100, 3))
	for _, n := range []int{0, 1} {
		r.must(r.fleet.SetMIGModeOutside(t.Context(), "hgx01", migGPU(n), true))
		r.must(r.fleet.ResetGPU(t.Context(), "hgx01", migGPU(n)))
		r.createOutside(n, at("3g.40gb", 0))
	}
	r.createOutside(0, at("1g.10gb", 4))
	r.createOutside(1, at("3g.40gb", 4))
	pid := r.runs(2, nil, "python")
	before := r.snapshot()
	const data = "data.gpu_change_forecast.halves"
	text := knownvalue.StringExact
	placed := func(profile string, start int64) knownvalue.Check {
		return knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{"profile": text(profile), "start": knownvalue.Int64Exact(start)})})
	}
	none := knownvalue.ListSizeExact(0)
	r.steps(resource.TestStep{
		Config:      r.block() + "data \"gpu_change_forecast\" \"x\" {\n  hosts = [\"hgx01\"]\n}\n",
		ExpectError: says("Exactly one of these attributes must be configured: [gpu_p,mig,vgpu,mps,time_slicing]"),
	}, resource.TestStep{
		Config: r.block() + `
data "gpu_change_forecast" "halves" {
  hosts = ["hgx01"]
  mig   = { ` + halves + ` }
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
			statecheck.ExpectKnownValue(data, jsonpath("disruption"), text("gpu_reset")),
			statecheck.ExpectKnownValue(data, jsonpath("feasible"), knownvalue.Bool(false)),
			statecheck.ExpectKnownValue(data, jsonpath("violations", 0, "rule"), text("mig-mode")),
			statecheck.ExpectKnownValue(data, jsonpath("gpus"), knownvalue.ListSizeExact(2)), // the second is as wanted
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 0, "from_partition_count"), knownvalue.Null()),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 0, "mig"), knownvalue.ObjectExact(map[string]knownvalue.Check{
				"from_layout": text("3g.40gb@0+1g.10gb@4"), "to_layout": text("3g.40gb@0+3g.40gb@4"), "switches_mode": knownvalue.Null(),
				"resets_gpu": knownvalue.Bool(false), "keeps": placed("3g.40gb", 0), "removes": placed("1g.10gb", 4), "creates": placed("3g.40gb", 4),
			})),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "holders"), knownvalue.ListExact([]knownvalue.Check{text(fmt.Sprintf("process %d (python, container 3f2a)", pid))})),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "mig", "from_layout"), text("off")),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "mig", "switches_mode"), text("on")),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "mig", "resets_gpu"), knownvalue.Bool(true)),
			statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "mig", "removes"), none),
		},
	})
	r.wantUnchanged(before)
}

func TestInventoryShowsMIGAndProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 2))
	r.must(r.fleet.SetMIGModeOutside(t.Context(), "hgx01", migGPU(0), true))
	r.createOutside(0, at("3g.40gb", 4))
	pid := r.runs(0, &gpu.MIGPlacement{Profile: "3g.40gb", Start: 4}, "python")
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_inventory.all", jsonpath("inventory", append([]any{"hgx01"}, steps...)...), want)
	}
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.steps(resource.TestStep{
		Config: r.block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(text("linux"), "platform"),
			is(text("0000:1a:00.0"), "gpus", migGPU(0), "address"),
			is(knownvalue.Bool(true), "gpus", migGPU(0), "mig_enabled"),
			is(knownvalue.Bool(false), "gpus", migGPU(1), "mig_enabled"),
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"profile": text("3g.40gb"), "start": number(4), "memory_mib": number(h100Memory(t, "3g.40gb")), "uuids": knownvalue.ListSizeExact(1),
			})}), "gpus", migGPU(0), "mig_instances"),
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"pid": number(int64(pid)), "name": text("python"), "holder": text("container 3f2a"), "memory_mib": number(0), "mig_instance": text("3g.40gb@4"), "share": knownvalue.Null(),
			})}), "gpus", migGPU(0), "processes"),
			is(knownvalue.ListSizeExact(0), "gpus", migGPU(1), "mig_instances"),
		},
	})
}
