package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// failStarts lets the next starts of VMs fail; 0 means all of them until repair.
func (r *rig) failStarts(times int) {
	r.t.Helper()
	check(r.t, r.fleet.InjectFault(r.t.Context(), host, simulated.Fault{
		Op: simulated.OpStartVM, Times: times, Code: backend.Insufficient, Detail: "0x800705AA",
	}))
}

// repair takes all faults from the host.
func (r *rig) repair() {
	r.t.Helper()
	check(r.t, r.fleet.EditSimulation(r.t.Context(), host, func(s *simulated.Simulation) { s.Faults = nil }))
}

// wantPower checks that all VMs that ran run. Those that were off may do as they like.
func (r *rig) wantPower(before gpu.Host) {
	r.t.Helper()
	for _, vm := range before.VMs {
		if now := r.vm(vm.Name); vm.Runs() && !now.Runs() {
			r.t.Errorf("VM %s ran and is %s", vm.Name, now.State)
		}
	}
}

func (r *rig) wantOwed(names ...string) {
	r.t.Helper()
	var got []string
	for _, d := range r.state().PendingStarts {
		got = append(got, d.Name)
	}
	if d := cmp.Diff(names, got); d != "" {
		r.t.Errorf("owed a start (-want +got):\n%s", d)
	}
}

// TestStartsThatFail lets a number of starts fail from each start of each change on. While
// a VM is off, the error and the inventory say so; whoever takes the lease when the fault
// is gone starts it: the next run, or reconcile.
func TestStartsThatFail(t *testing.T) {
	next := map[string]func(*rig){
		"the next run": func(r *rig) { r.clock.advance(2 * time.Minute); r.restart("run-2") },
		"the same run": func(r *rig) { r.acquire("run-1") },
		"its end":      func(r *rig) { check(r.t, r.ReleaseLease(r.t.Context(), r.fence)) },
		"reconcile": func(r *rig) {
			check(r.t, r.ReleaseLease(r.t.Context(), r.fence))
			_, err := r.anotherAgent().Reconcile(r.t.Context(), 0)
			check(r.t, err)
		},
	}
	tried := 0
	for _, s := range scenarios() {
		p := s.prepare(t)
		if !p.restarts {
			continue
		}
		tried++
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, times := range []int{1, 2, 5, 0} {
				for name, settle := range next {
					t.Run(fmt.Sprintf("%d, %s", times, name), func(t *testing.T) {
						r := p.rig(t)
						r.failStarts(times)
						err := p.run(t, r)
						e := codeOf(t, err, agent.StepFailed)
						if times > 0 {
							wantSame(t, p.before, r.look()) // the undo tried again
						}
						seen, err := r.Inventory(t.Context())
						check(t, err)
						for _, vm := range p.before.VMs {
							if now := r.vm(vm.Name); !vm.Runs() || now.Runs() {
								continue
							}
							if said := e.Error(); !strings.Contains(said, "VM "+vm.Name+" is off") {
								t.Errorf("the error does not say that VM %s is off: %s", vm.Name, said)
							}
							if d, ok := seen.Owes(vm.ID); !ok || d.Name != vm.Name || d.Subject != p.change.Subject {
								t.Errorf("the inventory does not show that VM %s is owed a start: %+v", vm.Name, seen.PendingStarts)
							}
						}
						r.repair()
						settle(r)
						r.wantPower(p.keepsOn())
						r.wantOwed()
						r.wantJournal(0)
					})
				}
			}
		})
	}
	if tried < 5 {
		t.Errorf("%d changes start a VM", tried)
	}
}

// TestAVMThatCannotStartBlocksNobody has a VM that is owed a start and does not start: other
// changes of its host are made, and the change that lets it start ends its debt.
func TestAVMThatCannotStartBlocksNobody(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	r.failStarts(0)
	if _, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil))); err == nil {
		t.Fatal("the change succeeded")
	}
	r.wantOwed("run-1")
	r.restart("run-1")
	r.done(assign("b", "vm3", nil, partitionOf(off1, nil)))
	r.wantOwed("run-1")
	if d := r.state().PendingStarts[0]; !strings.Contains(d.Why, "0x800705AA") || d.Since.IsZero() {
		t.Errorf("the debt is %+v", d)
	}
	check(t, r.sim.Update(t.Context(), func(*backend.State) error { return nil }))
	r.repair()
	// The change of the VM itself starts it at its end.
	r.done(assign("c", "vm1", nil, partitionOf(run1, nil)))
	if vm := r.vm("run-1"); !vm.Runs() || len(vm.PartitionAdapters) != 1 {
		t.Errorf("VM = %+v", vm)
	}
	r.wantOwed()
}

// TestWhatIsNotOwed ends a debt without a start.
func TestWhatIsNotOwed(t *testing.T) {
	for name, settle := range map[string]func(*rig){
		"a person started it": func(r *rig) { check(r.t, r.fleet.SetVMState(r.t.Context(), "run-1", gpu.VMRunning)) },
		"it was deleted": func(r *rig) {
			check(r.t, r.fleet.Edit(r.t.Context(), func(s *gpu.Snapshot) error {
				s.Hosts[0].VMs = s.Hosts[0].VMs[1:]
				return nil
			}))
		},
		"its owner wants it to stay off": func(r *rig) {
			r.done(assign("b", "vm1", nil, partitionOf(run1, func(a *gpu.Assignment) { a.Power.StayOff = true })))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, onlyOneGPUP)
			r.failStarts(0)
			if _, err := r.apply(assign("a", "vm1", nil, partitionOf(run1, nil))); err == nil {
				t.Fatal("the change succeeded")
			}
			r.wantOwed("run-1")
			settle(r)
			r.repair()
			before := r.look()
			r.acquire("run-1")
			wantSame(t, before, r.look())
			r.wantOwed()
		})
	}
}

// TestSettingsGoBackAfterAnUpdateThatFailed changes which settings an assignment has, and fails
// half-way: a destroy puts back those of the claim of before as well.
func TestSettingsGoBackAfterAnUpdateThatFailed(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	before := r.vm("run-1").Settings
	first := partitionOf(run1, func(a *gpu.Assignment) { a.Settings.GuestControlledCache = new(true) })
	second := partitionOf(run1, func(a *gpu.Assignment) { a.Settings.AutomaticStopAction = new(gpu.StopSave) })
	r.done(assign("a", "vm1", nil, first))
	r.failStarts(0)
	if _, err := r.apply(assign("b", "vm1", first, second)); err == nil {
		t.Fatal("the change succeeded")
	}
	r.repair()
	r.done(assign("c", "vm1", first, nil))
	if d := cmp.Diff(before, r.vm("run-1").Settings); d != "" {
		t.Errorf("settings (-before +after):\n%s", d)
	}
	r.wantPower(r.look())
}

// TestStayOffIsNotOwed stops a VM whose owner wants it to stay off afterwards.
func TestStayOffIsNotOwed(t *testing.T) {
	r := newRig(t, onlyOneGPUP)
	stayOff := func(a *gpu.Assignment) { a.Power.StayOff = true }
	r.done(assign("a", "vm1", nil, partitionOf(run1, stayOff)))
	r.wantOwed()
	r.acquire("run-1")
	if vm := r.vm("run-1"); vm.Runs() {
		t.Error("the VM was started")
	}
}
