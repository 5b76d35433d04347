package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// anotherAgent is an agent process that no client speaks with.
func (r *rig) anotherAgent() *agent.Server {
	return agent.NewServer(r.sim, r.sim, r.options()...)
}

// killedAt lets the agent die at a write of a change that stops run-1, and its lease
// expire.
func (r *rig) killedAt(write string) {
	r.t.Helper()
	r.killedWith(assign("a", "vm1", nil, partitionOf(run1, nil)), write)
}

// killedWith is killedAt for any change.
func (r *rig) killedWith(ch agent.Change, write string) {
	r.t.Helper()
	r.breaker.hook = func(w string) {
		if w == write {
			r.breaker.mu.Lock()
			r.breaker.dead = true // this write still happens
			r.breaker.mu.Unlock()
		}
	}
	if _, err := r.apply(ch); err == nil {
		r.t.Fatal("the change succeeded")
	}
	r.clock.advance(2 * time.Minute)
}

func TestReconcilePutsBack(t *testing.T) {
	for _, at := range []string{"shut down", "add adapter", "start"} {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, onlyOneGPUP)
			before := r.look()
			r.killedAt(at)
			settled, err := r.anotherAgent().Reconcile(t.Context(), 0)
			if err != nil || len(settled) != 1 || settled[0].Subject != "test a" || settled[0].Kept || len(settled[0].Stands) > 0 {
				t.Fatalf("settled %+v, %v", settled, err)
			}
			wantSame(t, before, r.look())
			r.wantJournal(0)
			if l := r.state().Lease; l != nil {
				t.Errorf("reconcile kept the lease: %+v", l)
			}
		})
	}
}

func TestReconcileKeepsWhatWasApplied(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.apply(assign("a", "vm3", nil, partitionOf(off1, nil))); err != nil {
		t.Fatal(err)
	}
	after := r.look()
	r.clock.advance(2 * time.Minute)
	settled, err := r.anotherAgent().Reconcile(t.Context(), 0)
	if err != nil || len(settled) != 1 || !settled[0].Kept {
		t.Fatalf("settled %+v, %v", settled, err)
	}
	wantSame(t, after, r.look())
	r.wantJournal(0)
}

// TestReconcileLeavesTheLiving has a run at work: reconcile waits as long as it is told
// and then says who it waited for.
func TestReconcileLeavesTheLiving(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	var during error
	r.breaker.hook = func(write string) {
		if write == "add adapter" {
			_, during = r.anotherAgent().Reconcile(context.Background(), 20*time.Millisecond)
		}
	}
	r.done(assign("a", "vm1", nil, partitionOf(run1, nil)))
	e, ok := during.(*agent.Error) //nolint:errorlint // what the call returns
	if !ok || e.Code != agent.LeaseHeld || e.Lease == nil || e.Lease.Run != "run-1" || !strings.Contains(e.Message, "tester") {
		t.Fatalf("during a change: %v", during)
	}
	if vm := r.vm("run-1"); vm.State != gpu.VMRunning || len(vm.PartitionAdapters) != 1 {
		t.Errorf("the change was disturbed: %+v", vm)
	}
}

// TestReconcileNamesAVMThatMoved has a VM fail over in the middle of a change whose
// agent died: the other node's business is left alone.
func TestReconcileNamesAVMThatMoved(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	other := testHost()
	other.Name, other.VMs = "hv02", nil
	if err := r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts = append(s.Hosts, other)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.killedAt("add adapter")
	if err := r.fleet.MoveVM(t.Context(), "run-1", "hv02"); err != nil {
		t.Fatal(err)
	}
	there, err := r.fleet.Host("hv02")
	if err != nil {
		t.Fatal(err)
	}
	before, err := there.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	settled, err := r.anotherAgent().Reconcile(t.Context(), 0)
	if err != nil || len(settled) != 1 || len(settled[0].Stands) == 0 {
		t.Fatalf("settled %+v, %v", settled, err)
	}
	if said := strings.Join(settled[0].Stands, "\n"); !strings.Contains(said, "run-1") && !strings.Contains(said, run1) {
		t.Errorf("it does not name the VM: %s", said)
	}
	after, err := there.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, before, after)
}

func TestReconcileTouchesNothingElse(t *testing.T) {
	r := newRig(t, nil)
	r.done(layout("c", "config", nil, config("vdi", 8, gpuP1)), assign("a", "vm3", nil, partitionOf(off1, nil)))
	// What people do beside Terraform is drift, which only a plan may answer.
	if err := r.sim.SetPartitionCount(t.Context(), gpuP1, 2); err != nil {
		t.Fatal(err)
	}
	if err := r.ReleaseLease(t.Context(), r.fence); err != nil {
		t.Fatal(err)
	}
	before := r.look()
	settled, err := r.anotherAgent().Reconcile(t.Context(), 0)
	if err != nil || len(settled) != 0 {
		t.Errorf("settled %+v, %v", settled, err)
	}
	wantSame(t, before, r.look())
}

// TestReconcileOfASettledHostWritesNothing has only the expired lease of a dead run
// left, which goes without a lease being taken; after that there is nothing to write.
func TestReconcileOfASettledHostWritesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
	r.clock.advance(2 * time.Minute)
	for _, wantWrites := range []int{1, 0} {
		r.breaker.arm(0, failBefore)
		settled, err := r.ending.server.Reconcile(t.Context(), 0)
		if err != nil || len(settled) != 0 {
			t.Errorf("settled %+v, %v", settled, err)
		}
		if n := r.breaker.count(); n != wantWrites {
			t.Errorf("it wrote %d times, and %d was wanted", n, wantWrites)
		}
		if lease := r.state().Lease; lease != nil {
			t.Errorf("the lease of run %s is left over", lease.Run)
		}
	}
}

// TestAHostThatCannotBeReadWasNotTried has recovery find a host that does not answer, as
// often as a change is tried: when the host answers again, it is tried all the same.
func TestAHostThatCannotBeReadWasNotTried(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	before := r.look()
	r.killedAt("add adapter")
	fail := func(op simulated.Op, times int) {
		if err := r.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: op, Times: times, Code: backend.Unavailable}); err != nil {
			t.Fatal(err)
		}
	}
	const tries = 3
	fail(simulated.OpInventory, tries)
	for range tries {
		if settled, err := r.anotherAgent().Reconcile(t.Context(), 0); err == nil {
			t.Fatalf("a host that cannot be read was settled: %+v", settled)
		}
	}
	fail(simulated.OpRemovePartitionAdapter, 0)
	settled, err := r.anotherAgent().Reconcile(t.Context(), 0)
	if err != nil || len(settled) != 1 || len(settled[0].Stands) == 0 {
		t.Fatalf("settled %+v, %v", settled, err)
	}
	r.wantJournal(1)
	r.repair()
	if _, err := r.anotherAgent().Reconcile(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wantSame(t, before, r.look())
	r.wantJournal(0)
}

// TestShutdown ends an agent process whose client has gone: what it applied stays, its
// lease goes back, and what another process took over is left alone.
func TestShutdown(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.apply(assign("a", "vm3", nil, partitionOf(off1, nil))); err != nil {
		t.Fatal(err)
	}
	after := r.look()

	stranger := r.anotherAgent()
	if err := stranger.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := r.state().Lease; l == nil || l.Run != "run-1" {
		t.Fatalf("an agent that held no lease gave one back: %+v", l)
	}
	r.wantJournal(1)

	if err := r.ending.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := r.state().Lease; l != nil {
		t.Errorf("the lease stands: %+v", l)
	}
	r.wantJournal(0)
	wantSame(t, after, r.look())
	if err := r.ending.server.Shutdown(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// TestShutdownAfterATakeover has another process of the same run take the lease over
// before the old one ends.
func TestShutdownAfterATakeover(t *testing.T) {
	r := newRig(t, nil)
	old := r.ending.server
	if _, err := newClientOn(t, r).AcquireLease(t.Context(), lease("run-1")); err != nil {
		t.Fatal(err)
	}
	if err := old.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := r.state().Lease; l == nil || l.Run != "run-1" {
		t.Errorf("the old process gave back the lease of the new one: %+v", l)
	}
}
