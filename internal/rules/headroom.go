package rules

import (
	"fmt"
	"slices"
	"strings"

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
			if s, ok := r.shortage(h, "", nil); ok && s.vms > 0 {
				r.reportShortage(s, h, "gpu_p.partition_count")
			}
		}
	}
}

// checkAssignmentHeadroom finds a VM whose partition, or what that must be like, makes the shortage
// of its cluster larger.
func (r *run) checkAssignmentHeadroom(a *gpu.Assignment) {
	if a.Partition == nil || r.plan.Unchanged || r.before {
		return // the config of the GPUs says what stands
	}
	at, ok := r.locate(a)
	if !ok || at.host.Cluster == nil || !seatedAfter(at.vm, a) {
		return
	}
	has, wants := at.vm.PartitionAdapters, gpu.PartitionAdapter{PinnedGPU: a.Partition.PinnedGPU, Quotas: a.Partition.Quotas}
	if len(has) > 0 && alikeAdapters(has[0], wants) {
		return
	}
	then := *r.projection(at.key, at.host)
	if len(has) > 0 {
		then = *r.with(then, at.key, halves(r.plan))
	} else {
		adds := traveller{seated: seated{vm: at.vm, seats: 1, clustered: at.vm.Clustered, pinned: wants.PinnedGPU}, host: at.key, min: wants.Quotas.VRAM.Min}
		then.crew, then.benches = append(slices.Clip(then.crew), &adds), cloneBenches(then.benches)
		seat(&adds, then.benches, "")
	}
	after, known := r.shortage(at.host, at.key, &then)
	if !known || after.vms == 0 {
		return
	}
	if before, _ := r.shortage(at.host, "", nil); after.vms > before.vms {
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

// traveller is a VM with a partition, or several alike, and where they may have one.
type traveller struct {
	seated
	host string  // that it runs on
	min  *uint64 // the least memory that its partition must have
	on   string  // the GPU whose partition it keeps while it stays
}

// bench is a GPU of a node, and who has its partitions.
type bench struct {
	slot
	host  string
	node  string // what the cluster calls it
	up    bool
	taken []taken
}

// taken is how many partitions travellers have.
type taken struct {
	by *traveller
	n  int
}

func (b *bench) free() int {
	n := b.count
	for _, t := range b.taken {
		n -= t.n
	}
	return n
}

// take has travellers take so many partitions more, or give them back.
func (b *bench) take(by *traveller, n int) {
	for i := range b.taken {
		if b.taken[i].by == by {
			b.taken[i].n += n
			return
		}
	}
	b.taken = append(b.taken, taken{by, n})
}

// crewOf are the VMs of a node that have partitions and run, those alike as one, and the node's
// GPUs as they sit there.
func (r *run) crewOf(host string, p *projection) (crew []*traveller, benches []bench) {
	on := map[string]string{}
	state := p.of.NodeState()
	for _, s := range p.slots {
		benches = append(benches, bench{slot: s, host: host, node: p.of.Name, up: state == gpu.NodeUp || state == ""})
		if s.count == s.gpu.Partitionable.Count {
			for _, part := range s.gpu.Partitionable.Partitions {
				on[gpu.FoldID(part.VMID)] = s.gpu.ID
			}
		}
	}
	type likeness struct {
		clustered       bool
		pinned, on, may string
		min             uint64
		limited         bool
	}
	alike := map[likeness]*traveller{}
	seating := r.sitters(host, p)
	for i := range p.host.VMs {
		id := gpu.FoldID(p.host.VMs[i].ID)
		s, ok := seating[id]
		if !ok || s.uses == 0 {
			continue
		}
		t := &traveller{seated: s, host: host}
		if now := r.fleet.vmOn(host, id); now != nil && slices.EqualFunc(now.PartitionAdapters, s.vm.PartitionAdapters, alikeAdapters) {
			t.on = on[id]
		}
		for _, a := range s.vm.PartitionAdapters {
			t.min = a.Quotas.VRAM.Min
		}
		k := likeness{clustered: s.clustered, pinned: s.pinned, on: t.on, may: strings.Join(s.vm.PossibleOwners, "\x00"), limited: t.min != nil}
		if t.min != nil {
			k.min = *t.min
		}
		if alike[k] == nil {
			alike[k], crew = t, append(crew, t)
		} else {
			alike[k].seats += s.seats
		}
	}
	for _, t := range crew {
		seat(t, benches, "")
	}
	return crew, benches
}

// alikeAdapters tells of adapters that a VM need not be started again for one to become the other.
func alikeAdapters(a, b gpu.PartitionAdapter) bool {
	return gpu.SameID(a.PinnedGPU, b.PinnedGPU) && a.Quotas.Equal(b.Quotas)
}

// shortage finds the largest shortage of a cluster, as the run leaves it, but for one node that is
// given. It is not known while a node cannot be asked: it may have room.
func (r *run) shortage(h *gpu.Host, of string, given *projection) (worst shortage, known bool) {
	var benches []bench
	var hosts []string
	crews := map[string][]*traveller{}
	for _, n := range h.Cluster.Nodes {
		host, ok := r.fleet.node(h, n.Name)
		if !ok {
			return worst, false
		}
		p := given
		if host != of {
			p = r.projection(host, r.fleet.hosts[host])
		}
		hosts, crews[host], benches = append(hosts, host), p.crew, append(benches, p.benches...)
	}
	for _, failed := range hosts {
		crew := slices.DeleteFunc(slices.Clone(crews[failed]), func(t *traveller) bool { return !t.clustered })
		s := shortage{host: failed}
		for _, t := range crew {
			s.moves += t.seats
		}
		if !slices.ContainsFunc(crew, func(t *traveller) bool { return !t.finds(s.moves, benches, failed) }) {
			continue
		}
		left := slices.DeleteFunc(cloneBenches(benches), func(b bench) bool { return b.host == failed })
		room := 0
		for i := range left {
			if left[i].up {
				room += left[i].free()
			}
		}
		for _, t := range crew {
			s.vms += t.seats - seat(t, left, failed)
		}
		s.bound = s.moves-s.vms < min(room, s.moves)
		if s.vms > worst.vms {
			worst = s
		}
	}
	return worst, true
}

// finds tells whether so many partitions are free that VMs may have when a node has failed: if each
// finds as many as have to move, all find one.
func (t *traveller) finds(n int, benches []bench, failed string) bool {
	for i := range benches {
		if n <= 0 {
			break
		}
		if t.fits(&benches[i], failed) {
			n -= benches[i].free()
		}
	}
	return n <= 0
}

// seat gives partitions to VMs that are alike, and tells to how many.
func seat(t *traveller, benches []bench, failed string) int {
	for placed := 0; ; {
		n := place(t, t.seats-placed, benches, failed, map[int]bool{})
		if n == 0 {
			return placed
		}
		placed += n
	}
}

// place gives at most n VMs that are alike a partition and moves others on, each to one that it may
// have, where that makes room. Who had a partition keeps one.
func place(t *traveller, n int, benches []bench, failed string, seen map[int]bool) (placed int) {
	for i := range benches {
		b := &benches[i]
		if placed == n {
			break
		}
		if seen[i] || !t.fits(b, failed) {
			continue
		}
		seen[i] = true
		if k := min(n-placed, b.free()); k > 0 {
			b.take(t, k)
			placed += k
		}
		for j := 0; j < len(b.taken) && placed < n; j++ {
			if other := b.taken[j]; other.by != t && other.n > 0 {
				k := place(other.by, min(n-placed, other.n), benches, failed, seen)
				b.take(other.by, -k)
				b.take(t, k)
				placed += k
			}
		}
	}
	return placed
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
