package inventory_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

func TestAccInventory_InventoryShowsMPS(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.GPUHost(2))
	rig.NewCLI(t, r.Block()+rig.MPSOf(rig.QuarterEach)).Apply()
	pid := r.Connects("gpu01", "inference", "python")
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_inventory.all", rig.Jsonpath("inventory", append([]any{"gpu01"}, steps...)...), want)
	}
	text, null := knownvalue.StringExact, knownvalue.Null()
	r.Steps(resource.TestStep{
		Config: r.Block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(text("/usr/bin/nvidia-cuda-mps-control"), "mps_program"), is(text("1.18.0"), "container_toolkit"),
			is(knownvalue.MapSizeExact(0), "shares"),
			is(text("exclusive_process"), "gpus", rig.SharedCard(0), "compute_mode"), is(text("default"), "gpus", rig.SharedCard(0), "time_slice"),
			is(text("8.9"), "gpus", rig.SharedCard(0), "compute_capability"),
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"name": text("inference"), "gpu_ids": knownvalue.ListExact([]knownvalue.Check{text(rig.SharedCard(0)), text(rig.SharedCard(1))}),
				"mig_instance": null,
				"pid":          knownvalue.NotNull(), "pipe_directory": knownvalue.NotNull(), "uid": knownvalue.Int64Exact(1000),
				"multi_user":               knownvalue.Bool(false),
				"active_thread_percentage": knownvalue.Float64Exact(25), "pinned_memory_limit_mib": knownvalue.Int64Exact(10240),
				"client_pids": knownvalue.ListExact([]knownvalue.Check{knownvalue.Int64Exact(int64(pid))}), "problem": null,
			})}), "mps_daemons"),
		},
	})
}

func TestAccInventory_InventoryOfAHostWithoutMPS(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.HGX(rig.H100, 1))
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_inventory.all", rig.Jsonpath("inventory", append([]any{"hgx01"}, steps...)...), want)
	}
	r.Steps(resource.TestStep{
		Config: r.Block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(knownvalue.Null(), "mps_program"), is(knownvalue.Null(), "container_toolkit"), is(knownvalue.ListSizeExact(0), "mps_daemons"),
			is(knownvalue.Null(), "gpus", rig.MIGGPU(0), "compute_capability"),
		},
	})
}
