package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

func TestHello(t *testing.T) {
	r := newRig(t, nil)
	h, err := r.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := agent.Hello{Protocol: agent.Protocol, Platform: string(gpu.HyperV), HostName: "HV01", Role: agent.Operator}
	if d := cmp.Diff(want, h, cmpopts.IgnoreFields(agent.Hello{}, "AgentVersion", "Capabilities")); d != "" {
		t.Error(d)
	}
}

func TestInventoryHasClaims(t *testing.T) {
	r := newRig(t, nil)
	r.done(assign("a", "vm3", nil, partitionOf(off1, nil)))
	h, err := r.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Claims) != 1 || !h.Claims[0].Is(gpu.ClaimAssignment, off1) || h.Claims[0].Token != "vm3" {
		t.Errorf("claims = %+v", h.Claims)
	}
}

func TestInventoryUnreachable(t *testing.T) {
	r := newRig(t, nil)
	if err := r.fleet.SetUnreachable(t.Context(), host, true); err != nil {
		t.Fatal(err)
	}
	_, err := r.Inventory(t.Context())
	e := codeOf(t, err, agent.Unavailable)
	var be *backend.Error
	if !errors.As(err, &be) || be.Code != backend.Unavailable || e.Cause == nil {
		t.Errorf("the platform's error is lost: %+v", e)
	}
}

// TestPrepare checks that Prepare tells everything and touches nothing.
func TestPrepare(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	before := r.look()
	p, err := r.Prepare(t.Context(), assign("a", "vm1", nil, partitionOf(run1, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]change.Op{change.OpStopVM, change.OpAddAdapter, change.OpPutClaim, change.OpStartVM}, ops(p.Steps)); d != "" {
		t.Error(d)
	}
	if p.Disruption != gpu.DisruptVMRestart || !slices.Equal(p.StopsVMs, []string{"run-1"}) {
		t.Errorf("disruption %s, stops %v", p.Disruption, p.StopsVMs)
	}
	wantSame(t, before, r.look())
}

func ops(steps []change.Step) []change.Op {
	var out []change.Op
	for _, s := range steps {
		out = append(out, s.Op)
	}
	return out
}

// TestRuleViolation checks that a rule's finding is told by Prepare and is an error of
// Apply, and that a relaxed rule lets the change through.
func TestRuleViolation(t *testing.T) {
	r := newRig(t, nil)
	bad := layout("c", "config", nil, config("vdi", 3, gpuP1))
	p, err := r.Prepare(t.Context(), bad)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Findings) == 0 || p.Findings[0].Rule != "valid-partition-count" || len(p.Steps) != 0 {
		t.Fatalf("prepared = %+v", p)
	}
	before := r.look()
	_, err = r.Client.Apply(t.Context(), r.fence, bad, p.Basis, nil)
	e := codeOf(t, err, agent.RuleViolation)
	if d := cmp.Diff(p.Findings, e.Findings, cmpopts.IgnoreUnexported(rules.Finding{})); d != "" {
		t.Error(d)
	}
	if e.Outcome != nil {
		t.Errorf("a change that touched nothing has outcome %+v", e.Outcome)
	}
	wantSame(t, before, r.look())

	bad.Levels = rules.Levels{"valid-partition-count": rules.Off}
	_, err = r.apply(bad)
	e = codeOf(t, err, agent.StepFailed) // now the host itself says no
	if e.Cause == nil || e.Cause.Code != backend.InvalidParameter || e.Step == "" || !e.Outcome.RolledBack {
		t.Errorf("error = %+v", e)
	}
	wantSame(t, before, r.look())
}

// TestHostChanged changes the host between Prepare and Apply.
func TestHostChanged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before []agent.Change
		ch     agent.Change
		meddle func(*testing.T, *rig)
		want   string
	}{
		{
			name: "a VM was started", ch: assign("a", "vm3", nil, partitionOf(off1, nil)),
			meddle: func(t *testing.T, r *rig) { check(t, r.sim.StartVM(t.Context(), off1)) },
			want:   "off-1 was off and is running",
		},
		{
			name: "the count was changed", ch: layout("c", "config", nil, config("vdi", 8, gpuP1)),
			meddle: func(t *testing.T, r *rig) { check(t, r.sim.SetPartitionCount(t.Context(), gpuP1, 2)) },
			want:   "the partition count of GPU " + gpuP1 + " was 4 and is 2",
		},
		{
			name:   "another VM took a partition",
			before: []agent.Change{assign("a1", "vm3", nil, partitionOf(off1, nil))},
			ch:     layout("c", "config", nil, config("vdi", 8, gpuP1, gpuP2)),
			meddle: func(t *testing.T, r *rig) { check(t, r.sim.StartVM(t.Context(), off1)) },
			want:   "the change would now also shut down VM off-1",
		},
		{
			name: "a claim was written", before: []agent.Change{layout("c0", "config", nil, config("vdi", 4, gpuP1))},
			ch: layout("c", "config", config("vdi", 4, gpuP1), config("vdi", 8, gpuP1)),
			meddle: func(_ *testing.T, r *rig) {
				other := config("vdi", 4, gpuP1)
				other.Restore = false
				r.done(layout("c1", "config", config("vdi", 4, gpuP1), other))
			},
			want: `the record of partition config "vdi"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.done(tt.before...)
			p, err := r.Prepare(t.Context(), tt.ch)
			if err != nil {
				t.Fatal(err)
			}
			tt.meddle(t, r)
			before := r.look()
			_, err = r.Client.Apply(t.Context(), r.fence, tt.ch, p.Basis, nil)
			e := codeOf(t, err, agent.HostChanged)
			if !strings.Contains(e.Message, tt.want) {
				t.Errorf("message %q does not contain %q", e.Message, tt.want)
			}
			wantSame(t, before, r.look())
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSameChangeTwice sends one change twice.
func TestSameChangeTwice(t *testing.T) {
	r := newRig(t, nil)
	ch := assign("a", "vm3", nil, partitionOf(off1, nil))
	first, err := r.Client.Apply(t.Context(), r.fence, ch, "", nil)
	check(t, err)
	second, err := r.Client.Apply(t.Context(), r.fence, ch, "", nil)
	check(t, err)
	if d := cmp.Diff(first, second); d != "" {
		t.Error(d)
	}
	if n := len(r.vm("off-1").PartitionAdapters); n != 1 {
		t.Errorf("the VM has %d adapters", n)
	}
	r.wantJournal(1)
}

// TestProgress checks what a caller hears, in both directions.
func TestProgress(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: simulated.OpStartVM, Times: 1, Code: backend.Insufficient}))
	var heard []string
	_, err := r.Client.Apply(t.Context(), r.fence, assign("a", "vm1", nil, partitionOf(run1, nil)), "", func(p agent.StepProgress) {
		heard = append(heard, fmt.Sprintf("%d/%d %s %t", p.Index, p.Total, p.Text, p.Undo))
	})
	wantCode(t, err, agent.StepFailed)
	want := []string{
		"1/4 shut down VM run-1 false",
		"2/4 give VM run-1 a GPU partition false",
		"3/4 record the assignment of VM " + run1 + " false",
		"4/4 start VM run-1 false",
		"1/4 shut down VM run-1 true",
		"2/4 forget the assignment of VM " + run1 + " true",
		"3/4 take the GPU partition from VM run-1 true",
		"4/4 start VM run-1 true",
	}
	if d := cmp.Diff(want, heard); d != "" {
		t.Error(d)
	}
}

// TestVMDoesNotStart gives a VM a partition that it does not start with: it runs again
// as before, and the start is the error.
func TestVMDoesNotStart(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	check(t, r.fleet.SetGuest(t.Context(), run1, simulated.Guest{StartFails: simulated.StartFailsWithGPU}))
	before := r.look()
	_, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, func(a *gpu.Assignment) {
		a.Settings.GuestControlledCache = new(true)
	})))
	e := codeOf(t, err, agent.StepFailed)
	if e.Step != "start VM run-1" || !e.Outcome.RolledBack || len(e.Outcome.Stands) > 0 || e.Cause == nil {
		t.Errorf("error = %+v, outcome = %+v", e, e.Outcome)
	}
	wantSame(t, before, r.look())
	if vm, _ := e.Outcome.Host.VM(run1); vm == nil || vm.State != gpu.VMRunning {
		t.Error("the outcome does not show the host as it is")
	}
}

// TestUndoLacksAStart cannot start a VM again: everything else is put back, so that nothing is
// left to claim, and it is told that the VM is off.
func TestUndoLacksAStart(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	check(t, r.fleet.SetGuest(t.Context(), run1, simulated.Guest{StartFails: simulated.StartFailsAlways}))
	before := r.look()
	_, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil)))
	e := codeOf(t, err, agent.StepFailed)
	if e.Outcome.RolledBack || len(e.Outcome.Stands) != 1 || !strings.HasPrefix(e.Outcome.Stands[0], "shut down VM run-1") {
		t.Errorf("outcome = %+v", e.Outcome)
	}
	vm := r.vm("run-1")
	if vm.State != gpu.VMOff || len(vm.PartitionAdapters) != 0 {
		t.Errorf("VM = %+v", vm)
	}
	if d := cmp.Diff(before.Claims, r.look().Claims); d != "" {
		t.Errorf("claims (-before +after):\n%s", d)
	}
	r.wantOwed("run-1")
	r.wantJournal(0)
}

// TestUndoFails can take the adapter from the VM no more: the VM is started with it, what stands
// is told, and the claim says so.
func TestUndoFails(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	r.failStarts(1)
	check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{
		Op: simulated.OpRemovePartitionAdapter, Code: backend.Insufficient, Detail: "0x800705AA",
	}))
	_, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil)))
	e := codeOf(t, err, agent.StepFailed)
	if e.Outcome.RolledBack || len(e.Outcome.Stands) != 1 {
		t.Errorf("outcome = %+v", e.Outcome)
	}
	if vm := r.vm("run-1"); !vm.Runs() || len(vm.PartitionAdapters) != 1 {
		t.Errorf("VM = %+v", vm)
	}
	if c, ok := r.claim(gpu.ClaimAssignment, run1); !ok || !c.Incomplete || c.Token != "vm1" {
		t.Errorf("claim = %+v", c)
	}
	r.wantJournal(0)

	// Deleting an incomplete object only drops its claim.
	r.done(assign("b", "vm1", partitionOf(run1, nil), nil))
	if _, ok := r.claim(gpu.ClaimAssignment, run1); ok {
		t.Error("the claim is still there")
	}
}

// killedAtItsAdapter has the agent die in the middle of giving VM run-1 a partition.
func killedAtItsAdapter(t *testing.T, also func(*rig)) *rig {
	r := newRig(t, onlyOneGPUP)
	r.breaker.hook = func(write string) {
		if write == "add adapter" {
			also(r)
			r.breaker.mu.Lock()
			r.breaker.dead = true
			r.breaker.mu.Unlock()
		}
	}
	if _, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil))); err == nil {
		t.Fatal("the change succeeded")
	}
	return r
}

// TestRecoveryGivesUp cannot take the adapter from the VM: after three runs it is taken as it
// stands, and the claim says that it is not complete.
func TestRecoveryGivesUp(t *testing.T) {
	r := killedAtItsAdapter(t, func(r *rig) {
		check(t, r.fleet.InjectFault(context.Background(), host, simulated.Fault{
			Op: simulated.OpRemovePartitionAdapter, Code: backend.Insufficient, Detail: "0x800705AA",
		}))
	})
	for run := 2; run <= 4; run++ {
		r.clock.advance(time.Hour)
		r.start()
		_, err := r.AcquireLease(t.Context(), lease(fmt.Sprint("run-", run)))
		e := codeOf(t, err, agent.StepFailed)
		if e.Outcome == nil || len(e.Outcome.Stands) != 1 || !strings.Contains(e.Outcome.Stands[0], "run-1") {
			t.Errorf("run %d: outcome = %+v", run, e.Outcome)
		}
	}
	r.restart("run-5")
	if c, ok := r.claim(gpu.ClaimAssignment, run1); !ok || !c.Incomplete {
		t.Errorf("claim = %+v", c)
	}
	r.wantPower(gpu.Host{VMs: []gpu.VM{{Name: "run-1", State: gpu.VMRunning}}})
	r.wantJournal(0)
}

// TestRecoveryLacksAStart cannot start the VM again, as on a node that is paused: that keeps no run
// from the host, since what comes next may be what lets it start.
func TestRecoveryLacksAStart(t *testing.T) {
	r := killedAtItsAdapter(t, func(r *rig) {
		check(t, r.fleet.SetGuest(context.Background(), run1, simulated.Guest{StartFails: simulated.StartFailsAlways}))
	})
	r.clock.advance(time.Hour)
	r.restart("run-2")
	if c, ok := r.claim(gpu.ClaimAssignment, run1); ok {
		t.Errorf("claim = %+v", c) // of all but the start nothing is left
	}
	r.wantJournal(0)
	r.wantOwed("run-1")
	if told, err := r.Inventory(t.Context()); err != nil || len(told.PendingStarts) != 1 || told.PendingStarts[0].Why == "" {
		t.Errorf("a plan is told %+v (%v)", told.PendingStarts, err)
	}
	check(t, r.fleet.SetGuest(t.Context(), run1, simulated.Guest{}))
	r.clock.advance(time.Hour)
	r.restart("run-3")
	r.wantPower(gpu.Host{VMs: []gpu.VM{{Name: "run-1", State: gpu.VMRunning}}})
	r.wantOwed()
}

// TestCancel cancels a change at each of its writes to the host: the step that is under
// way ends, and everything is put back.
func TestCancel(t *testing.T) {
	for _, at := range []string{"shut down", "settings", "add adapter"} {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, onlyOneGPUP)
			before := r.look()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.breaker.hook = func(write string) {
				if write == at && ctx.Err() == nil {
					cancel()
					r.ending.wait(t) // the host hears of it in the middle of the step
				}
			}
			ch := assign("a", "vm1", nil, partitionOf(run1, func(a *gpu.Assignment) { a.Settings.GuestControlledCache = new(true) }))
			_, err := r.Client.Apply(ctx, r.fence, ch, "", nil)
			e := codeOf(t, err, agent.Cancelled)
			if !errors.Is(err, context.Canceled) || e.Outcome == nil || !e.Outcome.RolledBack {
				t.Errorf("error = %v, outcome = %+v", err, e.Outcome)
			}
			wantSame(t, before, r.look())
			r.wantJournal(0)
		})
	}
}

// TestConnectionBreaks hangs up in the middle of a change: the agent puts it back
// without anybody listening.
func TestConnectionBreaks(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	before := r.look()
	broke := make(chan struct{})
	r.breaker.hook = func(write string) {
		if write == "add adapter" {
			go func() {
				_ = r.Close() // waits for the agent
				close(broke)
			}()
			r.ending.wait(t)
		}
	}
	_, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil)))
	if err == nil {
		t.Fatal("the change succeeded")
	}
	<-broke
	wantSame(t, before, r.look())
	r.wantJournal(0)
}

// TestReadBack has somebody else undo a step while the change goes on: that no step
// failed does not make the change a success.
func TestReadBack(t *testing.T) {
	r := newRig(t, nil)
	meddled := false
	r.breaker.hook = func(string) {
		if vm := r.vm("run-1"); len(vm.PartitionAdapters) == 1 && !meddled { // before its start
			meddled = true
			h, err := r.sim.Inventory(context.Background())
			check(t, err)
			v, _ := h.VM(run1)
			check(t, r.sim.RemovePartitionAdapter(context.Background(), run1, v.PartitionAdapters[0].ID))
		}
	}
	before := r.look()
	_, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil)))
	e := codeOf(t, err, agent.StepFailed)
	if !strings.Contains(e.Message, "the GPU partition of VM run-1 is none, but any GPU was wanted") {
		t.Errorf("message = %q", e.Message)
	}
	wantSame(t, before, r.look())
}

// TestBadRequests sends changes that make no sense.
func TestBadRequests(t *testing.T) {
	r := newRig(t, nil)
	good := assign("a", "vm3", nil, partitionOf(off1, nil))
	for name, edit := range map[string]func(*agent.Change){
		"no id":                  func(ch *agent.Change) { ch.ID = "" },
		"no host":                func(ch *agent.Change) { ch.Host = "" },
		"no token":               func(ch *agent.Change) { ch.Token = "" },
		"no want":                func(ch *agent.Change) { ch.Want = gpu.Want{} },
		"two objects":            func(ch *agent.Change) { ch.Want.Pool = &gpu.PoolConfig{Name: "render"} },
		"a VM without a name":    func(ch *agent.Change) { ch.Want = gpu.Want{Assignment: &gpu.Assignment{VMID: off1}} },
		"a config without an id": func(ch *agent.Change) { ch.Want = gpu.Want{Config: &gpu.PartitionConfig{}} },
		"a pool without a name":  func(ch *agent.Change) { ch.Want = gpu.Want{Pool: &gpu.PoolConfig{ID: "hv01/render"}} },
		"a share without a name": func(ch *agent.Change) { ch.Want = gpu.Want{Share: &gpu.Share{Host: "n01"}} },
		"a prior without an id":  func(ch *agent.Change) { ch.Prior = gpu.Want{Config: &gpu.PartitionConfig{}} },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			edit(&bad)
			_, err := r.Prepare(t.Context(), bad)
			wantCode(t, err, agent.BadRequest)
			_, err = r.Client.Apply(t.Context(), r.fence, bad, "", nil)
			wantCode(t, err, agent.BadRequest)
		})
	}
	t.Run("basis of something else", func(t *testing.T) {
		_, err := r.Client.Apply(t.Context(), r.fence, good, "nonsense", nil)
		wantCode(t, err, agent.BadRequest)
	})
	t.Run("no run", func(t *testing.T) {
		_, err := r.AcquireLease(t.Context(), agent.LeaseRequest{})
		wantCode(t, err, agent.BadRequest)
	})
}

// TestLargeHost moves a host with 1,000 VMs through calls and errors.
func TestLargeHost(t *testing.T) {
	const n = 1000
	r := newRig(t, func(h *gpu.Host) {
		for i := range n {
			vm := h.VMs[2]
			vm.ID, vm.Name = fmt.Sprintf("CCCCCCCC-0000-0000-0000-%012d", i), strings.Repeat("long name ", 20)+fmt.Sprint(i)
			h.VMs = append(h.VMs, vm)
		}
	})
	check(t, r.fleet.SetGuest(t.Context(), run1, simulated.Guest{StartFails: simulated.StartFailsWithGPU}))
	_, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil)))
	e := codeOf(t, err, agent.StepFailed)
	if got := len(e.Outcome.Host.VMs); got != n+4 {
		t.Errorf("the outcome has %d VMs", got)
	}
}

// What a run has applied it can undo until it settles it: another change of the run in between, and
// the lease taken anew, as over a connection that replaces a broken one, do not end that.
func TestWhatARunAppliedStaysItsOwn(t *testing.T) {
	r := newRig(t, func(h *gpu.Host) {
		another := h.VMs[2]
		another.ID, another.Name = "CCCCCCCC-0000-0000-0000-000000000001", "another"
		h.VMs = append(h.VMs, another)
	})
	first := assign("a", "vm3", nil, partitionOf(off1, nil))
	_, err := r.Client.Apply(t.Context(), r.fence, first, "", nil)
	check(t, err)
	again, err := r.AcquireLease(t.Context(), lease("run-1"))
	check(t, err)
	second := assign("b", "another", nil, partitionOf("CCCCCCCC-0000-0000-0000-000000000001", nil))
	_, err = r.Client.Apply(t.Context(), again, second, "", nil)
	check(t, err)
	r.wantJournal(2)
	_, err = r.Settle(t.Context(), again, first.ID, true)
	check(t, err)
	if n := len(r.vm("off-1").PartitionAdapters); n != 0 {
		t.Errorf("the VM of the change that was undone has %d adapters", n)
	}
	if n := len(r.vm("another").PartitionAdapters); n != 1 {
		t.Errorf("the VM of the other change has %d adapters", n)
	}
}
