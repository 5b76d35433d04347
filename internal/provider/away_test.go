package provider_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAVMThatLeftTheNodeOfItsGPU moves a VM whose assignment waits, and which then goes off. The
// other node has a GPU with the same id, which is none of its business.
func TestAVMThatLeftTheNodeOfItsGPU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.TwoNodes())
	on := func(host string) string {
		return r.Block() + rig.Assignment("avd-01", `device = { host = "`+host+`", gpu_ids = ["`+rig.GPU1+`"] }`, `power = { when = "next_off" }`,
			`automatic_stop_action = "turn_off"`, "low_memory_mapped_io_space_mib = 144", "high_memory_mapped_io_space_mib = 16928")
	}
	c := rig.NewCLI(t, on("hv01"))
	c.Apply()
	r.Must(r.Fleet.MoveVM(t.Context(), "avd-01", "hv02"))
	r.Must(r.Fleet.SetVMState(t.Context(), "avd-01", gpu.VMOff))
	before := r.Snapshot()
	const why = `the wanted GPUs are on host "hv01"`
	rig.WantSaid(t, c.Ok("plan"), why, "This apply cannot put it right", "Move the VM back, or name GPUs of the host that it is on")
	rig.WantSaid(t, c.Apply(), why, "0 added, 0 changed, 0 destroyed")
	r.WantUnchanged(before)
	c.Write(on("hv02"))
	c.Apply()
	if vm := r.Machine("avd-01"); len(vm.Devices) != 1 {
		t.Errorf("the VM has not got its GPU: %+v", vm.Devices)
	}
	r.WantDismounted("hv02", rig.GPU1)
	c.WantNoChanges()
}
