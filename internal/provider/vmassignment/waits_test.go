package vmassignment_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A VM that is saved or paused, or on its way up or down, is not off: its assignment waits on, without a
// difference in every plan. Once it is made, it knows what the settings were before.
func TestAccVMAssignment_AnAssignmentWaitsForAVMThatDoesNotRun(t *testing.T) {
	t.Parallel()
	for _, state := range []gpu.VMState{gpu.VMRunning, gpu.VMPaused, gpu.VMSaved, gpu.VMStarting, gpu.VMStopping} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
			r.Must(r.Fleet.SetVMState(t.Context(), "avd-01", state))
			c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, `power = { allow_shutdown = true, when = "next_off" }`, lowMMIO))
			c.Apply()
			c.WantNoChanges()
			r.WantVM("avd-01", state, 0)
			r.Must(r.Fleet.SetVMState(t.Context(), "avd-01", gpu.VMOff))
			c.Apply()
			c.WantNoChanges()
			r.WantVM("avd-01", gpu.VMOff, 1)
			c.Destroy()
			if vm, _ := r.VM("avd-01"); len(vm.PartitionAdapters) > 0 || *vm.Settings.LowMemoryMappedIOSpace != 128*gpu.MiB {
				t.Errorf("after the destroy: %+v, low memory-mapped IO space %s", vm, *vm.Settings.LowMemoryMappedIOSpace)
			}
		})
	}
}
