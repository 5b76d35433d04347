package vmassignment_test

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestAccVMAssignment_UpdateThatCannotBePutBackIsFinishedByTheNextApply lets a VM not start again,
// neither with its new quotas nor with the old ones.
func TestAccVMAssignment_UpdateThatCannotBePutBackIsFinishedByTheNextApply(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
	c := rig.NewCLI(t, r.Block()+rig.Assignment("avd-01", rig.AnyPartition, rig.MayStop))
	c.Apply()
	r.Must(r.Fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpStartVM, Code: "failed"}))
	c.Write(r.Block() + rig.Assignment("avd-01", "partition = { min_partition_compute = 500 }", rig.MayStop))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Left half done: hv01", "Still in place on hv01")
	r.WantVM("avd-01", gpu.VMOff, 1)
	rig.WantSaid(t, fmt.Sprint(c.Attributes("gpu_vm_assignment.a")["partition"]), "min_partition_compute:500")

	r.ClearFaults("hv01")
	rig.WantSaid(t, c.Ok("plan"), "quotas are not the declared ones", "VM avd-01 is off", "could not start it again", "1 to change")
	c.Apply()
	r.WantVM("avd-01", gpu.VMRunning, 1)
	v, _ := r.VM("avd-01")
	if q := v.PartitionAdapters[0].Quotas.Compute.Min; q == nil || *q != 500 {
		t.Errorf("the quota is %v, want 500", q)
	}
	if claim := r.Host("hv01").Claims[0]; claim.Incomplete {
		t.Error("the claim still says that the assignment is incomplete")
	}
	c.WantNoChanges()
	c.Destroy()
	r.WantVM("avd-01", gpu.VMRunning, 0)
	r.WantClaims([]string{"hv01"})
}

// A VM that was to get a partition in the place of a GPU of a pool, and could not be started, has
// the GPU again. The next apply takes it away for good.
func TestAccVMAssignment_AMoveFromAPoolThatCannotBePutBackIsFinishedByTheNextApply(t *testing.T) {
	t.Parallel()
	fleet := rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1)))
	r := rig.New(t, fleet)
	pool := "resource \"gpu_pool\" \"render\" {\n  name = \"render\"\n  members = { hv01 = [\"" + rig.GPU1 + "\"] }\n}\n"
	c := rig.NewCLI(t, r.Block()+pool+rig.Assignment("avd-01", "pool = { id = gpu_pool.render.id }", rig.WholeGPU(1), rig.MayStop))
	c.Apply()
	r.Must(r.Fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpStartVM, Code: "failed"}))
	c.Write(r.Block() + pool + rig.Assignment("avd-01", rig.AnyPartition, rig.WholeGPU(1), rig.MayStop))
	rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "Left half done: hv01")
	r.ClearFaults("hv01")
	c.Apply()
	r.WantVM("avd-01", gpu.VMRunning, 1)
	if v, _ := r.VM("avd-01"); len(v.Devices) > 0 {
		t.Errorf("it has whole GPUs too: %+v", v.Devices)
	}
	c.WantNoChanges()
	c.Destroy()
	r.WantVM("avd-01", gpu.VMRunning, 0)
	r.WantNoPool("render", "hv01")
}

// TestAccVMAssignment_AVMThatAConfigStoppedIsOwedItsStart has VMs not start again after a change of the
// count under them, nor after it was put back: the error and the next plan say which are
// off, that plan is an update of their assignments, and the apply starts them.
func TestAccVMAssignment_AVMThatAConfigStoppedIsOwedItsStart(t *testing.T) {
	t.Parallel()
	for _, onFailure := range []string{"rollback", "stop"} {
		t.Run(onFailure, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1)), rig.Node("hv02")))
			config := func(count int) string {
				return r.Block() + rig.ConfigOf(count, rig.Both, `max_disruption = "vm_restart"`, "rollout = { on_failure = \""+onFailure+"\" }") +
					rig.Assignment("avd-01", "partition = { config = gpu_partition_config.vdi.id }", rig.MayStop)
			}
			c := rig.NewCLI(t, config(4))
			c.Apply()
			r.WantVM("avd-01", gpu.VMRunning, 1)
			r.Must(r.Fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpStartVM, Code: "failed"}))
			c.Write(config(8))
			rig.WantSaid(t, c.Fails("apply", "-auto-approve"), "VM avd-01 is off")
			r.WantVM("avd-01", gpu.VMOff, 1)

			r.ClearFaults("hv01")
			rig.WantSaid(t, c.Ok("plan"), "VM avd-01 is off: a change of gpu_partition_config", "gpu_vm_assignment.a: update")
			c.Apply()
			r.WantVM("avd-01", gpu.VMRunning, 1)
			c.WantNoChanges()
		})
	}
}
