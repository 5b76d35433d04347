package inventory_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestAccInventory_InventoryShowsVGPUsAndWhoHoldsThem(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.KVM(rig.L40s(0)))
	r.Must(r.Fleet.SetVirtualFunctionsOutside(t.Context(), "kvm01", rig.VGPUCard(0), true))
	place := gpu.VGPUPlace{Type: "L40S-12Q", Function: 4}
	r.Must(r.Fleet.CreateVGPUOutside(t.Context(), "kvm01", rig.VGPUCard(0), place))
	release := r.Holds(0, place, "web-01")
	is := func(want knownvalue.Check, steps ...any) statecheck.StateCheck {
		return statecheck.ExpectKnownValue("data.gpu_inventory.all",
			rig.Jsonpath("inventory", append([]any{"kvm01", "gpus", rig.VGPUCard(0)}, steps...)...), want)
	}
	text, number := knownvalue.StringExact, knownvalue.Int64Exact
	r.Steps(resource.TestStep{
		Config: r.Block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(number(32), "virtual_functions"), is(knownvalue.Bool(true), "virtual_functions_enabled"),
			is(knownvalue.Bool(false), "vgpu_heterogeneous"),
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectExact(map[string]knownvalue.Check{
				"type": text("L40S-12Q"), "function": number(4), "address": knownvalue.NotNull(), "uuid": knownvalue.Null(),
				"holder": text("VM web-01"),
			})}), "vgpus"),
		},
		Check: rig.Then(func() {
			release()
			r.Must(r.Fleet.DefineVM(t.Context(), "kvm01", rig.VGPUCard(0), place, "web-02", gpu.VMOff))
		}),
	}, resource.TestStep{
		Config: r.Block() + `data "gpu_inventory" "all" {}`,
		ConfigStateChecks: []statecheck.StateCheck{
			is(knownvalue.ListExact([]knownvalue.Check{knownvalue.ObjectPartial(map[string]knownvalue.Check{
				"holder": text("VM web-02 (off)"),
			})}), "vgpus"),
		},
	})
}
