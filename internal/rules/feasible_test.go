package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

func feasibleScenarios() []scenario {
	return []scenario{{
		rule: rules.Feasible, name: "pinned to a full GPU", level: rules.Error, path: "vm", change: true,
		says: []string{"VM \"a\" on host \"hv01\"", "no partition is free on GPU " + gpu0},
		build: func() (rules.World, change.Change) {
			w, moves, _ := swap()
			return w, moves
		},
		satisfy: func(w *rules.World, _ *change.Change) { w.Hosts["hv01"].GPUs[0].Partitionable.Count = 2 },
	}}
}

// swap is a host where a and b hold the only partition of a GPU each, and the plan that pins
// a to the GPU of b, and the other way round.
func swap() (w rules.World, a, b change.Change) {
	h := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning))
	pinned := func(name, id string) gpu.Want {
		want := partition(name, "hv01")
		want.Assignment.VMID, want.Assignment.Partition.PinnedGPU = "ID-"+name, id
		return want
	}
	for i, name := range []string{"a", "b"} {
		on := 1 - i
		h.GPUs[on].Partitionable.Count = 1
		holds(h, name, on)
		h.VMs[i].PartitionAdapters[0].PinnedGPU = h.GPUs[on].ID
		claimVM(h, "vdi", name, *pinned(name, h.GPUs[on].ID).Assignment)
	}
	moves := func(name, from, to string) change.Change {
		p := create("claim-"+name, pinned(name, to))
		p.Prior = pinned(name, from)
		return p
	}
	w = world(h)
	w.Others.Put("claim-b", change.Change{Subject: "b", Token: "claim-b", Unchanged: true, Want: pinned("b", gpu0), Prior: pinned("b", gpu0)})
	return w, moves("a", gpu1, gpu0), moves("b", gpu0, gpu1)
}

// What hangs on resources that the run has not planned yet is said when the last of them is
// planned, and by that one: in whatever order Terraform asks, the verdict is one.
func TestWhatTheHostRefusesInEveryOrder(t *testing.T) {
	_, a, b := swap()
	gone := change.Change{Subject: b.Subject, Token: b.Token, Prior: b.Prior}
	stays := change.Change{Subject: b.Subject, Token: b.Token, Prior: b.Prior, Want: b.Prior, Unchanged: true}
	for _, test := range []struct {
		name    string
		b       change.Change
		refused bool
	}{
		{"b stays", stays, true},
		{"b is destroyed", gone, false},
		{"a and b swap full GPUs", b, true},
	} {
		for _, plans := range [][]change.Change{{a, test.b}, {test.b, a}} {
			w, _, _ := swap()
			w.Others = whatif.NewBook()
			var said []string
			for _, p := range plans {
				found := of(rules.Feasible, rules.Check(w, p, nil))
				w.Others.Put(p.Token, p)
				for _, f := range slices.Concat(found, rules.Decided(w, p, nil, nil)) {
					said = append(said, fmt.Sprintf("%s: %s", p.Subject, f.Detail()))
				}
			}
			if (len(said) > 0) != test.refused {
				t.Errorf("%s, %s first: %s", test.name, plans[0].Subject, strings.Join(said, "\n"))
			}
		}
	}
}

// restoredUnder has the destroy of a config that puts its GPUs back, and a VM of this state that
// holds one of its partitions.
func restoredUnder() (w rules.World, ends, user change.Change) {
	h, a := host("hv01", vm("a", gpu.VMRunning)), partition("a", "hv01")
	holds(h, "a", 0)
	claimConfig(h, "vdi", "vdi", 4, gpu0, gpu1)
	h.Claims[0].OriginalLayouts = gpu.Layouts{gpu0: {Partitions: 16}, gpu1: {Partitions: 16}}
	a.Assignment.VMID = "ID-a"
	claimVM(h, "vdi", "a", *a.Assignment)
	was := config("vdi", 4, "hv01")
	was.Config.Restore = true
	w = world(h)
	ends = change.Change{Subject: label(was), Token: "claim-vdi", Prior: was}
	w.Others.Put(ends.Token, ends)
	return w, ends, change.Change{Subject: label(a), Token: "claim-a", Want: a, Prior: a, Unchanged: true}
}

// sharedUnder has the destroy of a pool or config with a share of this state on it.
func sharedUnder(was gpu.Want) func() (w rules.World, ends, user change.Change) {
	return func() (w rules.World, ends, user change.Change) {
		h, s, id := shareServer(), onto(share("a", 0), migGPU0), "ml"
		if was.Pool != nil {
			h, s.Pool, id = pooled(h, was), was.Pool.ID, was.Pool.Name
		} else {
			h = laidOut(h, was)
		}
		w = world(has(h, "vdi", s))
		s.Host = h.Name
		ends = change.Change{Subject: label(was), Token: "claim-" + id, Prior: was}
		return w, ends, change.Change{Subject: label(wantShare(s)), Token: "claim-a", Want: wantShare(s), Prior: wantShare(s), Unchanged: true}
	}
}

// A destroy waits for the plan of who is in its way: one that goes is none, even where it may
// not be stopped, which its own plan says, and one that stays is told. Without an owner too.
func TestADestroyWaitsForThePlansOfItsUsers(t *testing.T) {
	t.Parallel()
	for name, under := range map[string]func() (w rules.World, ends, user change.Change){
		"a VM": restoredUnder, "a share of a pool": sharedUnder(sharePool("team", "gpu01")),
		"a share of a config": sharedUnder(mpsConfig("ml", "gpu01")),
	} {
		for _, owner := range []string{"vdi", ""} {
			for _, goes := range []bool{true, false} {
				for _, userFirst := range []bool{true, false} {
					w, ends, user := under()
					w.Owner = owner
					for _, h := range w.Hosts {
						for i := range h.Claims {
							h.Claims[i].Owner = owner
						}
					}
					if goes {
						user.Want, user.Unchanged = gpu.Want{}, false
					}
					var said []rules.Finding
					ask := func(p change.Change) {
						w.Others.Put(p.Token, p)
						said = append(said, slices.Concat(rules.Check(w, p, nil), rules.Decided(w, p, nil, nil))...)
						said = slices.DeleteFunc(said, func(f rules.Finding) bool {
							return f.Rule != rules.Feasible && f.Rule != "share-placement" && f.Rule != "known-pool"
						})
					}
					w.Others = whatif.NewBook()
					if userFirst {
						ask(user)
					}
					ask(ends)
					if !userFirst {
						if len(said) > 0 {
							t.Errorf("%s, owner %q: before its user is planned the destroy says %+v", name, owner, said)
						}
						if _, does := rules.CheckAndSimulate(w, ends, nil); len(does) != 1 || len(does[0].Refused) > 0 {
							t.Errorf("%s, owner %q: it does %+v", name, owner, does)
						}
						ask(user)
					}
					if goes != (len(said) == 0) || !goes && said[0].Level != rules.Error {
						t.Errorf("%s, owner %q, goes %v, user first %v: %+v", name, owner, goes, userFirst, said)
					}
				}
			}
		}
	}
}

// Of two changes of which only one order works the plan of either says so, whichever is planned
// first: a destroy as well, which asks in words of its own.
func TestOnlyOneOrderWorksWhicheverIsPlannedFirst(t *testing.T) {
	t.Parallel()
	asked := 0
	for _, s := range scenarios() {
		if s.rule != rules.Feasible {
			continue
		}
		for _, token := range []string{"o", "claim-vdi", "claim-a", "claim-ml"} {
			w, p := s.build()
			other, ok := w.Others.Plan(token)
			if !ok || other.Unchanged {
				continue
			}
			said := of(rules.Feasible, rules.Check(w, p, nil))
			w.Others = whatif.NewBook(p)
			says := of(rules.Feasible, rules.Check(w, other, nil))
			if asked++; len(said) != 1 || len(says) != 1 || says[0].Title != said[0].Title || says[0].Found != said[0].Found {
				t.Errorf("%s: one says %+v, and the other %+v", s.name, said, says)
			}
			other.Unchanged = true
			if says := of(rules.Feasible, rules.Check(w, other, nil)); len(says) > 0 {
				t.Errorf("%s: what does not change says %+v", s.name, says)
			}
		}
	}
	if asked < 4 {
		t.Errorf("%d pairs were asked", asked)
	}
}

// mpsGoes has the destroy of a config whose MPS daemon has a client, and gives its GPUs back.
func mpsGoes() (w rules.World, was gpu.Want) {
	was = mpsConfig("ml", "gpu01")
	was.Config.Restore, was.Config.MaxDisruption = true, gpu.DisruptProcessRestart
	h := laidOut(served(shareServer(), placement.Daemons(shareServer(), was.Config, was.Config.GPUs["gpu01"])[0].Name), was)
	h.Claims[0].OriginalLayouts = gpu.Layouts{migGPU0: {ComputeMode: gpu.ComputeDefault}, migGPU1: {ComputeMode: gpu.ComputeDefault}}
	w = world(h)
	w.Others.Put("claim-ml", change.Change{Subject: label(was), Prior: was})
	return w, was
}

// What one resource gives up and another takes over as it is goes from hand to hand: no order of
// the two is asked for.
func TestAHandoverHasNoOrder(t *testing.T) {
	t.Parallel()
	w, was := mpsGoes()
	if got := of(rules.Feasible, rules.Check(w, create("t", was), nil)); len(got) > 0 {
		t.Errorf("the same config under another name: %+v", got)
	}
}

// A daemon that ends takes its server and its clients along, so that they are in nobody's way
// afterwards: the GPU may be divided in the same run, before the destroy or after it.
func TestADaemonEndsWithAllThatItRuns(t *testing.T) {
	t.Parallel()
	w, _ := mpsGoes()
	mig := migConfig("slices", profiles("3g.40gb", 2), "gpu01")
	mig.Config.MaxDisruption = gpu.DisruptProcessRestart
	if got := of(rules.Feasible, rules.Check(w, create("t", mig), nil)); len(got) > 0 {
		t.Errorf("MIG where MPS goes: %+v", got)
	}
}

// MIG mode takes a GPU's compute mode with it, so that one which a config keeps as it lets go of the
// GPU is no reason for an order.
func TestMIGModeEndsAComputeModeThatIsKept(t *testing.T) {
	t.Parallel()
	w, was := mpsGoes()
	less := mpsConfig("ml", "gpu01")
	less.Config.MaxDisruption, less.Config.GPUs = gpu.DisruptProcessRestart, map[string][]string{"gpu01": {migGPU1}}
	w.Others.Put("claim-ml", change.Change{Subject: label(was), Prior: was, Want: less})
	mig := migConfig("slices", profiles("3g.40gb", 2), "gpu01")
	mig.Config.MaxDisruption, mig.Config.GPUs = gpu.DisruptProcessRestart, map[string][]string{"gpu01": {migGPU0}}
	if got := of(rules.Feasible, rules.Check(w, create("t", mig), nil)); len(got) > 0 {
		t.Errorf("MIG where MPS lets go: %+v", got)
	}
}

// A config that goes from one resource to another has an order, since the one that goes waits for
// the other: a destroy that would turn MIG mode off is none then, although the other one may not
// reset the GPUs to turn it on again.
func TestAConfigThatIsHandedOverHasAnOrder(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		first := at("7g.80gb", 0)
		h := gpuServer("hgx01", ampere(h100(migGPU0, first)), ampere(h100(migGPU1, first)))
		was := migConfig("ml", profiles("7g.80gb", 1), h.Name)
		was.Config.Restore, was.Config.MaxDisruption = true, gpu.DisruptGPUReset
		laidOut(h, was)
		off := gpu.Layout{MIG: &gpu.MIGState{}}
		h.Claims[0].OriginalLayouts = gpu.Layouts{migGPU0: off, migGPU1: off}
		becomes := migConfig("ml", profiles("7g.80gb", 1), h.Name)
		if other {
			becomes.Config.ID, becomes.Config.Name = "other", "other"
		}
		ends := change.Change{Subject: "gpu_partition_config.old", Owner: "vdi", Token: "claim-ml", Prior: was}
		makes := change.Change{Subject: "gpu_partition_config.new", Owner: "vdi", Token: "new", Want: becomes}
		for _, plans := range [][]change.Change{{ends, makes}, {makes, ends}} {
			w := world(h)
			w.Others = whatif.NewBook()
			var said []string
			for _, p := range plans {
				found := of(rules.Feasible, rules.Check(w, p, nil))
				w.Others.Put(p.Token, p)
				for _, f := range slices.Concat(found, of(rules.Feasible, rules.Decided(w, p, nil, nil))) {
					said = append(said, f.Title+": "+f.Detail())
				}
			}
			if (len(said) > 0) != other {
				t.Errorf("another config %t, %s first: %s", other, plans[0].Subject, strings.Join(said, "\n"))
			}
		}
	}
}
