package provider_test

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestInventoryShowsMPS(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	newCLI(t, r.block()+mpsOf(quarterEach)).apply()
	pid := r.connects("gpu01", "inference", "python")
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_inventory.all", jsonpath("inventory", append([]any{"gpu01"}, steps...)...), want)
	}
	text, null := knownvalue.StringExact, knownvalue.Null()
	r.steps(resource.TestStep{
		Config: r.block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(text("/usr/bin/nvidia-cuda-mps-control"), "mps_program"), is(text("1.18.0"), "container_toolkit"), is(knownvalue.MapSizeExact(0), "shares"),
			is(text("exclusive_process"), "gpus", sharedCard(0), "compute_mode"), is(text("default"), "gpus", sharedCard(0), "time_slice"),
			is(text("8.9"), "gpus", sharedCard(0), "compute_capability"),
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"name": text("inference"), "gpu_ids": knownvalue.ListExact([]knownvalue.Check{text(sharedCard(0)), text(sharedCard(1))}), "mig_instance": null,
				"pid": knownvalue.NotNull(), "pipe_directory": knownvalue.NotNull(), "uid": knownvalue.Int64Exact(1000), "multi_user": knownvalue.Bool(false),
				"active_thread_percentage": knownvalue.Float64Exact(25), "pinned_memory_limit_mib": knownvalue.Int64Exact(10240),
				"client_pids": knownvalue.ListExact([]knownvalue.Check{knownvalue.Int64Exact(int64(pid))}), "problem": null,
			})}), "mps_daemons"),
		},
	})
}

func TestInventoryOfAHostWithoutMPS(t *testing.T) {
	t.Parallel()
	r := newRig(t, hgx(h100, 1))
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_inventory.all", jsonpath("inventory", append([]any{"hgx01"}, steps...)...), want)
	}
	r.steps(resource.TestStep{
		Config: r.block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(knownvalue.Null(), "mps_program"), is(knownvalue.Null(), "container_toolkit"), is(knownvalue.ListSizeExact(0), "mps_daemons"),
			is(knownvalue.Null(), "gpus", migGPU(0), "compute_capability"),
		},
	})
}

func TestPartitionOptionsTellMPSClients(t *testing.T) {
	t.Parallel()
	s := gpuHost(2)
	s.Hosts[0].GPUs[1].ComputeCapability = "6.1"
	bare := gpuHost(1).Hosts[0]
	bare.Name, bare.MPS = "bare", nil
	s.Hosts = append(s.Hosts, bare)
	r := newRig(t, s)
	const data = "data.gpu_partition_options."
	r.steps(resource.TestStep{
		Config: r.block() + "data \"gpu_partition_options\" \"all\" {\n  host = \"gpu01\"\n}\ndata \"gpu_partition_options\" \"bare\" {\n  host = \"bare\"\n}\n",
		ConfigStateChecks: []statecheck.StateCheck{
			statecheck.ExpectKnownValue(data+"all", jsonpath("gpus", sharedCard(0), "mps_max_clients"), knownvalue.Int64Exact(48)),
			statecheck.ExpectKnownValue(data+"all", jsonpath("gpus", sharedCard(1), "mps_max_clients"), knownvalue.Int64Exact(16)),
			statecheck.ExpectKnownValue(data+"bare", jsonpath("gpus", sharedCard(0), "mps_max_clients"), knownvalue.Null()),
		},
	})
}

// exampleFleet is that of the examples of MPS and time-slicing.
func exampleFleet(t *testing.T) string {
	t.Helper()
	s := gpuHost(2)
	s.Hosts = append(s.Hosts, hgx(h100, 2).Hosts...)
	return newRig(t, withMPS(s)).fleet.Path()
}

func TestMPSResourceExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, exampleFleet(t), filepath.Join(examplesDir, "resources", "gpu_partition_config", "resource_mps.tf"))
	e.lifecycle("gpu01: partition_config inference", "hgx01: partition_config notebooks")
	e.fleet.wantDaemons("gpu01")
	e.fleet.wantDaemons("hgx01")
	e.fleet.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
	e.fleet.wantLayout("3g.40gb@0 3g.40gb@4", 0, 1) // on_destroy = keep
}

func TestTimeSlicingResourceExample(t *testing.T) {
	t.Parallel()
	e := copyExample(t, exampleFleet(t), filepath.Join(examplesDir, "resources", "gpu_partition_config", "resource_time_slicing.tf"))
	e.lifecycle("gpu01: partition_config development", "hgx01: partition_config batch")
	e.fleet.wantModes(gpu.ComputeDefault, gpu.TimeSliceDefault, 0, 1)
}

func TestForecastOfSharing(t *testing.T) {
	t.Parallel()
	r := newRig(t, gpuHost(2))
	const data = "data.gpu_change_forecast.wanted"
	text, null, none := knownvalue.StringExact, knownvalue.Null(), knownvalue.ListSizeExact(0)
	forecast := func(kind, layout string) string {
		return "data \"gpu_change_forecast\" \"wanted\" {\n  hosts = [\"gpu01\"]\n  " + kind + " = { " + layout + " }\n}\n"
	}
	before := r.snapshot()
	r.steps(
		resource.TestStep{
			Config: r.block() + forecast("mps", halfEach),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(data, jsonpath("feasible"), knownvalue.Bool(true)), statecheck.ExpectKnownValue(data, jsonpath("disruption"), text("none")),
				statecheck.ExpectKnownValue(data, jsonpath("gpus"), knownvalue.ListSizeExact(2)),
				statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "from_partition_count"), null), statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "mig"), null),
				statecheck.ExpectKnownValue(data, jsonpath("gpus", 1, "sharing"), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"from_compute_mode": text("default"), "to_compute_mode": text("exclusive_process"), "from_time_slice": null, "to_time_slice": null,
					"mps_daemons": knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
						"name": knownvalue.NotNull(), "action": text("start"), "clients": none,
					})}),
				})),
			},
		},
		resource.TestStep{
			Config: r.block() + forecast("time_slicing", fourTurns),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue(data, jsonpath("gpus", 0, "sharing"), knownvalue.ObjectExact(map[string]knownvalue.Check{
					"from_compute_mode": null, "to_compute_mode": null, "from_time_slice": text("default"), "to_time_slice": text("long"), "mps_daemons": none,
				})),
				statecheck.ExpectKnownValue(data, jsonpath("violations", 0, "rule"), text("time-slicing-no-isolation")),
			},
		},
	)
	r.wantUnchanged(before)
}
