package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// guest is a VM that runs once a plan is applied.
type guest struct {
	node      string
	clustered bool
	owners    []string // that it may move to; none for all
	pin       string   // the only GPU that it may have a partition of
	keeps     string   // the GPU that it stays on while its node is up
	least     uint64   // the memory that it needs
}

func (g *guest) wants() *gpu.PartitionWant {
	w := &gpu.PartitionWant{PinnedGPU: g.pin}
	if g.least > 0 {
		w.Quotas.VRAM.Min = ptr(g.least)
	}
	return w
}

// room is a GPU with the partitions that it has once a plan is applied.
type room struct {
	node, gpu string
	up        bool
	free      int
	size      uint64 // 0 where the driver has not said it, as at a count that is yet to be set
}

func (r *room) takes(g guest, failed string) bool {
	if g.pin != "" && g.pin != r.gpu || r.size > 0 && g.least > r.size {
		return false
	}
	if g.node != failed {
		return r.node == g.node && (g.keeps == "" || g.keeps == r.gpu)
	}
	return r.node != failed && r.up && (len(g.owners) == 0 || slices.Contains(g.owners, r.node))
}

// never is more VMs than there are: somebody who does not move has no partition.
const never = 1 << 20

// stayOff is how many VMs of a node stay off at least when it fails: all ways to place all VMs of
// the cluster are tried.
func stayOff(rooms []room, guests []guest, failed string) int {
	known := map[string]int{}
	var least func(i int) int
	least = func(i int) int {
		if i == len(guests) {
			return 0
		}
		g := guests[i]
		if g.node == failed && !g.clustered {
			return least(i + 1)
		}
		at := strconv.Itoa(i)
		for _, r := range rooms {
			at += "," + strconv.Itoa(r.free)
		}
		if n, ok := known[at]; ok {
			return n
		}
		best := never
		if g.node == failed {
			best = 1 + least(i+1)
		}
		for k := range rooms {
			if r := &rooms[k]; r.free > 0 && r.takes(g, failed) {
				r.free--
				best = min(best, least(i+1))
				r.free++
			}
		}
		known[at] = best
		return best
	}
	return least(0)
}

// headroomCase is a random cluster near the limit of its partitions, what is planned for it, and
// what it comes to.
type headroomCase struct {
	hosts  []*gpu.Host
	plans  []change.Change
	rooms  []room
	guests []guest
	stood  map[int]guest // what guests were before whose assignment changes
	first  map[int]bool  // guests that the plan gives their first partition
}

// largest is the largest shortage of a case.
func (c *headroomCase) largest(guests []guest) (n int) {
	for _, h := range c.hosts {
		n = max(n, stayOff(c.rooms, guests, h.Name))
	}
	return n
}

// headroomOf makes a case: a config whose count changes, or one that stands, and assignments of VMs
// without a partition, or one that asks for another partition.
func headroomOf(rng *rand.Rand, changes, assigns, alters bool) (rules.World, headroomCase) {
	var c headroomCase
	chance := func(n int) bool { return rng.IntN(n) == 0 }
	count := []int{1, 2, 4, 8}[rng.IntN(4)]
	covered := map[string][]string{}
	var names []string
	for i := range 2 + rng.IntN(3) {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	var up []bool
	for i, name := range names {
		h := host(name)
		h.GPUs = h.GPUs[:1+rng.IntN(2)]
		up = append(up, !chance(6))
		changed := map[string]bool{}
		for k := range h.GPUs {
			g := &h.GPUs[k]
			g.Partitionable.Count = []int{1, 2, 4}[rng.IntN(3)]
			g.Partitionable.VRAM.Min = uint64(15<<30) / uint64(g.Partitionable.Count)
			r := room{node: name, gpu: g.ID, up: up[i], free: g.Partitionable.Count, size: g.Partitionable.VRAM.Min}
			if changes && up[i] && !chance(4) {
				covered[name] = append(covered[name], g.ID)
				if count != r.free {
					r.free, r.size, changed[g.ID] = count, 0, true
				}
			}
			c.rooms = append(c.rooms, r)
		}
		for k := range rng.IntN(5) {
			v := vm(fmt.Sprintf("v%d%d", i, k), gpu.VMRunning)
			v.Clustered = !chance(4)
			if chance(5) {
				v.State = gpu.VMOff
			}
			if chance(3) {
				v.PossibleOwners = []string{name, names[rng.IntN(len(names))]}
			}
			h.VMs = append(h.VMs, v)
			g := h.GPUs[rng.IntN(len(h.GPUs))]
			p := g.Partitionable
			is := guest{node: name, clustered: v.Clustered, owners: v.PossibleOwners}
			if chance(4) && !changed[g.ID] { // one that starts again may lose its quotas
				is.least = p.VRAM.Min
			}
			if chance(6) {
				is.pin = g.ID
			}
			switch {
			case assigns && up[i] && chance(2):
				w := partition(v.Name, name)
				w.Assignment.Partition = is.wants()
				c.plans = append(c.plans, create("new-"+v.Name, w))
				if c.first == nil {
					c.first = map[int]bool{}
				}
				if v.Runs() {
					c.first[len(c.guests)] = true
				}
			case len(p.Partitions) < p.Count || !v.Runs():
				holds(h, v.Name, slices.IndexFunc(h.GPUs, func(o gpu.GPU) bool { return o.ID == g.ID }))
				a := &h.VMs[k].PartitionAdapters[0]
				a.PinnedGPU, a.Quotas = is.wants().PinnedGPU, is.wants().Quotas
				has := partition(v.Name, name)
				has.Assignment.Partition = is.wants()
				claimVM(h, "vdi", v.Name, *has.Assignment)
				switch {
				case alters && c.stood == nil && up[i] && v.Runs():
					stood := is
					stood.keeps = g.ID
					c.stood = map[int]guest{len(c.guests): stood}
					for is.pin == stood.pin && is.least == stood.least {
						if is.pin, is.least = "", 0; chance(2) {
							is.pin = h.GPUs[rng.IntN(len(h.GPUs))].ID
						} else {
							is.least = []uint64{0, 1, 2, 4}[rng.IntN(4)] * (15 << 28)
						}
					}
					wants := partition(v.Name, name)
					wants.Assignment.Partition = is.wants()
					c.plans = append(c.plans, change.Change{Subject: label(wants), Owner: "vdi", Token: "claim-" + v.Name, Want: wants, Prior: has})
				case !changed[g.ID]:
					is.keeps = g.ID
				}
			default:
				continue
			}
			if v.Runs() {
				c.guests = append(c.guests, is)
			}
		}
		c.hosts = append(c.hosts, h)
	}
	w := clustered(c.hosts...)
	for i := range c.hosts {
		if !up[i] {
			c.hosts[0].Cluster.Nodes[i].State = gpu.NodePaused
		}
	}
	cfg := gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: count, GPUs: covered, MaxDisruption: gpu.DisruptVMRestart}
	p := change.Change{Subject: "it", Owner: "vdi", Token: "t", Want: gpu.Want{Config: &cfg}}
	if !changes {
		cfg.GPUs = map[string][]string{names[0]: {}}
		p.Prior, p.Unchanged = p.Want, true
	}
	rng.Shuffle(len(c.plans), func(i, j int) { c.plans[i], c.plans[j] = c.plans[j], c.plans[i] })
	c.plans = append([]change.Change{p}, c.plans...)
	return w, c
}

// A config tells the largest shortage that there is with the VMs that have partitions now: of configs that stand, and of those
// whose counts change. That assignments make a cluster shorter than it is, is told once, in whatever order they are planned.
// Plans that leave a node too small for its own VMs are refused for that, and passed by.
func TestHeadroomIsTheLargestShortage(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ changes, assigns, alters bool }{
		"it stands": {}, "the count changes": {changes: true}, "VMs are assigned": {assigns: true},
		"a first plan": {changes: true, assigns: true}, "an assignment changes": {alters: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			short, cases := 0, 0
			for seed := uint64(0); cases < 500; seed++ {
				w, c := headroomOf(rand.New(rand.NewPCG(seed, 3)), of.changes, of.assigns, of.alters)
				w.Owner = "" // nothing is still to be planned
				var before []guest
				for i, g := range c.guests {
					if was, changes := c.stood[i]; changes {
						g = was
					}
					if !c.first[i] {
						before = append(before, g)
					}
				}
				want, alone := c.largest(c.guests), c.largest(before)
				if max(want, alone) >= never || len(c.plans[0].Want.Config.GPUs) == 0 || of.alters && c.stood == nil {
					continue
				}
				cases++
				said, worse := 0, 0
				for _, p := range c.plans {
					for _, f := range rules.Check(w, p, nil) {
						var n int
						switch _, err := fmt.Sscanf(f.Wanted, "The other nodes should have room for the VMs of any one node; %d VM", &n); {
						case f.Rule != "failover-headroom":
						case f.Contended != "":
							worse++
						case err != nil:
							t.Fatal(f.Wanted)
						default:
							said = max(said, n)
						}
					}
					w.Others.Put(p.Token, p)
				}
				if want > 0 {
					short++
				}
				if said != alone {
					t.Errorf("seed %d: %d VMs stay off by the config alone, and the plan says %d", seed, alone, said)
				}
				if of.changes && worse > 0 && want == 0 || !of.changes && (worse > 0) != (want > alone) || worse > 1 {
					t.Errorf("seed %d: %d VMs stay off after %d, and the plan says %d times that it gets worse", seed, want, alone, worse)
				}
			}
			if short < 100 {
				t.Errorf("only %d clusters are short", short)
			}
		})
	}
}

// The assignment that makes a cluster short says so, and those that change nothing of it do not.
func TestHeadroomIsAskedAtEveryAssignment(t *testing.T) {
	t.Parallel()
	build := func(free int, state gpu.VMState) []rules.Finding {
		a, b := host("hv01", vm("a", state)), host("hv02")
		for _, h := range []*gpu.Host{a, b} {
			h.GPUs = h.GPUs[:1]
		}
		a.VMs[0].Clustered = true
		b.GPUs[0].Partitionable.Count = max(free, 1)
		if free == 0 {
			b.VMs = append(b.VMs, vm("b", gpu.VMRunning))
			holds(b, "b", 0)
		}
		p := partition("a", "hv01")
		p.Assignment.Power.AllowShutdown = true
		return slices.DeleteFunc(rules.Check(clustered(a, b), create("t", p), nil),
			func(f rules.Finding) bool { return f.Rule != "failover-headroom" })
	}
	if f := build(0, gpu.VMRunning); len(f) != 1 || f[0].Path != "partition" || f[0].Level != rules.Warning || f[0].Contended != "clu" {
		t.Errorf("a VM that finds no room: %+v", f)
	}
	if f := append(build(1, gpu.VMRunning), build(0, gpu.VMOff)...); len(f) > 0 {
		t.Errorf("a VM that finds room, and one that is off: %+v", f)
	}
}

// Two counts in a cluster that two applies with -target have made are told as long as they are there, in the same words
// whichever config is planned first.
func TestTwoCountsOfAClusterAreToldWhileTheyStand(t *testing.T) {
	t.Parallel()
	counts := map[string]int{"hv01": 8, "hv02": 4}
	plan := func(name string) change.Change {
		c := gpu.Want{Config: &gpu.PartitionConfig{ID: name, Kind: gpu.KindGPUP, Count: counts[name], GPUs: map[string][]string{name: {gpu0}}}}
		return change.Change{Subject: label(c), Token: name, Prior: c, Want: c, Unchanged: true}
	}
	said := map[string]bool{}
	for _, order := range [][]string{{"hv01", "hv02"}, {"hv02", "hv01"}} {
		var hosts []*gpu.Host
		for _, name := range []string{"hv01", "hv02"} {
			h := host(name)
			h.GPUs = h.GPUs[:1]
			h.GPUs[0].Partitionable.Count = counts[name]
			hosts = append(hosts, h)
		}
		w, told := clustered(hosts...), 0
		for _, name := range order {
			p := plan(name)
			for _, f := range of("homogeneous-layout", rules.Check(w, p, nil)) {
				told++
				said[f.Detail()] = true
				if f.Level != rules.Warning || f.Title != "Two partition counts in one cluster" {
					t.Errorf("it says %+v", f)
				}
			}
			w.Others.Put(p.Token, p)
		}
		if told != 1 {
			t.Errorf("in the order %v it is told %d times", order, told)
		}
	}
	if len(said) != 1 {
		t.Errorf("it hangs on the order: %v", said)
	}
}
