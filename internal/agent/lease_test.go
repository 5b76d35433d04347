package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestLease(t *testing.T) {
	r := newRig(t, nil) // run-1 holds the lease
	ctx := t.Context()

	again, err := r.AcquireLease(ctx, lease("run-1"))
	if err != nil || again != r.fence {
		t.Fatalf("the same run got fence %d, %v; want %d again", again, err, r.fence)
	}

	_, err = r.AcquireLease(ctx, lease("run-2"))
	e := codeOf(t, err, agent.LeaseHeld)
	if e.Lease == nil || e.Lease.Run != "run-1" || e.Lease.Holder != "tester" || !e.Lease.Since.Equal(r.clock.Now()) {
		t.Errorf("the error names lease %+v", e.Lease)
	}

	r.clock.advance(50 * time.Second)
	r.done(assign("renews", "vm3", nil, partitionOf(off1, nil)))
	r.clock.advance(50 * time.Second)
	if _, err = r.AcquireLease(ctx, lease("run-2")); err == nil {
		t.Fatal("a lease that a write renewed was taken over")
	}

	r.clock.advance(time.Minute)
	fence, err := r.AcquireLease(ctx, lease("run-2"))
	if err != nil || fence <= r.fence {
		t.Fatalf("run-2 got fence %d, %v; want one above %d", fence, err, r.fence)
	}
	before := r.look()
	_, err = r.Client.Apply(ctx, r.fence, assign("late", "vm4", nil, partitionOf(off2, nil)), "", nil)
	wantCode(t, err, agent.StaleFence)
	_, err = r.Settle(ctx, r.fence, "late", false)
	wantCode(t, err, agent.StaleFence)
	wantSame(t, before, r.look())

	if err := r.ReleaseLease(ctx, r.fence); err != nil {
		t.Errorf("releasing a lost lease: %v", err)
	}
	if l := r.state().Lease; l == nil || l.Run != "run-2" {
		t.Errorf("run-1 released the lease of run-2: %+v", l)
	}
	if err := r.ReleaseLease(ctx, fence); err != nil || r.state().Lease != nil {
		t.Errorf("release: %v, lease %+v", err, r.state().Lease)
	}
}

func TestLeaseExpiredButNotTaken(t *testing.T) {
	r := newRig(t, nil)
	r.clock.advance(time.Hour)
	r.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
	if l := r.state().Lease; l == nil || !l.Expires.After(r.clock.Now()) {
		t.Errorf("the write did not renew the lease: %+v", l)
	}
}

func TestLeaseWaits(t *testing.T) {
	r := newRig(t, nil)
	req := lease("run-2")
	req.Wait = 10 * time.Second
	time.AfterFunc(100*time.Millisecond, func() { _ = r.ReleaseLease(context.Background(), r.fence) })
	if _, err := r.AcquireLease(t.Context(), req); err != nil {
		t.Fatal(err)
	}

	req = lease("run-3")
	req.Wait = 100 * time.Millisecond
	_, err := r.AcquireLease(t.Context(), req)
	wantCode(t, err, agent.LeaseHeld)

	req.Wait = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = r.AcquireLease(ctx, req)
	wantCode(t, err, agent.Cancelled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not context.Canceled", err)
	}
}

// TestReleaseKeepsApplied checks that an applied change that nobody settled stays.
func TestReleaseKeepsApplied(t *testing.T) {
	for _, end := range []string{"released", "expired"} {
		t.Run(end, func(t *testing.T) {
			r := newRig(t, nil)
			if _, err := r.apply(assign("a", "vm3", nil, partitionOf(off1, nil))); err != nil {
				t.Fatal(err)
			}
			after := r.look()
			r.wantJournal(1)
			if end == "released" {
				if err := r.ReleaseLease(t.Context(), r.fence); err != nil {
					t.Fatal(err)
				}
			} else {
				r.clock.advance(time.Hour)
			}
			r.acquire("run-2")
			wantSame(t, after, r.look())
			r.wantJournal(0)
			_, err := r.Settle(t.Context(), r.fence, "a", true)
			wantCode(t, err, agent.BadRequest)
		})
	}
}

// TestKept has a change stay once it is made, whatever becomes of the agent after the write that
// says so, and be put back when that is not written.
func TestKept(t *testing.T) {
	ch := assign("a", "vm1", nil, partitionOf(run1, nil))
	ch.Keep = true
	r := newRig(t, onlyOneGPUP)
	before, writes := r.look(), 0
	r.breaker.hook = func(string) { writes++ }
	if _, err := r.apply(ch); err != nil {
		t.Fatal(err)
	}
	r.breaker.hook = nil
	r.wantJournal(0)
	after := r.look()
	if _, ok := r.claim(gpu.ClaimAssignment, run1); !ok {
		t.Error("there is no claim")
	}
	if _, err := r.Settle(t.Context(), r.fence, ch.ID, false); err != nil {
		t.Errorf("settle what is settled: %v", err)
	}
	for _, at := range []int{writes, writes - 1} {
		r := newRig(t, onlyOneGPUP)
		n := 0
		r.breaker.hook = func(string) {
			r.breaker.mu.Lock()
			defer r.breaker.mu.Unlock()
			if n++; n == at {
				r.breaker.dead = true // this write still happens
			}
		}
		_, _ = r.apply(ch)
		r.clock.advance(2 * time.Minute)
		if _, err := r.anotherAgent().Reconcile(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		r.wantJournal(0)
		if want := map[bool]gpu.Host{true: after, false: before}[at == writes]; !r.breaker.dead {
			t.Errorf("write %d of %d was never made", at, writes)
		} else {
			wantSame(t, want, r.look())
		}
	}
}

// TestLongStepKeepsLease lets a step take longer than the lease lives.
func TestLongStepKeepsLease(t *testing.T) {
	r := newRig(t, nil)
	short := lease("run-1")
	short.TTL = 30 * time.Millisecond
	if _, err := r.AcquireLease(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	other := newClientOn(t, r)
	r.breaker.hook = func(write string) {
		if write != "add adapter" {
			return
		}
		for range 5 { // longer than the lease lives, but each time less
			r.clock.advance(20 * time.Millisecond)
			if _, err := other.AcquireLease(context.Background(), lease("run-2")); err == nil {
				t.Error("another run took the lease in the middle of a step")
			}
			until(t, "the lease is renewed in the middle of a step", func() bool {
				return !r.state().Lease.Expires.Before(r.clock.Now().Add(short.TTL))
			})
		}
	}
	r.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
}

// TestLeaseLivesWithItsClient has a run hold a lease for longer than the lease lives
// without doing anything, as one that waits for another host.
func TestLeaseLivesWithItsClient(t *testing.T) {
	r := newRig(t, nil)
	short := lease("run-1")
	short.TTL = 30 * time.Millisecond
	if _, err := r.AcquireLease(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	other := newClientOn(t, r)
	for range 3 { // longer than the lease lives, but each time less
		r.clock.advance(20 * time.Millisecond)
		until(t, "the lease is renewed", func() bool { return !r.state().Lease.Expires.Before(r.clock.Now().Add(short.TTL)) })
		_, err := other.AcquireLease(t.Context(), lease("run-2"))
		wantCode(t, err, agent.LeaseHeld)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.clock.advance(time.Minute)
	if _, err := other.AcquireLease(t.Context(), lease("run-2")); err != nil {
		t.Errorf("after its holder had gone: %v", err)
	}
}

// newClientOn starts a second agent process on the rig's host.
func newClientOn(t *testing.T, r *rig) *agent.Client {
	t.Helper()
	second := *r
	second.t = t
	second.start()
	return second.Client
}

// TestSameRunNewProcess has a run come back while its old agent process still works.
func TestSameRunNewProcess(t *testing.T) {
	r := newRig(t, nil)
	other := newClientOn(t, r)
	var during error
	r.breaker.hook = func(write string) {
		if write == "add adapter" {
			_, during = other.AcquireLease(context.Background(), lease("run-1"))
		}
	}
	r.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
	wantCode(t, during, agent.LeaseHeld)
	if _, err := other.AcquireLease(t.Context(), lease("run-1")); err != nil {
		t.Errorf("after the change: %v", err)
	}
}

// TestLostLeaseInTheMiddle takes the lease away between two steps: the old process
// stops, and only the new one puts things back.
func TestLostLeaseInTheMiddle(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	before := r.look()
	r.breaker.hook = func(write string) {
		if write == "add adapter" {
			if err := r.sim.Update(context.Background(), func(st *backend.State) error {
				st.Fence++
				lease := *st.Lease // as this machine writes them
				lease.Run, lease.Fence, lease.Worker = "thief", st.Fence, "other"
				st.Lease = &lease
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
	_, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil)))
	e := codeOf(t, err, agent.StaleFence)
	if e.Outcome == nil || len(e.Outcome.Stands) == 0 || e.Outcome.RolledBack {
		t.Errorf("outcome = %+v", e.Outcome)
	}
	if r.vm("run-1").State != gpu.VMOff {
		t.Error("the process that lost the lease went on")
	}
	r.clock.advance(time.Minute)
	r.restart("run-2")
	wantSame(t, before, r.look())
	r.wantJournal(0)
}

// TestConcurrentChanges sends many changes of one run at once.
func TestConcurrentChanges(t *testing.T) {
	const n = 12
	r := newRig(t, func(h *gpu.Host) {
		for i := range n {
			vm := h.VMs[2]
			vm.ID, vm.Name = fmt.Sprintf("CCCCCCCC-0000-0000-0000-%012d", i), fmt.Sprintf("many-%d", i)
			h.VMs = append(h.VMs, vm)
		}
	})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprintf("CCCCCCCC-0000-0000-0000-%012d", i)
			fence, err := r.AcquireLease(context.Background(), lease("run-1"))
			if err != nil {
				t.Error(err)
				return
			}
			ch := assign(fmt.Sprint(i), fmt.Sprint("vm", i), nil, partitionOf(id, nil))
			if _, err := r.Client.Apply(context.Background(), fence, ch, "", nil); err != nil {
				t.Error(err)
			}
			if _, err := r.Settle(context.Background(), fence, ch.ID, false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		if vm := r.vm(fmt.Sprintf("many-%d", i)); len(vm.PartitionAdapters) != 1 {
			t.Errorf("VM %s has %d adapters", vm.Name, len(vm.PartitionAdapters))
		}
	}
	r.wantJournal(0)
}

// TestAClockThatJumps sets the clock of a host while a run is at work there. Another run waits
// for it no longer and no shorter, a record is given up no sooner, and what the run does is done.
func TestAClockThatJumps(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		for _, jump := range skews {
			t.Run(fmt.Sprintf("cluster %t, %s", cluster, jump), func(t *testing.T) {
				n := newNodes(t)
				up := &clock{now: booted}
				passes := func(d time.Duration) {
					n.clock.advance(d)
					up.advance(d)
				}
				n.boot = func() time.Duration { return up.Now().Sub(booted) }
				n.start()
				req := func(run string) agent.LeaseRequest {
					r := lease(run)
					r.Cluster = cluster
					return r
				}
				fence, err := n.AcquireLease(t.Context(), req("run-1"))
				check(t, err)
				n.fence = fence
				n.clock.advance(jump)
				another := newClientOn(t, n.rig)
				passes(50 * time.Second)
				_, err = another.AcquireLease(t.Context(), req("run-2"))
				if l := heldBy(t, err); l.Run != "run-1" || !l.Expires.Equal(n.clock.Now().Add(10*time.Second)) {
					t.Errorf("the refusal names %+v at %s", l, n.clock.Now())
				}
				n.done(assign("alive", "vm3", nil, partitionOf(off1, nil)))
				passes(50 * time.Second)
				_, err = another.AcquireLease(t.Context(), req("run-2"))
				heldBy(t, err)
				_, err = n.anotherAgent().DropRecord(t.Context(), "any", 0)
				heldBy(t, err)
				if h, err := another.Inventory(t.Context()); err != nil || h.HeldBy == nil || h.HeldBy.Run != "run-1" {
					t.Errorf("the inventory says %+v, %v", h.HeldBy, err)
				}

				n.clock.advance(-3 * jump)
				passes(11 * time.Second) // since the run died
				_, err = n.anotherAgent().DropRecord(t.Context(), "any", 0)
				if e, ok := err.(*agent.Error); !ok || e.Code != agent.BadRequest { //nolint:errorlint // what the agent returns
					t.Errorf("a record that there is not, after the lease: %v", err)
				}
				if _, err = another.AcquireLease(t.Context(), req("run-2")); err != nil {
					t.Errorf("the lease of a dead run: %v", err)
				}
			})
		}
	}
}

// TestAMachineThatStartedAnew has the lease of a run be over that died with its machine.
func TestAMachineThatStartedAnew(t *testing.T) {
	r := newRig(t, nil)
	r.boot = func() time.Duration { return time.Second }
	r.start()
	if _, err := r.AcquireLease(t.Context(), lease("run-2")); err != nil {
		t.Error(err)
	}
}
