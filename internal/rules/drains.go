package rules

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Undrained are the nodes, of those that a plan would drain, whose running VMs find no room on
// the others while they are changed, and why.
func Undrained(w World, p change.Change) map[string]string {
	r, done := begin(w, p)
	defer done()
	if !drains(p) {
		return nil
	}
	return r.undrained(p, sortedKeys(p.Want.Config.GPUs)...)
}

// undrained goes through the nodes of the clusters of some hosts in the order in which they are
// changed: those that are not drained first. What a drain moves comes back afterwards, as far as the
// node still has room.
func (r *run) undrained(p change.Change, hosts ...string) map[string]string {
	if !drains(p) {
		return nil
	}
	out, done := map[string]string{}, map[string]bool{}
	for _, host := range hosts {
		if h, ok := r.host(host); ok && cluster(h) != "" && !done[cluster(h)] {
			done[cluster(h)] = true
			maps.Copy(out, r.undrainedIn(h, p))
		}
	}
	return out
}

// undrainedIn looks at one cluster: at the nodes that get another layout, or, of what is done once
// and changes no GPU, at all of the config.
func (r *run) undrainedIn(h *gpu.Host, p change.Change) map[string]string {
	id := drainIn{p.Want.Config, cluster(h)}
	if known, ok := r.memo.undrained[id]; ok {
		return known
	}
	out, all := map[string]string{}, p.Act == change.ActDrain
	r.memo.undrained[id] = out
	part := *p.Want.Config
	part.GPUs = map[string][]string{}
	for _, host := range r.fleet.cluster(h) {
		if ids, ok := p.Want.Config.GPUs[host]; ok && all {
			part.GPUs[host] = nil
		} else if ok {
			part.GPUs[host] = ids
		}
	}
	c := &part
	var vms []*mover
	byID := map[string]*mover{}
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
				id := gpu.FoldID(part.VMID)
				if byID[id] == nil {
					vm, ok := node.VM(part.VMID)
					if !ok {
						vm = &gpu.VM{ID: part.VMID, Name: part.VMID}
					}
					v := &mover{traveller: traveller{seated: seated{name: vm.Name, vm: vm, clustered: vm.Clustered && vm.Runs()}, host: host}}
					for _, a := range vm.PartitionAdapters {
						v.min, v.pinned = a.Quotas.VRAM.Min, a.PinnedGPU
					}
					byID[id], vms = v, append(vms, v)
				}
				byID[id].at = append(byID[id].at, len(benches))
			}
			changes = changes || contains(c.GPUs[host], g.ID) && g.Partitionable.Count != c.Count && len(g.Partitionable.Partitions) > 0
			benches = append(benches, b)
		}
		if _, has := c.GPUs[host]; (changes || all && has) && change.WhyNotDrained(node) == "" {
			drains = append(drains, host)
		}
	}
	slices.Sort(drains)
	for {
		host, vm := stuck(benches, vms, c, drains)
		if host == "" {
			return out
		}
		// It is changed before those that are drained, which leaves them other room.
		out[host] = fmt.Sprintf("no other node is sure to have room for VM %s while this one is changed", vm)
		drains = slices.DeleteFunc(drains, func(d string) bool { return d == host })
	}
}

// mover is a VM, and the benches that it has partitions of.
type mover struct {
	traveller
	at []int
}

// stuck is the first of the nodes to be drained, in their order, that one of its VMs may not be
// able to leave, wherever the cluster places the others.
func stuck(benches []bench, vms []*mover, c *gpu.PartitionConfig, drains []string) (host, vm string) {
	benches = slices.Clone(benches)
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
	var now []*mover
	for _, v := range vms {
		now = append(now, &mover{traveller: v.traveller, at: slices.Clone(v.at)})
	}
	// free are the places of a node that a VM may take.
	free := func(v *mover, node string) (at []int) {
		for i := range benches {
			b, taken := &benches[i], 0
			if b.node != node || !v.fits(b, v.host) {
				continue
			}
			for _, o := range now {
				for _, k := range o.at {
					if k == i {
						taken++
					}
				}
			}
			for range b.count - taken {
				at = append(at, i)
			}
		}
		return at
	}
	for i, from := range drains {
		var moving []*mover
		seats := map[*mover]int{}
		all, home := 0, ""
		for _, v := range now {
			if v.host == from && v.clustered {
				seats[v] = len(v.at)
				all += len(v.at)
				v.at, moving = nil, append(moving, v)
			}
		}
		var nodes []string
		for _, b := range benches {
			if b.host == from {
				home = b.node
			} else if !slices.Contains(nodes, b.node) {
				nodes = append(nodes, b.node)
			}
		}
		for _, v := range moving {
			room := 0 // that others have to take before there is none left for it
			for _, n := range nodes {
				room += max(0, len(free(v, n))-seats[v]+1)
			}
			if room <= all-seats[v] {
				return from, v.name
			}
		}
		// At worst they are where they have to leave once more, if they cannot come back.
		leaves := func(node string) int {
			if slices.ContainsFunc(benches, func(b bench) bool { return b.node == node && slices.Contains(drains[i+1:], b.host) }) {
				return 0
			}
			return 1
		}
		slices.SortStableFunc(nodes, func(a, b string) int { return leaves(a) - leaves(b) })
		for _, v := range moving {
			for _, n := range nodes {
				if at := free(v, n); len(at) >= seats[v] {
					v.at = at[:seats[v]]
					break
				}
			}
		}
		set(from)
		// They come back as far as they can, at worst in an order that leaves those away that need most.
		slices.SortStableFunc(moving, func(a, b *mover) int { return seats[a] - seats[b] })
		for _, v := range moving {
			away := v.at
			v.host, v.at = "", nil
			if at := free(v, home); len(at) >= seats[v] {
				v.host, v.at = from, at[:seats[v]]
			} else {
				v.host, v.at = benches[away[0]].host, away
			}
		}
	}
	return "", ""
}
