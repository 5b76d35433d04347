package agent_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestConnectionCutAtEveryWrite hangs up at each write of each change, which lies
// between two steps or within one. When the agent has ended, every VM that ran before
// runs, the journal is empty, and the host is as it was or, where the change was
// complete, as wanted.
func TestConnectionCutAtEveryWrite(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		p.everyWrite(t, func(t *testing.T, at int) {
			r := p.rig(t)
			cut(t, r, at, func() { _ = p.run(t, r) })
			if now := r.look(); !cmp.Equal(p.after, now) {
				wantSame(t, p.before, now)
			}
			for _, vm := range p.keepsOn().VMs {
				if now := r.vm(vm.Name); vm.State == gpu.VMRunning && now.State != gpu.VMRunning {
					t.Errorf("VM %s ran and is %s", vm.Name, now.State)
				}
			}
			r.wantJournal(0)
			if l := r.state().Lease; l != nil {
				t.Errorf("the lease stands: %+v", l)
			}
		})
	})
}

// cut breaks the connection at one of the writes that do makes, and returns when the
// agent has ended as its process does: calls first, then the rest.
func cut(t *testing.T, r *rig, at int, do func()) {
	t.Helper()
	broke := make(chan struct{})
	r.breaker.arm(0, failBefore)
	r.breaker.everyWrite = func(n int) {
		if n != at {
			return
		}
		go func() {
			_ = r.Close() // waits for the calls
			close(broke)
		}()
		r.ending.wait(t)
	}
	do()
	<-broke
	if err := r.ending.server.Shutdown(t.Context()); err != nil {
		t.Errorf("the agent could not end: %v", err)
	}
}
