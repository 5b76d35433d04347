package vmassignment_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A setting that a running VM takes changes in the same run as the layout of its partition:
// what the VM holds afterwards is not what it held.
func TestAccVMAssignment_LiveSettingChangesWithTheLayout(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	const yes = "allow_shutdown = true"
	assign := func(more string) string {
		return rig.AssignmentOf("a", "avd-01", "partition = { config = gpu_partition_config.vdi.id }", "power = { "+yes+" }", more)
	}
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4 + assign("")},
		resource.TestStep{
			Config: r.Block() + rig.ConfigOf(8, rig.Both, `max_disruption = "vm_restart"`) + assign(`automatic_stop_action = "shut_down"`),
			ConfigPlanChecks: resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_vram_mib"))},
			},
			Check: rig.Then(func() {
				vm := r.Machine("avd-01")
				if len(vm.PartitionAdapters) != 1 || vm.State != gpu.VMRunning || vm.Settings.AutomaticStopAction == nil ||
					*vm.Settings.AutomaticStopAction != gpu.StopShutDown {
					t.Errorf("avd-01 is %+v", vm)
				}
			}),
		},
	)
}

// A setting that a running VM takes changes in the same run as the config that the partition is of:
// the VM is stopped, and the state says what it holds afterwards.
func TestAccVMAssignment_LiveSettingChangesWithTheConfig(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
	config := r.Block() + configOn("c", 8, map[string][]string{"hv01": {rig.GPU0}}) + configOn("d", 2, map[string][]string{"hv01": {rig.GPU1}})
	holds := func(id string, mib int64) []statecheck.StateCheck {
		return []statecheck.StateCheck{
			statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"),
				knownvalue.SetExact([]knownvalue.Check{knownvalue.StringExact(id)})),
			statecheck.ExpectKnownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_vram_mib"), knownvalue.Int64Exact(mib)),
		}
	}
	r.Steps(
		resource.TestStep{Config: config + rig.AssignmentOf("a", "avd-01", partOf("d"), rig.MayStop), ConfigStateChecks: holds(rig.GPU1, 7584)},
		resource.TestStep{
			Config:            config + rig.AssignmentOf("a", "avd-01", partOf("c"), rig.MayStop, `automatic_stop_action = "shut_down"`),
			ConfigStateChecks: holds(rig.GPU0, 1896),
			Check:             rig.Then(func() { wantPartition(r, "avd-01", rig.GPU0, 1896) }),
		},
		resource.TestStep{
			Config: config + rig.AssignmentOf("a", "avd-01", rig.AnyPartition, rig.MayStop),
			ConfigPlanChecks: resource.ConfigPlanChecks{
				PreApply: []plancheck.PlanCheck{plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("gpu_ids"))},
			},
			Check: rig.Then(func() { r.WantVM("avd-01", gpu.VMRunning, 1) }),
		},
	)
}
