//go:build linux

package windows_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
)

// TestLocal lets the provider run on the Hyper-V host itself: the provider for Windows
// starts the agent that lies beside it, and neither is left.
func TestLocal(t *testing.T) {
	t.Parallel()
	r := newLocalRig(t, hyperV())
	r.Write(config + avd)
	ran := r.running()
	cli.WantSays(t, r.OK("apply", "-auto-approve"), "Apply complete! Resources: 2 added")
	r.wantCounts(8)
	r.wantPartition("avd-01")
	r.wantRunning(ran)
	r.WantNoChanges()
	r.wantQuiet()
	r.OK("destroy", "-auto-approve")
	r.wantCounts(4)
	r.wantRunning(ran)
	r.wantQuiet()
}

// TestLocalProviderKilled kills the provider while a VM is off for a change. The agent
// that it had started puts the change back, and ends.
func TestLocalProviderKilled(t *testing.T) {
	t.Parallel()
	r := newLocalRig(t, hyperV())
	r.simulate(func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpShutDownVM: 1500, simulated.OpStartVM: 500}
	})
	ran := r.running()
	r.Write(single)
	apply := r.Command("apply", "-auto-approve")
	var out strings.Builder
	apply.Stdout, apply.Stderr = &out, &out
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(out.String())
		}
	})
	if err := apply.Start(); err != nil {
		t.Fatal(err)
	}
	cli.Eventually(t, "the VM is being stopped", func() bool { return len(r.state().Journal) > 0 })
	for _, pid := range r.processes("provider.exe") {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	if err := apply.Wait(); err == nil {
		t.Error("the apply succeeded")
	}
	r.wantPutBack(ran)
}
