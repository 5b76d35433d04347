package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// TestAnActDoesWhatItsPlanSays does every sort of act, one after another random change, on random
// fleets, and compares what its plan announced with what the hosts then did.
func TestAnActDoesWhatItsPlanSays(t *testing.T) {
	t.Parallel()
	cases := *planCases
	if cases == 0 {
		if cases = 1000; testing.Short() {
			cases = 400
		}
	}
	total := play(*planSeed, (cases+2*changesPerFleet-1)/(2*changesPerFleet), func(seed uint64) *world {
		w := newWorld(t, seed)
		for range changesPerFleet {
			w.step()
			w.act()
		}
		return w
	})
	t.Logf("acts: %v", total)
	for _, act := range change.Act("").Values() {
		if !t.Failed() && cases >= 1000 && total[act] == 0 {
			t.Errorf("there is no case of %q: %v", act, total)
		}
	}
}

// A VM waits for a GPU that another VM of the same state has by now. What would make its change is
// refused by the plan, and the VM is shut down and started as it is.
func TestAnActOnAVMWhoseChangeCannotBeMade(t *testing.T) {
	t.Parallel()
	w := nodes(t, 1)
	w.turn("vm-11", gpu.VMRunning)
	waits := w.assigned("vm-11", gpu.PartitionWant{})
	a := waits.Want.Assignment
	a.Kind, a.Partition, a.Device, a.Power.NextOff = gpu.AssignDevice, nil, &gpu.DeviceWant{Host: a.Host, GPUIDs: randomDDA[:1]}, true
	for _, p := range []change.Change{waits, w.assigned("vm-12", gpu.PartitionWant{})} {
		if err := w.apply(p); err != nil {
			t.Fatal(err)
		}
	}
	err := w.sim.Edit(t.Context(), func(s *gpu.Snapshot) error {
		h := &s.Hosts[0]
		g, _ := h.GPU(randomDDA[0])
		g.Dismounted, g.Status = true, gpu.Assigned
		h.VMs[1].Devices = []gpu.DeviceAssignment{{ID: "by-hand", GPU: g.ID}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, act := range []change.Act{change.ActPending, change.ActStop, change.ActStart} {
		f := w.run(nil)
		view := f.Snapshot(t.Context(), f.HostNames())
		claim, _ := view.Claim(gpu.ClaimAssignment, a.VMID)
		w.compareAct(f, view, change.ActOn(act, claim))
	}
	if w.counts["acts refused"] != 1 || w.counts[string(change.ActStop)] != 1 || w.counts[string(change.ActStart)] != 1 {
		t.Errorf("of three acts one is to be refused: %v", w.counts)
	}
}

// act does something once with what a host has on record, and compares.
func (w *world) act() {
	defer func() {
		if r := recover(); r != nil && r != any(errDiffers) {
			panic(r)
		}
	}()
	if w.failed || w.cutOff || w.again != nil {
		return
	}
	f := w.run(nil)
	view := f.Snapshot(w.t.Context(), f.HostNames())
	var acts []change.Change
	for name := range w.endpoints {
		h := view.Hosts[name]
		for _, c := range h.Claims {
			switch want := c.Want; {
			case want.Assignment != nil:
				at, err := fleet.FindVM(view, c.ID)
				if claim, ok := view.Claim(gpu.ClaimAssignment, c.ID); err != nil || !ok || claim.Token != c.Token || at.Host != name {
					continue
				}
				a := *want.Assignment
				a.VMID, a.VMName, a.Host = at.VM.ID, at.VM.Name, at.Host
				for _, act := range []change.Act{change.ActPending, change.ActStart, change.ActStop} {
					ch := change.ActOn(act, c)
					ch.Want.Assignment = &a
					acts = append(acts, ch)
				}
			case want.Config != nil && want.Config.Kind == gpu.KindGPUP:
				acts = append(acts, change.ActOn(change.ActDrain, c))
				if h.NodeState() == gpu.NodePaused { // where nothing else is changed
					acts = []change.Change{change.ActOn(change.ActResume, c)}
				}
			case want.Config != nil && want.Config.MPS != nil:
				acts = append(acts, change.ActOn(change.ActRestart, c))
			}
		}
	}
	if len(acts) == 0 {
		return
	}
	slices.SortFunc(acts, func(a, b change.Change) int {
		return strings.Compare(wantText(a.Want)+string(a.Act), wantText(b.Want)+string(b.Act))
	})
	w.compareAct(f, view, pick(w, acts...))
}

func (w *world) compareAct(f *fleet.Fleet, view fleet.View, ch change.Change) {
	w.note("%s of %s", ch.Act, wantText(ch.Want))
	says := announced{saw: view.Hosts, starts: map[string]bool{}, counts: map[string]int{}, ofLinux: ofLinux{gpus: map[string]cardLayout{}}}
	findings := f.CheckAlone(view, ch)
	if !slices.ContainsFunc(findings, func(x rules.Finding) bool { return x.Level == rules.Error }) {
		findings = f.Refused(view, ch)
	}
	for _, x := range findings {
		if x.Level == rules.Error {
			says.errors = append(says.errors, x)
		}
	}
	for _, x := range f.Forecasts(view, ch) {
		w.announce(&says, x, view)
	}
	slices.Sort(says.moves)
	before := says.saw
	w.seen.begin()
	_, err := w.run(nil).Apply(w.t.Context(), fleet.Request{Change: ch})
	after := w.shown()
	switch {
	case len(says.errors) > 0 && err == nil:
		w.fatal("the plan refuses an act that the hosts do: %s %s", says.errors[0].Rule, says.errors[0].Found)
	case len(says.errors) > 0:
		w.note("  refused: %s: %s", says.errors[0].Rule, says.errors[0].Found)
		w.counts["acts refused"]++
		w.untouched(before, after)
		return
	case err != nil:
		w.fatal("the plan of an act is clean, and the hosts refuse: %v", err)
	}
	w.counts[string(ch.Act)]++
	var gives []change.Change
	switch a := ch.Want.Assignment; {
	case ch.Act == change.ActPending:
		gives = append(gives, ch)
	case ch.Act == change.ActStart:
		vm, _ := before[a.Host].VM(a.VMID)
		vm.State = gpu.VMRunning // which is what it is for, and disturbs nobody
	case ch.Act.OnNode():
		want := map[change.Act]gpu.NodeState{change.ActDrain: gpu.NodePaused, change.ActResume: gpu.NodeUp}[ch.Act]
		for name := range ch.Want.Config.GPUs {
			if is := after[name].NodeState(); is != want {
				w.fatal("node %s is %s, and is to be %s", name, is, want)
			}
		}
	}
	w.compareRun(says, after, gives...)
}
