package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// randomCluster is a cluster near the limit of its partitions.
func randomCluster(rng *rand.Rand) []*gpu.Host {
	var hosts []*gpu.Host
	var names []string
	nodes := 2 + rng.IntN(3)
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	for i, name := range names {
		h := host(name)
		h.GPUs = h.GPUs[:1+rng.IntN(2)]
		for k := range h.GPUs {
			h.GPUs[k].Partitionable.Count = []int{1, 2, 4}[rng.IntN(3)]
			h.GPUs[k].Partitionable.VRAM.Min = uint64(15<<30) / uint64(h.GPUs[k].Partitionable.Count)
		}
		for k := range rng.IntN(5) {
			v := vm(fmt.Sprintf("v%d%d", i, k), gpu.VMRunning)
			v.Clustered = rng.IntN(4) > 0
			if rng.IntN(5) == 0 {
				v.State = gpu.VMOff
			}
			if rng.IntN(3) == 0 {
				v.PossibleOwners = []string{name, names[rng.IntN(nodes)]}
			}
			h.VMs = append(h.VMs, v)
			on := rng.IntN(len(h.GPUs))
			if p := h.GPUs[on].Partitionable; len(p.Partitions) < p.Count || !v.Runs() {
				holds(h, v.Name, on)
				a := &h.VMs[k].PartitionAdapters[0]
				if rng.IntN(4) == 0 {
					a.Quotas.VRAM.Min = ptr(p.VRAM.Min)
				}
				if rng.IntN(6) == 0 {
					a.PinnedGPU = h.GPUs[on].ID
				}
			}
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// stayOff is how many VMs of a node stay off at least when it fails: all ways to place them are
// tried.
func stayOff(hosts []*gpu.Host, failed *gpu.Host) int {
	type room struct {
		node string
		gpu  *gpu.GPU
		free int
	}
	var rooms []room
	for _, h := range hosts {
		if h == failed || h.NodeState() != gpu.NodeUp {
			continue
		}
		for i := range h.GPUs {
			p := h.GPUs[i].Partitionable
			rooms = append(rooms, room{h.Name, &h.GPUs[i], p.Count - len(p.Partitions)})
		}
	}
	var movers []*gpu.VM
	for i := range failed.VMs {
		if v := &failed.VMs[i]; v.Clustered && v.Runs() && len(v.PartitionAdapters) > 0 {
			movers = append(movers, v)
		}
	}
	var least func(i int) int
	least = func(i int) int {
		if i == len(movers) {
			return 0
		}
		v, best := movers[i], 1+least(i+1)
		for k := range rooms {
			r, a := &rooms[k], v.PartitionAdapters[0]
			switch {
			case r.free == 0,
				len(v.PossibleOwners) > 0 && !slices.Contains(v.PossibleOwners, r.node),
				a.PinnedGPU != "" && a.PinnedGPU != r.gpu.ID,
				a.Quotas.VRAM.Min != nil && *a.Quotas.VRAM.Min > r.gpu.Partitionable.VRAM.Min:
				continue
			}
			r.free--
			best = min(best, least(i+1))
			r.free++
		}
		return best
	}
	return least(0)
}

// The shortage that a plan tells is the largest that there is, in 500 clusters.
func TestHeadroomIsTheLargestShortage(t *testing.T) {
	t.Parallel()
	short := 0
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 3))
		hosts := randomCluster(rng)
		w := clustered(hosts...)
		for i := range hosts {
			if rng.IntN(6) == 0 {
				for _, h := range hosts {
					h.Cluster.Nodes[i].State = gpu.NodePaused
				}
			}
		}
		want := 0
		for _, h := range hosts {
			want = max(want, stayOff(hosts, h))
		}
		c := gpu.PartitionConfig{ID: "vdi", Kind: gpu.KindGPUP, Count: 4, GPUs: map[string][]string{"n1": {}}}
		p := change.Change{Subject: "it", Token: "t", Want: gpu.Want{Config: &c}, Prior: gpu.Want{Config: &c}, Unchanged: true}
		var said string
		for _, f := range rules.Check(w, p, nil) {
			if f.Rule == "failover-headroom" {
				said = f.Wanted
			}
		}
		if want > 0 {
			short++
		}
		if exact := fmt.Sprintf("; %d VM", want); (want > 0) != (said != "") || want > 0 && !strings.Contains(said, exact) {
			t.Errorf("seed %d: %d VMs stay off, and the plan says %q", seed, want, said)
		}
	}
	if short < 100 {
		t.Errorf("only %d clusters are short", short)
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
		return slices.DeleteFunc(rules.Check(clustered(a, b), create("t", p), nil), func(f rules.Finding) bool { return f.Rule != "failover-headroom" })
	}
	if f := build(0, gpu.VMRunning); len(f) != 1 || f[0].Path != "partition" || f[0].Level != rules.Warning || f[0].Host != "hv01" {
		t.Errorf("a VM that finds no room: %+v", f)
	}
	if f := append(build(1, gpu.VMRunning), build(0, gpu.VMOff)...); len(f) > 0 {
		t.Errorf("a VM that finds room, and one that is off: %+v", f)
	}
}
