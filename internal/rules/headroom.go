package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// checkFailoverHeadroom asks, per cluster, whether the other nodes have partitions for the
// running clustered VMs of any one node that fails.
func checkFailoverHeadroom(r *run) {
	if a := r.plan.Want.Assignment; a != nil {
		r.checkAssignmentHeadroom(a)
		return
	}
	if r.plan.Want.Config == nil {
		return
	}
	done := map[string]bool{}
	for _, h := range r.hostsAtHand(r.plan.Want.Config.GPUs) {
		if name := cluster(h); name != "" && !done[name] {
			done[name] = true
			if s, ok := r.shortage(h, nil); ok && s.vms > 0 {
				r.reportShortage(s, h, "gpu_p.partition_count")
			}
		}
	}
}

// checkAssignmentHeadroom finds a VM whose partition makes the shortage of its cluster
// larger.
func (r *run) checkAssignmentHeadroom(a *gpu.Assignment) {
	if a.Partition == nil || r.plan.Unchanged || r.before {
		return // the config of the GPUs says what stands
	}
	at, ok := r.locate(a)
	if !ok || !at.vm.Clustered || at.host.Cluster == nil || len(at.vm.PartitionAdapters) > 0 || !seatedAfter(at.vm, a) {
		return
	}
	adds := traveller{seated: seated{name: at.vm.Name, seats: 1, clustered: true, pinned: a.Partition.PinnedGPU}, host: at.key, vm: at.vm, min: a.Partition.Quotas.VRAM.Min}
	before, known := r.shortage(at.host, nil)
	if after, _ := r.shortage(at.host, &adds); known && after.vms > before.vms {
		r.reportShortage(after, at.host, "partition")
	}
}

func (r *run) reportShortage(s shortage, h *gpu.Host, path string) {
	free := plural(s.moves-s.vms, "partition") + " free"
	if s.bound {
		free += " that these may use, by their possible owners, pins and quotas"
	}
	r.report(Finding{
		Path:   path,
		Title:  "Not enough partitions for a failover",
		Host:   s.host,
		Found:  fmt.Sprintf("When %s fails, %s must move, but the other nodes of cluster %s have %s.", hostText(s.host), plural(s.moves, "running VM"), quote(h.Cluster.Name), free),
		Wanted: fmt.Sprintf("The other nodes should have room for the VMs of any one node; %s would stay off.", plural(s.vms, "VM")),
		Fix:    "Choose a larger `partition_count`, add a node, or accept that some VMs wait until the node is back.",
	}, overflow("failover", cluster(h), s.vms)...)
}

// shortage is the node of a cluster whose failure leaves most VMs without a partition.
type shortage struct {
	host       string
	moves, vms int  // that have to move, and of these that find no room
	bound      bool // they may not use all that is free
}

// traveller is a VM with a partition, and where it may have one.
type traveller struct {
	seated
	host string // that it runs on
	vm   *gpu.VM
	min  *uint64 // the least memory that its partition must have
	on   string  // the GPU whose partition it keeps while it stays
}

// bench is a GPU of a node, and who has its partitions.
type bench struct {
	slot
	host  string
	node  string // what the cluster calls it
	up    bool
	taken []int // travellers
}

// shortage finds the largest shortage of a cluster, as the run leaves it, with one VM more. It
// is not known while a node cannot be asked: it may have room.
func (r *run) shortage(h *gpu.Host, more *traveller) (worst shortage, known bool) {
	var vms []traveller
	var benches []bench
	var hosts []string
	for _, n := range h.Cluster.Nodes {
		host, ok := r.fleet.node(h, n.Name)
		if !ok {
			return worst, false
		}
		node := r.fleet.hosts[host]
		state := node.NodeState()
		hosts = append(hosts, host)
		for _, s := range r.slots(host, node) {
			benches = append(benches, bench{slot: s, host: host, node: n.Name, up: state == gpu.NodeUp || state == ""})
		}
		then := r.projected(host, node)
		seating := runningOnly(r.seating(host, node))
		for _, id := range sortedKeys(seating) {
			vm, _ := then.VM(id)
			t := traveller{seated: seating[id], host: host, vm: vm}
			for _, a := range vm.PartitionAdapters {
				t.min = a.Quotas.VRAM.Min
			}
			for _, s := range benches {
				if s.host == host && s.count == s.gpu.Partitionable.Count && heldBy(s.gpu, id) > 0 {
					t.on = s.gpu.ID
				}
			}
			for range t.seats {
				vms = append(vms, t)
			}
		}
	}
	if more != nil {
		vms = append(vms, *more)
	}
	seat := func(benches []bench, v int, failed string) bool {
		return place(vms, benches, v, failed, map[int]bool{})
	}
	for v := range vms {
		seat(benches, v, "") // each on its own node
	}
	for _, failed := range hosts {
		left := slices.DeleteFunc(cloneBenches(benches), func(b bench) bool { return b.host == failed })
		s := shortage{host: failed}
		room := 0
		for _, b := range left {
			if b.up {
				room += b.count - len(b.taken)
			}
		}
		for v := range vms {
			if vms[v].host != failed || !vms[v].clustered {
				continue
			}
			if s.moves++; !seat(left, v, failed) {
				s.vms++
			}
		}
		s.bound = s.moves-s.vms < min(room, s.moves)
		if s.vms > worst.vms {
			worst = s
		}
	}
	return worst, true
}

// place gives a VM a partition and moves others on, each to one that it may have, where that
// makes room. Who had a partition keeps one.
func place(vms []traveller, benches []bench, v int, failed string, seen map[int]bool) bool {
	for i := range benches {
		b := &benches[i]
		if seen[i] || !vms[v].fits(b, failed) {
			continue
		}
		seen[i] = true
		if len(b.taken) < b.count {
			b.taken = append(b.taken, v)
			return true
		}
		for k, other := range b.taken {
			if place(vms, benches, other, failed, seen) {
				b.taken[k] = v
				return true
			}
		}
	}
	return false
}

// fits tells whether a VM may have a partition of a GPU when a node has failed.
func (t *traveller) fits(b *bench, failed string) bool {
	if size, exact := b.size(); t.min != nil && exact && gpu.Bytes(*t.min) > size || t.pinned != "" && !gpu.SameID(t.pinned, b.gpu.ID) {
		return false
	}
	if t.host != failed {
		return b.host == t.host && (t.on == "" || gpu.SameID(t.on, b.gpu.ID))
	}
	return b.host != failed && b.up && (len(t.vm.PossibleOwners) == 0 || contains(t.vm.PossibleOwners, b.node))
}

func cloneBenches(of []bench) []bench {
	out := slices.Clone(of)
	for i := range out {
		out[i].taken = slices.Clone(out[i].taken)
	}
	return out
}
