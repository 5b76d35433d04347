package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
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

// steps are the ops of a prepared change.
func (r *rig) steps(ch agent.Change) []change.Op {
	r.t.Helper()
	p, err := r.Prepare(r.t.Context(), ch)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(p.Findings) > 0 {
		r.t.Logf("findings: %+v", p.Findings)
	}
	return ops(p.Steps)
}

func (r *rig) wantSteps(ch agent.Change, want ...change.Op) {
	r.t.Helper()
	if d := cmp.Diff(want, r.steps(ch), cmpopts.EquateEmpty()); d != "" {
		r.t.Errorf("steps (-want +got):\n%s", d)
	}
}

// TestAssignmentSteps checks that only what differs is touched.
func TestAssignmentSteps(t *testing.T) {
	withCache := partitionOf(run1, func(a *gpu.Assignment) { a.Settings.GuestControlledCache = new(true) })
	stopAction := partitionOf(run1, func(a *gpu.Assignment) { a.Settings.AutomaticStopAction = new(gpu.StopShutDown) })
	stayOff := partitionOf(run1, func(a *gpu.Assignment) { a.Power.StayOff = true })
	nextOff := partitionOf(run1, func(a *gpu.Assignment) { a.Power = gpu.Power{NextOff: true} })
	otherPower := partitionOf(run1, func(a *gpu.Assignment) { a.Power.ForceShutdown = true })
	plain := partitionOf(run1, nil)
	dda := pools("p0", "pool", nil, pool("dda", gpuD1, gpuD2))
	claimOnly := func(ch agent.Change) agent.Change {
		ch.ClaimOnly = true
		return ch
	}
	for _, tt := range []struct {
		name   string
		before []agent.Change
		ch     agent.Change
		want   []change.Op
	}{
		{
			name: "a VM that is off is not started", ch: assign("x", "t", nil, partitionOf(off1, nil)),
			want: []change.Op{change.OpAddAdapter, change.OpPutClaim},
		},
		{
			name: "a VM that shall stay off", ch: assign("x", "t", nil, stayOff),
			want: []change.Op{change.OpStopVM, change.OpAddAdapter, change.OpPutClaim},
		},
		{
			name: "settings and partition in one stop", ch: assign("x", "t", nil, withCache),
			want: []change.Op{change.OpStopVM, change.OpVMSettings, change.OpAddAdapter, change.OpPutClaim, change.OpStartVM},
		},
		{
			name: "as wanted already", before: []agent.Change{assign("a", "t", nil, plain)}, ch: assign("x", "t", plain, plain),
			want: []change.Op{change.OpPutClaim},
		},
		{
			name: "another power policy", before: []agent.Change{assign("a", "t", nil, plain)}, ch: assign("x", "t", plain, otherPower),
			want: []change.Op{change.OpPutClaim},
		},
		{
			name: "a setting that needs no stop", before: []agent.Change{assign("a", "t", nil, plain)}, ch: assign("x", "t", plain, stopAction),
			want: []change.Op{change.OpVMSettings, change.OpPutClaim},
		},
		{name: "at the next power-off", ch: assign("x", "t", nil, nextOff), want: []change.Op{change.OpPutClaim}},
		{
			name: "from a pool to a partition in one stop", before: []agent.Change{dda, assign("a", "t", nil, poolFor(run1, "dda", 1))},
			ch:   assign("x", "t", poolFor(run1, "dda", 1), plain),
			want: []change.Op{change.OpStopVM, change.OpRemoveDevices, change.OpAddAdapter, change.OpPutClaim, change.OpStartVM},
		},
		{
			name: "another GPU pinned", before: []agent.Change{assign("a", "t", nil, plain)},
			ch:   assign("x", "t", plain, partitionOf(run1, func(a *gpu.Assignment) { a.Partition.PinnedGPU = gpuP2 })),
			want: []change.Op{change.OpStopVM, change.OpRemoveAdapters, change.OpAddAdapter, change.OpPutClaim, change.OpStartVM},
		},
		{
			name: "a device is dismounted before the stop", ch: assign("x", "t", nil, deviceFor(run1, gpuD1)),
			want: []change.Op{change.OpDismount, change.OpStopVM, change.OpAddDevice, change.OpPutClaim, change.OpStartVM},
		},
		{
			name: "and mounted back after it leaves", before: []agent.Change{assign("a", "t", nil, deviceFor(run1, gpuD1))},
			ch:   assign("x", "t", deviceFor(run1, gpuD1), nil),
			want: []change.Op{change.OpStopVM, change.OpRemoveDevices, change.OpMount, change.OpDropClaim, change.OpStartVM},
		},
		{
			name: "one more GPU of the pool", before: []agent.Change{dda, assign("a", "t", nil, poolFor(off1, "dda", 1))},
			ch: assign("x", "t", poolFor(off1, "dda", 1), poolFor(off1, "dda", 2)), want: []change.Op{change.OpAddDevice, change.OpPutClaim},
		},
		{name: "only the claim", ch: claimOnly(assign("x", "t", nil, plain)), want: []change.Op{change.OpPutClaim}},
		{
			name: "only the claim, away", before: []agent.Change{assign("a", "t", nil, plain)}, ch: claimOnly(assign("x", "t", plain, nil)),
			want: []change.Op{change.OpDropClaim},
		},
		{name: "delete what somebody else took over", before: []agent.Change{assign("a", "t", nil, plain)}, ch: assign("x", "other", plain, nil)},
		{name: "delete what was never claimed", ch: assign("x", "t", plain, nil)},
		{name: "delete with the VM gone", ch: assign("x", "t", partitionOf("CCCCCCCC-0000-0000-0000-000000000001", nil), nil)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.done(tt.before...)
			r.wantSteps(tt.ch, tt.want...)
			r.done(tt.ch)
		})
	}
}

// TestSettingsPutBack follows a VM's settings through the life of its assignment.
func TestSettingsPutBack(t *testing.T) {
	r := newRig(t, nil)
	original := r.vm("off-1").Settings
	one := partitionOf(off1, func(a *gpu.Assignment) { a.Settings.GuestControlledCache = new(true) })
	two := partitionOf(off1, func(a *gpu.Assignment) {
		a.Settings = gpu.VMSettings{GuestControlledCache: new(true), AutomaticStopAction: new(gpu.StopSave)}
	})
	three := partitionOf(off1, func(a *gpu.Assignment) { a.Settings.AutomaticStopAction = new(gpu.StopShutDown) })
	for _, step := range []struct {
		ch     agent.Change
		want   gpu.VMSettings // written over the original
		before gpu.VMSettings // what the claim remembers
	}{
		{assign("1", "t", nil, one), one.Settings, gpu.VMSettings{GuestControlledCache: new(false)}},
		{assign("2", "t", one, two), two.Settings, gpu.VMSettings{GuestControlledCache: new(false), AutomaticStopAction: new(gpu.StopTurnOff)}},
		{assign("3", "t", two, three), three.Settings, gpu.VMSettings{AutomaticStopAction: new(gpu.StopTurnOff)}},
	} {
		r.done(step.ch)
		if d := cmp.Diff(original.Overlay(step.want), r.vm("off-1").Settings); d != "" {
			t.Errorf("change %s: settings (-want +got):\n%s", step.ch.ID, d)
		}
		if c, _ := r.claim(gpu.ClaimAssignment, off1); !cmp.Equal(c.SettingsBefore, step.before) {
			t.Errorf("change %s: the claim remembers %+v", step.ch.ID, c.SettingsBefore)
		}
	}
	r.done(assign("4", "t", three, nil))
	if d := cmp.Diff(original, r.vm("off-1").Settings); d != "" {
		t.Errorf("settings after unassign (-want +got):\n%s", d)
	}
	if _, ok := r.claim(gpu.ClaimAssignment, off1); ok {
		t.Error("the claim is still there")
	}
}

// TestUnassignLeavesOthers takes our partition from a VM that has a foreign one too.
func TestUnassignLeavesOthers(t *testing.T) {
	r := newRig(t, nil)
	ours := partitionOf(off1, func(a *gpu.Assignment) { a.Partition.PinnedGPU = gpuP1 })
	r.done(assign("a", "t", nil, ours))
	if _, err := r.fleet.AddForeignAdapter(t.Context(), off1); err != nil {
		t.Fatal(err)
	}
	r.done(assign("x", "t", ours, nil))
	got := r.vm("off-1").PartitionAdapters
	if len(got) != 1 || got[0].PinnedGPU != "" {
		t.Errorf("adapters = %+v", got)
	}
}

// TestForeignPartition checks that a VM with a foreign partition is refused by the
// rule, and that where the rule is off the foreign one stays.
func TestForeignPartition(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.fleet.AddForeignAdapter(t.Context(), off1); err != nil {
		t.Fatal(err)
	}
	ch := assign("a", "t", nil, partitionOf(off1, func(a *gpu.Assignment) { a.Partition.PinnedGPU = gpuP1 }))
	_, err := r.Client.Apply(t.Context(), r.fence, ch, "", nil)
	if e := codeOf(t, err, agent.RuleViolation); e.Findings[0].Rule != "single-partition-per-vm" {
		t.Errorf("findings = %+v", e.Findings)
	}
	ch.Levels = rules.Levels{"single-partition-per-vm": rules.Off}
	r.done(ch)
	if n := len(r.vm("off-1").PartitionAdapters); n != 2 {
		t.Errorf("the VM has %d adapters", n)
	}
}

// TestAdopt deletes an imported assignment that never had a claim.
func TestAdopt(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.fleet.AddForeignAdapter(t.Context(), off1); err != nil {
		t.Fatal(err)
	}
	ch := assign("a", "t", partitionOf(off1, nil), nil)
	ch.Adopt = true
	r.done(ch)
	if n := len(r.vm("off-1").PartitionAdapters); n != 0 {
		t.Errorf("the VM has %d adapters", n)
	}
}

// TestImportThenUpdate keeps the partition of a VM that was imported.
func TestImportThenUpdate(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.fleet.AddForeignAdapter(t.Context(), run1); err != nil {
		t.Fatal(err)
	}
	ch := assign("a", "t", partitionOf(run1, nil), partitionOf(run1, nil))
	r.wantSteps(ch, change.OpPutClaim)
	r.done(ch)
}

func TestTakeover(t *testing.T) {
	withCache := partitionOf(off1, func(a *gpu.Assignment) { a.Settings.GuestControlledCache = new(true) })
	for _, tt := range []struct {
		name  string
		edit  func(*agent.Change)
		prior *gpu.Assignment
		code  agent.Code // "" succeeds
	}{
		{name: "another instance of the same owner"},
		{name: "an update of what was taken over", prior: withCache, code: agent.NotOwner},
		{name: "another owner", edit: func(ch *agent.Change) { ch.Owner = "lab" }, code: agent.NotOwner},
		{name: "no owner", edit: func(ch *agent.Change) { ch.Owner = "" }, code: agent.NotOwner},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.done(assign("a", "old", nil, withCache))
			before := r.look()
			ch := assign("b", "new", tt.prior, withCache)
			ch.Levels = rules.Levels{"not-our-claim": rules.Off, "single-partition-per-vm": rules.Off} // the agent refuses by itself
			if tt.edit != nil {
				tt.edit(&ch)
			}
			_, err := r.apply(ch)
			if tt.code != "" {
				wantCode(t, err, tt.code)
				wantSame(t, before, r.look())
				return
			}
			check(t, err)
			c, _ := r.claim(gpu.ClaimAssignment, off1)
			if c.Token != "new" || c.Revision != 2 || !cmp.Equal(c.SettingsBefore, gpu.VMSettings{GuestControlledCache: new(false)}) {
				t.Errorf("claim = %+v", c)
			}
			// The old instance's delete succeeds and touches nothing.
			before = r.look()
			r.done(assign("c", "old", withCache, nil))
			wantSame(t, before, r.look())
		})
	}
}

// TestBothUnnamed checks that of two states without an owner neither takes over.
func TestBothUnnamed(t *testing.T) {
	r := newRig(t, nil)
	unnamed := func(id, token string) agent.Change {
		ch := assign(id, token, nil, partitionOf(off1, nil))
		ch.Owner = ""
		ch.Levels = rules.Levels{"not-our-claim": rules.Off, "single-partition-per-vm": rules.Off}
		return ch
	}
	r.done(unnamed("a", "one"))
	_, err := r.apply(unnamed("b", "two"))
	wantCode(t, err, agent.NotOwner)
}

// TestNextOff follows an assignment that waits for the VM to be off.
func TestNextOff(t *testing.T) {
	r := newRig(t, nil)
	dda := pools("p0", "pool", nil, pool("dda", gpuD1, gpuD2))
	drawn := poolFor(run1, "dda", 1)
	later := partitionOf(run1, func(a *gpu.Assignment) {
		a.Power.NextOff = true
		a.Settings.GuestControlledCache = new(true)
	})
	r.done(dda, assign("a", "t", nil, drawn), assign("b", "t", drawn, later))
	vm := r.vm("run-1")
	if vm.State != gpu.VMRunning || len(vm.Devices) != 1 || len(vm.PartitionAdapters) != 0 {
		t.Fatalf("VM = %+v", vm)
	}
	c, _ := r.claim(gpu.ClaimAssignment, run1)
	if !c.Pending || c.HeldUntilOff == nil || c.HeldUntilOff.Pool == nil || c.Want.Assignment.Partition == nil || !c.SettingsBefore.Empty() {
		t.Errorf("claim = %+v", c)
	}

	_, err := r.apply(assign("c", "t", later, nil))
	e := codeOf(t, err, agent.RuleViolation)
	if e.Outcome != nil || len(e.Findings) != 1 || e.Findings[0].Rule != "vm-must-be-off" {
		t.Errorf("error = %+v", e)
	}
	if vm = r.vm("run-1"); vm.State != gpu.VMRunning || len(vm.Devices) != 1 || len(vm.PartitionAdapters) != 0 {
		t.Errorf("VM = %+v", vm)
	}

	check(t, r.sim.TurnOffVM(t.Context(), run1))
	r.done(assign("d", "t", later, later))
	vm = r.vm("run-1")
	if vm.State != gpu.VMOff || len(vm.Devices) != 0 || len(vm.PartitionAdapters) != 1 || !*vm.Settings.GuestControlledCache {
		t.Errorf("VM = %+v", vm)
	}
	if c, _ := r.claim(gpu.ClaimAssignment, run1); c.Pending || c.HeldUntilOff != nil {
		t.Errorf("claim = %+v", c)
	}
}

// A VM that is neither off nor running waits as one that runs.
func TestNextOffOfWhatIsNotOff(t *testing.T) {
	for _, state := range []gpu.VMState{gpu.VMRunning, gpu.VMSaved, gpu.VMPaused, gpu.VMStarting, gpu.VMStopping, gpu.VMOther} {
		t.Run(string(state), func(t *testing.T) {
			r := newRig(t, func(h *gpu.Host) {
				vm, _ := h.VM(run1)
				vm.State = state
			})
			want := partitionOf(run1, func(a *gpu.Assignment) { a.Power.NextOff = true })
			r.done(assign("a", "t", nil, want))
			if vm := r.vm("run-1"); vm.State != state || len(vm.PartitionAdapters) > 0 {
				t.Errorf("VM = %+v", vm)
			}
			if c, ok := r.claim(gpu.ClaimAssignment, run1); !ok || !c.Pending {
				t.Errorf("claim = %+v", c)
			}
			check(t, r.fleet.SetVMState(t.Context(), run1, gpu.VMOff))
			r.done(assign("b", "t", want, want))
			if vm := r.vm("run-1"); vm.State != gpu.VMOff || len(vm.PartitionAdapters) != 1 {
				t.Errorf("when it is off: %+v", vm)
			}
		})
	}
}

// TestPower tries what a guest may do against what the assignment allows.
func TestPower(t *testing.T) {
	noRules := rules.Levels{"vm-must-be-off": rules.Off, "policy-gate": rules.Off}
	for _, tt := range []struct {
		name  string
		guest simulated.Guest
		power gpu.Power
		code  agent.Code
		cause backend.Code
	}{
		{name: "not allowed", code: agent.Refused, cause: backend.InvalidState},
		{name: "allowed", power: mayStop},
		{
			name: "locked", guest: simulated.Guest{Locked: true}, power: gpu.Power{AllowShutdown: true, AllowTurnOff: true},
			code: agent.StepFailed, cause: backend.Locked,
		},
		{name: "locked and forced", guest: simulated.Guest{Locked: true}, power: gpu.Power{AllowShutdown: true, ForceShutdown: true}},
		{
			name: "no answer", guest: simulated.Guest{NoIntegration: true}, power: gpu.Power{AllowShutdown: true, ShutdownTimeout: 1e8},
			code: agent.StepFailed, cause: backend.Timeout,
		},
		{
			name: "no answer and turned off", guest: simulated.Guest{NoIntegration: true},
			power: gpu.Power{AllowShutdown: true, AllowTurnOff: true, ShutdownTimeout: 1e8},
		},
		{
			name: "too slow, and started again", guest: simulated.Guest{ShutdownMS: 700},
			power: gpu.Power{AllowShutdown: true, ShutdownTimeout: 1e8},
			code:  agent.StepFailed, cause: backend.Timeout,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, onlyOneGPUP)
			check(t, r.fleet.SetGuest(t.Context(), run1, tt.guest))
			before := r.look()
			ch := assign("a", "t", nil, partitionOf(run1, func(a *gpu.Assignment) { a.Power = tt.power }))
			ch.Levels = noRules
			_, err := r.apply(ch)
			if tt.code != "" {
				e := codeOf(t, err, tt.code)
				if e.Cause == nil || e.Cause.Code != tt.cause {
					t.Errorf("error = %+v", e)
				}
				wantSame(t, before, r.look())
				return
			}
			check(t, err)
			if vm := r.vm("run-1"); vm.State != gpu.VMRunning || len(vm.PartitionAdapters) != 1 {
				t.Errorf("VM = %+v", vm)
			}
		})
	}
}

// TestAVMThatSomebodyStartsAgainIsLeftRunning has people start a VM between two looks at whether it is
// off: it keeps running, although its power might be cut, and the change ends at once.
func TestAVMThatSomebodyStartsAgainIsLeftRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, onlyOneGPUP)
		before := r.look()
		check(t, r.fleet.SetGuest(t.Context(), run1, simulated.Guest{ShutdownMS: 55}))
		r.breaker.hook = func(write string) {
			switch write {
			case "turn off":
				t.Error("its power is cut")
			case "shut down":
				go func() {
					time.Sleep(10 * time.Millisecond)
					for r.sim.StartVM(t.Context(), run1) != nil && t.Context().Err() == nil {
						time.Sleep(time.Millisecond)
					}
				}()
			}
		}
		began := time.Now()
		_, err := r.apply(assign("a", "t", nil, partitionOf(run1, func(a *gpu.Assignment) { a.Power.AllowTurnOff = true })))
		if e := codeOf(t, err, agent.StepFailed); !strings.Contains(e.Error(), "it runs again") || time.Since(began) > time.Second {
			t.Errorf("after %s: %v", time.Since(began), e)
		}
		wantSame(t, before, r.look())
		r.wantJournal(0)
		check(t, r.Close())
	})
}

// TestClaimElsewhere uses the claim that the VM's former host holds: what the VM has
// is ours, what it was before is known, and the next write is the newer one.
func TestClaimElsewhere(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.fleet.AddForeignAdapter(t.Context(), off1); err != nil {
		t.Fatal(err)
	}
	check(t, r.sim.ApplyVMSettings(t.Context(), off1, gpu.VMSettings{GuestControlledCache: new(true)}))
	want := partitionOf(off1, func(a *gpu.Assignment) { a.Settings.GuestControlledCache = new(true) })
	elsewhere := gpu.Claim{
		Kind: gpu.ClaimAssignment, ID: off1, Token: "t", Owner: owner, Want: gpu.Want{Assignment: want},
		SettingsBefore: gpu.VMSettings{GuestControlledCache: new(false)}, Revision: 7,
	}
	ch := assign("a", "t", want, want)
	ch.Claims = []gpu.Claim{elsewhere}
	r.wantSteps(ch, change.OpPutClaim)
	r.done(ch)
	c, _ := r.claim(gpu.ClaimAssignment, off1)
	if c.Revision != 8 || !cmp.Equal(c.SettingsBefore, elsewhere.SettingsBefore) {
		t.Errorf("claim = %+v", c)
	}

	gone := assign("b", "t", want, nil)
	gone.Claims = []gpu.Claim{elsewhere} // older than ours now
	r.done(gone)
	if vm := r.vm("off-1"); len(vm.PartitionAdapters) != 0 || *vm.Settings.GuestControlledCache {
		t.Errorf("VM = %+v", vm)
	}
}
