package agent_test

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// TestInventoryOfAHalfChangedHost lets the agent die after each write of each change. Until
// the next run has put the change back, who looks at the host sees it as it was, and no
// rule has anything against making the change again.
func TestInventoryOfAHalfChangedHost(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := s.prepare(t)
			p.everyWrite(t, func(t *testing.T, at int) {
				r := p.rig(t)
				r.breaker.arm(at, dieAfter)
				if p.run(t, r) == nil {
					t.Fatal("the change succeeded")
				}
				r.start()
				if j, err := r.Journal(t.Context()); err != nil || len(j.Changes) == 0 || j.Changes[0].Status != "running" {
					check(t, err)
					return // nothing was begun, or all was made
				}
				now, err := r.Inventory(t.Context())
				check(t, err)
				if len(now.Unfinished) != 1 || now.Unfinished[0] != s.change.Subject {
					t.Errorf("unfinished is %q", now.Unfinished)
				}
				world := rules.World{World: whatif.World{Hosts: map[string]*gpu.Host{host: &now}, Owner: owner}}
				plan := change.Change{Subject: s.change.Subject, Token: s.change.Token, Want: s.change.Want, Prior: s.change.Prior}
				for _, f := range rules.Check(world, plan, nil, rules.HostScope) {
					if f.Level == rules.Error {
						t.Errorf("a rule forbids it: %+v", f)
					}
				}
				if now.HeldBy == nil || now.HeldBy.Run == "" || now.HeldBy.Of != "the host" {
					t.Errorf("it is held by %v", now.HeldBy)
				}
				now.Unfinished, now.HeldBy = nil, nil
				wantSame(t, withoutSlices(p.before), withoutSlices(anonymized(t, now)))
			})
		})
	}
}

// withoutSlices is a host without time slices that are nobody's choice: a GPU that comes
// out of MIG mode tells one only then.
func withoutSlices(h gpu.Host) gpu.Host {
	h.GPUs = slices.Clone(h.GPUs)
	for i := range h.GPUs {
		if h.GPUs[i].TimeSlice == gpu.TimeSliceDefault {
			h.GPUs[i].TimeSlice = ""
		}
	}
	return h
}

// TestAnUndoThatFindsNoRoom has the room of a VM that a dead run has shut down taken meanwhile.
// A plan does not say that the VM runs again, and so that it is shut down once more.
func TestAnUndoThatFindsNoRoom(t *testing.T) {
	for _, write := range []string{"shut down", "remove adapter"} {
		t.Run(write, func(t *testing.T) {
			r := newRig(t, onlyOneGPUP)
			given := partitionOf(run1, nil)
			r.done(layout("c", "config", nil, config("vdi", 1, gpuP1)), assign("a", "vm1", nil, given))
			r.killedWith(assign("a", "vm1", given, nil), write)
			_, err := r.sim.AddPartitionAdapter(t.Context(), off1, gpu.PartitionAdapter{PinnedGPU: gpuP1})
			check(t, err)
			check(t, r.sim.StartVM(t.Context(), off1))
			r.start()
			shown, err := r.Inventory(t.Context())
			check(t, err)
			r.restart("run-2")
			then, err := r.Inventory(t.Context())
			check(t, err)
			for _, h := range []gpu.Host{shown, then} {
				vm, _ := h.VM(run1)
				if _, owed := h.Owes(run1); vm.State != gpu.VMOff || !owed || len(vm.PartitionAdapters) != 1 {
					t.Errorf("owed is %v, and the VM %+v", h.PendingStarts, vm)
				}
			}
		})
	}
}
