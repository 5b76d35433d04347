package inventory_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccInventory_InventoryShowsMIGAndProcesses(t *testing.T) {
	t.Parallel()
	fleet := rig.HGX(rig.H100, 3)
	fleet.Hosts[0].GPUs[1].NVLinks = []gpu.NVLink{{Count: 6}, {GPU: rig.MIGGPU(0), Count: 12}}
	silent := &fleet.Hosts[0].GPUs[2]
	silent.Minor, silent.Cores, silent.NUMANode = nil, "", nil
	r := rig.New(t, fleet)
	r.Must(r.Fleet.SetMIGModeOutside(t.Context(), "hgx01", rig.MIGGPU(0), true))
	r.CreateOutside(0, rig.At("3g.40gb", 4))
	pid := r.Runs(0, &gpu.MIGPlacement{Profile: "3g.40gb", Start: 4}, "python")
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_inventory.all", rig.Jsonpath("inventory", append([]any{"hgx01"}, steps...)...), want)
	}
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.Steps(resource.TestStep{
		Config: r.Block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(text("linux"), "platform"),
			is(text("0000:1a:00.0"), "gpus", rig.MIGGPU(0), "address"),
			is(number(1), "gpus", rig.MIGGPU(1), "device_minor"),
			is(text("/dev/nvidia1"), "gpus", rig.MIGGPU(1), "device_path"),
			is(text("16-31"), "gpus", rig.MIGGPU(1), "cpu_cores"),
			is(number(0), "gpus", rig.MIGGPU(1), "numa_node"),
			is(knownvalue.MapExact(map[string]knownvalue.Check{rig.MIGGPU(0): number(12), "switch": number(6)}), "gpus", rig.MIGGPU(1), "nvlinks"),
			is(knownvalue.Null(), "gpus", rig.MIGGPU(2), "device_minor"),
			is(knownvalue.Null(), "gpus", rig.MIGGPU(2), "device_path"),
			is(knownvalue.Null(), "gpus", rig.MIGGPU(2), "cpu_cores"),
			is(knownvalue.Null(), "gpus", rig.MIGGPU(2), "numa_node"),
			is(knownvalue.Null(), "gpus", rig.MIGGPU(2), "nvlinks"),
			is(knownvalue.Bool(true), "gpus", rig.MIGGPU(0), "mig_enabled"),
			is(knownvalue.Bool(false), "gpus", rig.MIGGPU(1), "mig_enabled"),
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"profile": text("3g.40gb"), "start": number(4), "memory_mib": number(rig.H100Memory(t, "3g.40gb")),
				"uuids": knownvalue.ListSizeExact(1), "capabilities": knownvalue.ListExact([]knownvalue.Check{number(12), number(13)}),
			})}), "gpus", rig.MIGGPU(0), "mig_instances"),
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"pid": number(int64(pid)), "name": text("python"), "holder": text("container 3f2a"), "memory_mib": number(0),
				"mig_instance": text("3g.40gb@4"), "share": knownvalue.Null(),
			})}), "gpus", rig.MIGGPU(0), "processes"),
			is(knownvalue.ListSizeExact(0), "gpus", rig.MIGGPU(1), "mig_instances"),
		},
	})
}
