package vmassignment_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A setting that a running VM takes changes in the same run as the layout of its partition:
// what the VM holds afterwards is not what it held.
func TestLiveSettingChangesWithTheLayout(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	const yes = "allow_shutdown = true"
	assign := func(more string) string {
		return rig.AssignmentOf("a", "avd-01", "partition = { config = gpu_partition_config.vdi.id }", "power = { "+yes+" }", more)
	}
	r.Steps(
		resource.TestStep{Config: r.Block() + rig.Config4 + assign("")},
		resource.TestStep{
			Config:           r.Block() + rig.ConfigOf(8, rig.Both, `max_disruption = "vm_restart"`) + assign(`automatic_stop_action = "shut_down"`),
			ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectUnknownValue("gpu_vm_assignment.a", tfjsonpath.New("partition_vram_mib"))}},
			Check: rig.Then(func() {
				vm := r.Machine("avd-01")
				if len(vm.PartitionAdapters) != 1 || vm.State != gpu.VMRunning || vm.Settings.AutomaticStopAction == nil || *vm.Settings.AutomaticStopAction != gpu.StopShutDown {
					t.Errorf("avd-01 is %+v", vm)
				}
			}),
		},
	)
}
