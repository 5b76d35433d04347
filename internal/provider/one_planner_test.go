package provider_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// waitsForPool is a VM that runs with a partition of ours, and whose assignment has gone
// over to a pool and waits for the VM's power-off: what the VM holds is not what the state
// says.
func waitsForPool(t *testing.T) (r *rig.Rig, c *rig.CLI, pool string) {
	t.Helper()
	r = rig.New(t, rig.Standalone(rig.Node("edge", rig.Desktop("vm-1", 1))))
	pool = "resource \"gpu_pool\" \"p\" {\n  name    = \"render\"\n  members = { edge = [\"" + rig.GPU1 + "\"] }\n}\n"
	c = rig.NewCLI(t, r.Block("power = { allow_shutdown = true }")+pool+rig.Assignment("vm-1", rig.AnyPartition))
	c.Apply()
	r.WantVM("vm-1", gpu.VMRunning, 1)
	c.Write(r.Block(`power = { allow_shutdown = true, when = "next_off" }`) + pool +
		rig.Assignment("vm-1", "pool = { id = gpu_pool.p.id }", rig.WholeGPU(1)))
	c.Apply()
	r.WantVM("vm-1", gpu.VMRunning, 1)
	return r, c, pool
}

// TestPlanOfADestroyNamesTheVMThatItStops goes by what the VM holds: the pool that the state
// names was never given to it.
func TestPlanOfADestroyNamesTheVMThatItStops(t *testing.T) {
	t.Parallel()
	r, c, pool := waitsForPool(t)
	c.Write(r.Block("power = { allow_shutdown = true }") + pool)
	rig.WantSaid(t, c.Ok("plan"), "1 to destroy", "edge: VM vm-1 is shut down and started again", "its partition is removed.")
	r.StopsOnce("edge", "vm-1")
	c.Apply()
	r.ClearFaults("edge")
	r.WantVM("vm-1", gpu.VMRunning, 0)
	c.WantNoChanges()
}

// TestPlanOfADestroyRefusesWhatTheHostWould has the assignment still wait for the VM's
// power-off, for which a destroy does not wait.
func TestPlanOfADestroyRefusesWhatTheHostWould(t *testing.T) {
	t.Parallel()
	r, c, pool := waitsForPool(t)
	before := r.File()
	c.Write(r.Block(`power = { allow_shutdown = true, when = "next_off" }`) + pool)
	rig.WantSaid(t, c.Fails("plan"), "The VM must be off", "its assignment waits for its next power-off", "its partition is removed")
	r.WantUntouched(before)
	r.Must(r.Fleet.SetVMState(t.Context(), "vm-1", gpu.VMOff))
	if said := rig.Sentence(c.Apply()); strings.Contains(said, "shut down") {
		t.Errorf("a VM that is off is said to be shut down:\n%s", said)
	}
	r.WantVM("vm-1", gpu.VMOff, 0)
	c.WantNoChanges()
}

// TestALiveSettingIsChangedBesideAForeignGPU changes what a running VM takes while it has,
// beside our GPU, one that was given to it by hand.
func TestALiveSettingIsChangedBesideAForeignGPU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("edge", rig.Off(rig.Desktop("vm-1", 1)))))
	config := func(action string) string {
		return r.Block() + rig.Assignment("vm-1", `device = { host = "edge", gpu_ids = ["`+rig.GPU0+`"] }`,
			`automatic_stop_action = "`+action+`"`, "low_memory_mapped_io_space_mib = 512", "high_memory_mapped_io_space_mib = 33344")
	}
	c := rig.NewCLI(t, config("turn_off"))
	c.Apply()
	r.Must(r.Fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		h := &s.Hosts[0]
		g, _ := h.GPU(rig.GPU1)
		g.Dismounted, g.Status = true, gpu.Assigned
		h.VMs[0].Devices = append(h.VMs[0].Devices, gpu.DeviceAssignment{ID: "by-hand", GPU: rig.GPU1})
		return nil
	}))
	r.Must(r.Fleet.SetVMState(t.Context(), "vm-1", gpu.VMRunning))
	r.NeverStops("vm-1", "edge")
	c.Write(config("shut_down"))
	if said := rig.Sentence(c.Apply()); strings.Contains(said, "shut down") {
		t.Errorf("the plan announces a shutdown:\n%s", said)
	}
	v, _ := r.VM("vm-1")
	if len(v.Devices) != 2 || v.State != gpu.VMRunning || *v.Settings.AutomaticStopAction != gpu.StopShutDown {
		t.Errorf("vm-1 is %+v", v)
	}
	c.WantNoChanges()
}
