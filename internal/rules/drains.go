package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Undrained are the nodes, of those that a plan would drain, whose running VMs find no room on
// the others while they are changed, and why.
func Undrained(w World, p change.Change) map[string]string {
	r, done := begin(w, p)
	defer done()
	return r.undrained(p)
}

// undrained goes through the nodes in the order in which they are changed: those that are not
// drained first. What a drain moves comes back afterwards, as far as the node still has room.
func (r *run) undrained(p change.Change) map[string]string {
	c := p.Want.Config
	if c == nil || !c.Drain || c.Kind != gpu.KindGPUP {
		return nil
	}
	if known, ok := r.memo.undrained[c]; ok {
		return known
	}
	out := map[string]string{}
	r.memo.undrained[c] = out
	done := map[string]bool{}
	for _, h := range r.hostsAtHand(c.GPUs) {
		if name := cluster(h); name != "" && !done[name] {
			done[name] = true
			r.undrainedIn(h, c, out)
		}
	}
	return out
}

func (r *run) undrainedIn(h *gpu.Host, c *gpu.PartitionConfig, out map[string]string) {
	var vms []traveller
	var benches []bench
	var drains []string
	for _, n := range h.Cluster.Nodes {
		host, ok := r.fleet.node(h, n.Name)
		if !ok {
			continue // where nobody knows of any room
		}
		node := r.fleet.hosts[host]
		changes := false
		for i := range node.GPUs {
			g := &node.GPUs[i]
			if !partitions(g) || inPool(node, g.ID) != nil {
				continue
			}
			b := bench{slot: slot{gpu: g, count: g.Partitionable.Count}, host: host, node: n.Name}
			b.up = node.NodeState() == gpu.NodeUp && g.Partitionable.SupportsIncomingLiveMigration != nil && *g.Partitionable.SupportsIncomingLiveMigration
			for _, part := range g.Partitionable.Partitions {
				vm, ok := node.VM(part.VMID)
				if !ok {
					vm = &gpu.VM{ID: part.VMID, Name: part.VMID}
				}
				t := traveller{seated: seated{name: vm.Name, clustered: vm.Clustered && vm.Runs()}, host: host, vm: vm, on: g.ID}
				for _, a := range vm.PartitionAdapters {
					t.min, t.pinned = a.Quotas.VRAM.Min, a.PinnedGPU
				}
				b.taken = append(b.taken, len(vms))
				vms = append(vms, t)
			}
			changes = changes || contains(c.GPUs[host], g.ID) && g.Partitionable.Count != c.Count && len(b.taken) > 0
			benches = append(benches, b)
		}
		if changes && change.WhyNotDrained(node) == "" {
			drains = append(drains, host)
		}
	}
	set := func(host string) {
		for i := range benches {
			if b := &benches[i]; b.host == host && contains(c.GPUs[host], b.gpu.ID) {
				b.count = c.Count
			}
		}
	}
	for host := range c.GPUs {
		if !slices.Contains(drains, host) {
			set(host)
		}
	}
	slices.Sort(drains)
	for _, host := range drains {
		var moving []int
		for _, b := range benches {
			if b.host == host {
				moving = append(moving, b.taken...)
			}
		}
		before, stuck := cloneBenches(benches), -1
		empty(benches, moving)
		for _, v := range moving {
			vms[v].host, vms[v].on = host, ""
			if vms[v].clustered && !place(vms, benches, v, host, map[int]bool{}) {
				stuck = v
				break
			}
		}
		if stuck >= 0 {
			out[host] = fmt.Sprintf("no other node has room for VM %s while this one is changed", vms[stuck].name)
			benches = before
			set(host)
			continue
		}
		set(host)
		for _, v := range moving { // they come back, as far as they can
			away := cloneBenches(benches)
			empty(benches, []int{v})
			if !place(vms, benches, v, "", map[int]bool{}) {
				benches = away
			}
		}
		for i := range benches {
			for _, v := range benches[i].taken {
				vms[v].host = benches[i].host
			}
		}
	}
}

// empty takes VMs from their seats.
func empty(benches []bench, vms []int) {
	for i := range benches {
		benches[i].taken = slices.DeleteFunc(slices.Clone(benches[i].taken), func(v int) bool { return slices.Contains(vms, v) })
	}
}
