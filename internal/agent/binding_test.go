package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A VM that got another partition than it was promised is put back as it was.
func TestAVMThatGotAnotherSizeIsPutBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	size := r.look().GPUs[0].Partitionable.PartitionVRAM()
	want := partitionOf(run1, func(a *gpu.Assignment) { a.Partition.VRAM = &size })
	r.breaker.hook = func(write string) {
		if strings.HasPrefix(write, "start") { // somebody is faster
			for _, id := range []string{gpuP1, gpuP2} {
				check(t, r.sim.SetPartitionCount(context.Background(), id, 2))
			}
			r.breaker.hook = nil
		}
	}
	_, err := r.apply(assign("x", "t", nil, want))
	wantCode(t, err, agent.StepFailed)
	if !strings.Contains(err.Error(), "vram_mib asserts") {
		t.Errorf("the error does not say what was promised: %v", err)
	}
	if vm := r.vm("run-1"); !vm.Runs() || len(vm.PartitionAdapters) != 0 {
		t.Errorf("run-1 is %s with %d adapters", vm.State, len(vm.PartitionAdapters))
	}
	if _, claimed := r.claim(gpu.ClaimAssignment, run1); claimed {
		t.Error("there is a claim for run-1")
	}
	r.wantJournal(0)
}
