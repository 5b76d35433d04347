package fleet_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestRolloutsThatDrain changes the layout of random clusters under VMs that mostly can migrate, node by
// node. Besides what TestWhatThePlanSaysIsWhatTheHostDoes asks: VMs are where they were afterwards, as
// far as there is room, all nodes are up, and the next plan has nothing to do.
func TestRolloutsThatDrain(t *testing.T) {
	t.Parallel()
	n := 60
	if testing.Short() {
		n = 20
	}
	live := func(seed uint64) *world { return rollOut(t, seed) }
	total := play(1, n, live)
	play(131, 1, live)  // an assignment keeps from the drain that another one alone brings about
	play(1314, 1, live) // several together leave another node no room
	t.Logf("rollouts: %v", total)
	for sort, least := range map[string]int{"applied": 3, "moved": 1} {
		if !t.Failed() && 2*total[sort] < n*least {
			t.Errorf("there are too few cases of %q: %v", sort, total)
		}
	}
}

func rollOut(t *testing.T, seed uint64) (w *world) {
	w = newBareWorld(t, seed, 29)
	defer func() {
		if r := recover(); r != nil && r != any(errDiffers) {
			panic(r)
		}
	}()
	s := hypervHosts(w, 2+w.rng.IntN(4))
	for i := range s.Hosts {
		h := &s.Hosts[i]
		migrates := w.chance(90)
		for k := range h.GPUs {
			if p := h.GPUs[k].Partitionable; p != nil {
				p.SupportsIncomingLiveMigration = &migrates
			}
		}
		for k := range h.VMs {
			vm := &h.VMs[k]
			if vm.Clustered = w.chance(90); vm.Clustered && w.chance(20) {
				vm.PossibleOwners = []string{h.Name, pick(w, s.Hosts...).Name}
			}
		}
	}
	w.start(s)
	for _, vm := range w.vms() {
		w.turn(vm, pick(w, gpu.VMRunning, gpu.VMRunning, gpu.VMRunning, gpu.VMOff))
	}
	config := func() (*resource, change.Change) {
		r, c := w.resource("gpu_partition_config vdi"), w.config("vdi")
		c.Drain = true
		return r, change.Change{Subject: r.label, Token: r.token, Want: gpu.Want{Config: c}, Prior: r.has}
	}
	r, p := config()
	all := []changed{{r, p}}
	for _, vm := range w.vms() {
		if w.chance(60) {
			r, p := w.resource("gpu_vm_assignment for VM "+vm), w.assigned(vm, gpu.PartitionWant{})
			p.Token = r.token
			all = append(all, changed{r, p})
		}
	}
	if w.chance(50) { // a first apply
		w.together(all...)
	} else {
		for _, c := range all {
			w.compare(c.r, c.p)
		}
	}
	for range 3 {
		w.drifting = nil
		r, p := config()
		w.note("%s: %s", r.label, wantText(p.Want))
		w.compare(r, p)
		for name, h := range w.shown() {
			if h.NodeState() != gpu.NodeUp {
				w.fatal("node %s is %s", name, h.NodeState())
			}
			if steps, err := change.Plan(*h, name,
				change.Change{Subject: r.label, Owner: randomOwner, Token: r.token, Want: r.has, Prior: r.has}); err != nil || len(steps) > 0 {
				w.fatal("the next plan changes %s: %v, %v", name, steps, err)
			}
		}
		if next := w.plan(); len(next.errors) > 0 {
			w.fatal("the next plan fails: %v", next.errors)
		}
	}
	return w
}
