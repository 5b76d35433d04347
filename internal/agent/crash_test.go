package agent_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// prepared is a scenario on the point of its change.
type prepared struct {
	scenario
	fleet  *others.Fleet // as it is before the change
	before gpu.Host      // the host before the change
	after  gpu.Host      // and after it
	writes int           // how many writes the change makes
	// restarts is true when it starts VMs.
	restarts bool
}

// prepare brings a scenario to the point of its change, and learns from a run
// without a failure what the change does.
func (s scenario) prepare(t *testing.T) prepared {
	t.Helper()
	r := newRig(t, s.edit)
	r.done(s.before...)
	p := prepared{scenario: s, fleet: copyFleet(t, r.fleet), before: r.look()}
	r.breaker.arm(0, failBefore)
	r.breaker.hook = func(write string) { p.restarts = p.restarts || write == "start" }
	if err := p.run(t, r); err != nil {
		t.Fatalf("without a failure: %v", err)
	}
	p.writes, p.after = r.breaker.count(), r.look()
	return p
}

// everyScenario prepares each change in a test of its own, all beside each other.
func everyScenario(t *testing.T, try func(t *testing.T, p prepared)) {
	t.Helper()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			try(t, s.prepare(t))
		})
	}
}

// keepsOn is the host as it was before, without the VM whose power state the change is about.
func (p prepared) keepsOn() gpu.Host {
	h := p.before
	if a := p.change.Act; a == change.ActStart || a == change.ActStop {
		h.VMs = slices.DeleteFunc(slices.Clone(h.VMs), func(vm gpu.VM) bool { return vm.ID == p.change.Want.Assignment.VMID })
	}
	return h
}

func (p prepared) rig(t *testing.T) *rig {
	t.Helper()
	return copyOf(t, p.fleet)
}

func (p prepared) run(t *testing.T, r *rig) error {
	t.Helper()
	_, err := r.Client.Apply(t.Context(), r.fence, p.change, "", nil)
	return err
}

// moments calls f for the writes of a change, each as a test of its own, so that its rig is
// freed when it ends, until f says that there are no more. -short takes a sample: always the
// same one, the first write and an eighth of the others. `make crash-matrix` takes all.
func (p prepared) moments(t *testing.T, f func(t *testing.T, at int) (more bool)) {
	t.Helper()
	for at, more := 1, true; more && !t.Failed(); at++ {
		sum := fnv.New32a()
		_, _ = fmt.Fprint(sum, t.Name(), at)
		if testing.Short() && at > 1 && sum.Sum32()%8 > 0 {
			more = at < p.writes
			continue
		}
		t.Run(fmt.Sprintf("write %d", at), func(t *testing.T) { more = f(t, at) })
	}
}

// everyWrite is moments for the writes that the change makes when nothing fails.
func (p prepared) everyWrite(t *testing.T, f func(t *testing.T, at int)) {
	t.Helper()
	p.moments(t, func(t *testing.T, at int) bool {
		t.Helper()
		f(t, at)
		return at < p.writes
	})
}

// TestApplyAndUndo makes each change and then undoes it, as when another host of the
// same change failed.
func TestApplyAndUndo(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, s.edit)
			r.done(s.before...)
			before := r.look()
			out, err := r.apply(s.change)
			if err != nil {
				t.Fatal(err)
			}
			if out.Host.Name != host || len(out.Done) == 0 || out.RolledBack || len(out.Stands) > 0 {
				t.Errorf("outcome = %+v", out)
			}
			if s.change.Act != change.ActRestart && cmp.Equal(before, r.look()) {
				t.Fatal("the change changed nothing")
			}
			for _, vm := range (prepared{scenario: s, before: before}).keepsOn().VMs {
				if now := r.vm(vm.Name); now.State != vm.State {
					t.Errorf("VM %s was %s and is %s", vm.Name, vm.State, now.State)
				}
			}
			undone, err := r.Settle(t.Context(), r.fence, s.change.ID, true)
			if err != nil || !undone.RolledBack {
				t.Fatalf("undo: %+v, %v", undone.Stands, err)
			}
			wantSame(t, before, r.look())
			r.wantJournal(0)
		})
	}
}

// TestFailureAtEveryWrite lets each write of each change fail once, before and after
// it took effect: the host must be as it was.
func TestFailureAtEveryWrite(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		p.everyWrite(t, func(t *testing.T, at int) {
			for _, m := range []mode{failBefore, failAfter} {
				t.Run(m.String(), func(t *testing.T) {
					r := p.rig(t)
					r.breaker.arm(at, m)
					err := p.run(t, r)
					if r.breaker.struck == "refresh" { // derived files undo nothing
						if err != nil {
							t.Fatal(err)
						}
						return
					}
					if err == nil {
						t.Fatal("the change succeeded")
					}
					wantSame(t, p.before, r.look())
					r.wantJournal(0)
				})
			}
		})
	})
}

// TestDeathAtEveryWrite lets the agent die at each write of each change: the next run
// must find the host as it was, or as it was wanted.
func TestDeathAtEveryWrite(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		p.everyDeath(t, func(t *testing.T, r *rig) {
			r.clock.advance(2 * time.Minute)
			r.restart("run-2")
			if now := r.look(); !cmp.Equal(p.after, now) {
				wantSame(t, p.before, now)
			}
			r.wantJournal(0)
		})
	})
}

// everyDeath has the agent die before and after each write of the change.
func (p prepared) everyDeath(t *testing.T, then func(t *testing.T, r *rig)) {
	p.everyWrite(t, func(t *testing.T, at int) {
		for _, m := range []mode{dieBefore, dieAfter} {
			t.Run(m.String(), func(t *testing.T) {
				r := p.rig(t)
				r.breaker.arm(at, m)
				if p.run(t, r) == nil {
					t.Fatal("the change succeeded")
				}
				then(t, r)
			})
		}
	})
}

// TestDeathWhilePuttingBack lets a write fail, the agent die at each write of putting
// things back, and the next run finish that.
func TestDeathWhilePuttingBack(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		p.moments(t, func(t *testing.T, at int) (died bool) {
			r := p.rig(t)
			r.breaker.arm(p.writes, failBefore)
			r.breaker.hook = func(string) {
				r.breaker.mu.Lock()
				defer r.breaker.mu.Unlock()
				if r.breaker.writes == p.writes+at {
					died, r.breaker.dead = true, true // this write still happens
				}
			}
			if p.run(t, r) == nil {
				t.Fatal("the change succeeded")
			}
			r.breaker.hook = nil
			r.clock.advance(2 * time.Minute)
			r.restart("run-2")
			wantSame(t, p.before, r.look())
			r.wantJournal(0)
			if at == 1 && !died {
				t.Error("nothing was put back")
			}
			return died
		})
	})
}

// TestPuttingBackOnAFullDisk lets a write of putting things back fail while nothing of it can be
// recorded. The next run begins again where the records say, whatever is back already.
func TestPuttingBackOnAFullDisk(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		p.moments(t, func(t *testing.T, at int) (failed bool) {
			r := p.rig(t)
			r.breaker.arm(p.writes, failBefore)
			r.breaker.everyWrite = func(n int) {
				r.breaker.mu.Lock()
				defer r.breaker.mu.Unlock()
				if n == p.writes {
					r.breaker.at, r.breaker.noWrites = n+at, true
				}
				failed = failed || n == p.writes+at
			}
			if p.run(t, r) == nil {
				t.Fatal("the change succeeded")
			}
			r.clock.advance(2 * time.Minute)
			r.start()
			_, err := r.AcquireLease(t.Context(), lease("run-2"))
			check(t, err)
			wantSame(t, p.before, r.look())
			r.wantJournal(0)
			return failed
		})
	})
}

// TestDeathInRecovery lets the run that puts things back die as well.
func TestDeathInRecovery(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		if p.writes < 2 {
			return // it is made by one write, and never put back
		}
		p.moments(t, func(t *testing.T, at int) (died bool) {
			r := p.rig(t)
			r.breaker.arm(p.writes*2/3, dieAfter)
			if p.run(t, r) == nil {
				t.Fatal("the change succeeded")
			}
			r.clock.advance(2 * time.Minute)
			r.start()
			r.breaker.arm(at, dieAfter)
			_, err := r.AcquireLease(t.Context(), lease("run-2"))
			r.clock.advance(2 * time.Minute)
			r.restart("run-3")
			wantSame(t, p.before, r.look())
			r.wantJournal(0)
			return err != nil
		})
	})
}

// TestFailureInRecovery lets one write fail while a dead run's change is put back: who comes
// then ends that.
func TestFailureInRecovery(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		for last := range min(p.writes, 5) { // of which some start VMs
			p.moments(t, func(t *testing.T, at int) (failed bool) {
				r := p.rig(t)
				p.die(t, r, p.writes-last)
				r.breaker.arm(at, failBefore)
				_, _ = r.AcquireLease(t.Context(), lease("run-2")) // it may refuse what stands
				failed = r.breaker.struck != ""
				r.breaker.arm(0, failBefore)
				r.clock.advance(2 * time.Minute)
				r.restart("run-3")
				if now := r.look(); !cmp.Equal(p.after, now) {
					wantSame(t, p.before, now)
				}
				r.wantJournal(0)
				return failed
			})
		}
	})
}

// TestVMThatCannotBeStoppedInRecovery has no VM shut down any more once a run has died: what
// cannot be put back stands, and all VMs run that ran.
func TestVMThatCannotBeStoppedInRecovery(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		p.everyWrite(t, func(t *testing.T, at int) {
			r := p.rig(t)
			p.die(t, r, at)
			r.breaker.refuse = []string{"shut down", "turn off"}
			for range 3 {
				_, _ = r.AcquireLease(t.Context(), lease("run-2"))
				r.clock.advance(2 * time.Minute)
			}
			r.restart("run-3")
			r.wantPower(p.keepsOn())
			r.wantJournal(0)
		})
	})
}

// TestVMThatPeopleStartBeforeRecovery has people start what a dead run left off, and pause or save
// it then. Nobody stops or starts it again for putting back what it has, and nobody is kept from
// the host for it.
func TestVMThatPeopleStartBeforeRecovery(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		p.everyWrite(t, func(t *testing.T, at int) {
			r := p.rig(t)
			p.die(t, r, at)
			rest := []gpu.VMState{gpu.VMRunning, gpu.VMPaused, gpu.VMSaved}[at%3]
			kept := p.keepsOn()
			kept.VMs = slices.Clone(kept.VMs)
			for i, vm := range kept.VMs {
				if now := r.vm(vm.Name); !vm.Runs() || now.Runs() {
					continue
				}
				if r.fleet.SetVMState(t.Context(), vm.ID, gpu.VMRunning) != nil {
					return // with what it has it does not start
				}
				check(t, r.fleet.SetVMState(t.Context(), vm.ID, rest))
				kept.VMs[i].State = rest
			}
			told, err := r.Inventory(t.Context())
			check(t, err)
			r.restart("run-2")
			for _, vm := range kept.VMs {
				if now := r.vm(vm.Name); (vm.Runs() || vm.State == rest) && now.State != vm.State {
					t.Errorf("VM %s was %s, and the recovery has left it %s", vm.Name, vm.State, now.State)
				}
			}
			r.wantJournal(0)
			told.Unfinished, told.HeldBy = nil, nil
			if d := cmp.Diff(withoutSlices(anonymized(t, told)), withoutSlices(r.look())); d != "" {
				t.Errorf("the plan saw another host than the recovery made:\n%s", d)
			}
		})
	})
}

// die makes the change until the agent dies after a write, and starts another after its lease.
func (p prepared) die(t *testing.T, r *rig, at int) {
	t.Helper()
	r.breaker.arm(at, dieAfter)
	if p.run(t, r) == nil {
		t.Fatal("the change succeeded")
	}
	r.clock.advance(2 * time.Minute)
	r.start()
}
