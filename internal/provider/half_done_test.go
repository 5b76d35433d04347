package provider_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestUpdateThatCannotBePutBackIsFinishedByTheNextApply lets a VM not start again,
// neither with its new quotas nor with the old ones.
func TestUpdateThatCannotBePutBackIsFinishedByTheNextApply(t *testing.T) {
	t.Parallel()
	r := newRig(t, standalone(node("hv01", desktop("avd-01", 1))))
	c := newCLI(t, r.block()+assignment("avd-01", anyPartition, mayStop))
	c.apply()
	r.must(r.fleet.InjectFault(t.Context(), "hv01", simulated.Fault{Op: simulated.OpStartVM, Code: "failed"}))
	c.write(r.block() + assignment("avd-01", "partition = { min_partition_compute = 500 }", mayStop))
	wantSaid(t, c.fails("apply", "-auto-approve"), "Left half done: hv01", "On hv01 there still stands")
	r.wantVM("avd-01", gpu.VMOff, 1)
	wantSaid(t, c.ok("state", "show", "gpu_vm_assignment.a"), "min_partition_compute = 500")

	r.clearFaults("hv01")
	wantSaid(t, c.ok("plan"), "an earlier change of VM avd-01 failed and could not be put back", "1 to change")
	c.apply()
	v, _ := r.vm("avd-01")
	if q := v.PartitionAdapters[0].Quotas.Compute.Min; q == nil || *q != 500 {
		t.Errorf("the quota is %v, want 500", q)
	}
	if claim := r.host("hv01").Claims[0]; claim.Incomplete {
		t.Error("the claim still says that the assignment is incomplete")
	}
	c.wantNoChanges()
	c.destroy()
	r.wantVM("avd-01", gpu.VMOff, 0)
	r.wantClaims([]string{"hv01"})
}
