package provider_test

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// waitsForPool is a VM that runs with a partition of ours, and whose assignment has gone
// over to a pool and waits for the VM's power-off: what the VM holds is not what the state
// says.
func waitsForPool(t *testing.T) (r *rig, c *cli, pool string) {
	t.Helper()
	r = newRig(t, standalone(node("edge", desktop("vm-1", 1))))
	pool = "resource \"gpu_pool\" \"p\" {\n  name    = \"render\"\n  members = { edge = [\"" + gpu1 + "\"] }\n}\n"
	c = newCLI(t, r.block("power = { allow_shutdown = true }")+pool+assignment("vm-1", anyPartition))
	c.apply()
	r.wantVM("vm-1", gpu.VMRunning, 1)
	c.write(r.block(`power = { allow_shutdown = true, when = "next_off" }`) + pool + assignment("vm-1", "pool = { id = gpu_pool.p.id }", wholeGPU(1)))
	c.apply()
	r.wantVM("vm-1", gpu.VMRunning, 1)
	return r, c, pool
}

// TestPlanOfADestroyNamesTheVMThatItStops goes by what the VM holds: the pool that the state
// names was never given to it.
func TestPlanOfADestroyNamesTheVMThatItStops(t *testing.T) {
	t.Parallel()
	r, c, pool := waitsForPool(t)
	c.write(r.block("power = { allow_shutdown = true }") + pool)
	wantSaid(t, c.ok("plan"), "1 to destroy", "VM vm-1 runs on edge and will be shut down and started again: its partition is removed.")
	r.stopsOnce("edge", "vm-1")
	c.apply()
	r.clearFaults("edge")
	r.wantVM("vm-1", gpu.VMRunning, 0)
	c.wantNoChanges()
}

// TestPlanOfADestroyRefusesWhatTheHostWould has the assignment still wait for the VM's
// power-off, for which a destroy does not wait.
func TestPlanOfADestroyRefusesWhatTheHostWould(t *testing.T) {
	t.Parallel()
	r, c, pool := waitsForPool(t)
	before := r.file()
	c.write(r.block(`power = { allow_shutdown = true, when = "next_off" }`) + pool)
	wantSaid(t, c.fails("plan"), "The VM must be off", "its assignment waits for its next power-off", "its partition is removed")
	r.wantUntouched(before)
	r.must(r.fleet.SetVMState(t.Context(), "vm-1", gpu.VMOff))
	if said := sentence(c.apply()); strings.Contains(said, "will be shut down") {
		t.Errorf("a VM that is off is said to be shut down:\n%s", said)
	}
	r.wantVM("vm-1", gpu.VMOff, 0)
	c.wantNoChanges()
}

// TestALiveSettingIsChangedBesideAForeignGPU changes what a running VM takes while it has,
// beside our GPU, one that was given to it by hand.
func TestALiveSettingIsChangedBesideAForeignGPU(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("edge", off(desktop("vm-1", 1)))))
	config := func(action string) string {
		return r.block() + assignment("vm-1", `device = { host = "edge", gpu_ids = ["`+gpu0+`"] }`,
			`automatic_stop_action = "`+action+`"`, "low_memory_mapped_io_space_mib = 512", "high_memory_mapped_io_space_mib = 33344")
	}
	c := newCLI(t, config("turn_off"))
	c.apply()
	r.must(r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		h := &s.Hosts[0]
		g, _ := h.GPU(gpu1)
		g.Dismounted, g.Status = true, gpu.Assigned
		h.VMs[0].Devices = append(h.VMs[0].Devices, gpu.DeviceAssignment{ID: "by-hand", GPU: gpu1})
		return nil
	}))
	r.must(r.fleet.SetVMState(t.Context(), "vm-1", gpu.VMRunning))
	r.neverStops("vm-1", "edge")
	c.write(config("shut_down"))
	if said := sentence(c.apply()); strings.Contains(said, "will be shut down") {
		t.Errorf("the plan announces a shutdown:\n%s", said)
	}
	v, _ := r.vm("vm-1")
	if len(v.Devices) != 2 || v.State != gpu.VMRunning || *v.Settings.AutomaticStopAction != gpu.StopShutDown {
		t.Errorf("vm-1 is %+v", v)
	}
	c.wantNoChanges()
}
