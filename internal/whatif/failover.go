package whatif

import (
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Shortage is the node of a cluster whose failure leaves most VMs without a partition.
type Shortage struct {
	Host       string
	Moves, VMs int  // that have to move, and of these that find no room
	Bound      bool // they may not use all that is free
}

// free is how many partitions nobody has taken.
func (s *Slot) free() int {
	n := s.Count
	for _, t := range s.taken {
		n -= t.n
	}
	return n
}

// take gives so many partitions more, or takes them back.
func (s *Slot) take(by *Demand, n int) {
	for i := range s.taken {
		if s.taken[i].by == by {
			s.taken[i].n += n
			return
		}
	}
	s.taken = append(s.taken, taken{by, n})
}

// taken is how many partitions a demand has.
type taken struct {
	by *Demand
	n  int
}

// runningDemands are the VMs of a node that have partitions and run, those alike as one, and the
// node's slots as these have taken them.
func (r Future) runningDemands(host string, p *projection) (demands []*Demand, slots []Slot) {
	on := map[string]string{}
	state := p.of.NodeState()
	for _, s := range p.slots {
		s.host, s.node, s.up = host, p.of.Name, state == gpu.NodeUp || state == ""
		slots = append(slots, s)
		if s.Count == s.GPU.Partitionable.Count {
			for _, part := range s.GPU.Partitionable.Partitions {
				on[gpu.FoldID(part.VMID)] = s.GPU.ID
			}
		}
	}
	type likeness struct {
		clustered       bool
		pinned, on, may string
		min             uint64
		limited         bool
	}
	alike := map[likeness]*Demand{}
	all := r.demandsOn(host, p)
	for i := range p.host.VMs {
		id := gpu.FoldID(p.host.VMs[i].ID)
		d, ok := all[id]
		if !ok || d.uses == 0 {
			continue
		}
		d.host = host
		if now := r.Fleet.vmOn(host, id); now != nil && slices.EqualFunc(now.PartitionAdapters, d.VM.PartitionAdapters, AlikeAdapters) {
			d.on = on[id]
		}
		for _, a := range d.VM.PartitionAdapters {
			d.min = a.Quotas.VRAM.Min
		}
		k := likeness{clustered: d.clustered, pinned: d.pinned, on: d.on, may: strings.Join(d.VM.PossibleOwners, "\x00"), limited: d.min != nil}
		if d.min != nil {
			k.min = *d.min
		}
		if alike[k] == nil {
			alike[k], demands = &d, append(demands, &d)
		} else {
			alike[k].Amount += d.Amount
		}
	}
	for _, d := range demands {
		fill(d, slots, "")
	}
	return demands, slots
}

// AlikeAdapters tells of adapters that a VM need not be started again for one to become the other.
func AlikeAdapters(a, b gpu.PartitionAdapter) bool {
	return gpu.SameID(a.PinnedGPU, b.PinnedGPU) && a.Quotas.Equal(b.Quotas)
}

// Shortage is that of a host's cluster as the run leaves it. It is not known while a node cannot be
// asked.
func (r Future) Shortage(h *gpu.Host) (Shortage, bool) { return r.shortage(h, "", nil) }

// ShortageWith is the same once the plan has given a VM a partition, or another one.
func (r Future) ShortageWith(at Located, adapter gpu.PartitionAdapter) (Shortage, bool) {
	then := *r.projection(at.Key, at.Host)
	if len(at.VM.PartitionAdapters) > 0 {
		then = *r.with(then, at.Key, halves(r.Plan))
	}
	if r.Mode.Yielding {
		then = *r.atLeast(at.Key, &then)
	}
	if len(at.VM.PartitionAdapters) == 0 {
		adds := Demand{VM: at.VM, Amount: 1, clustered: at.VM.Clustered, pinned: adapter.PinnedGPU, host: at.Key, min: adapter.Quotas.VRAM.Min}
		then.demands, then.slots = append(slices.Clip(then.demands), &adds), cloneSlots(then.slots)
		fill(&adds, then.slots, "")
	}
	return r.shortage(at.Host, at.Key, &then)
}

// shortage finds the largest shortage of a cluster, as the run leaves it, but for one node that is
// given. It is not known while a node cannot be asked: it may have room.
func (r Future) shortage(h *gpu.Host, of string, given *projection) (worst Shortage, known bool) {
	var slots []Slot
	var hosts []string
	demands := map[string][]*Demand{}
	for _, n := range h.Cluster.Nodes {
		host, ok := r.Fleet.node(h, n.Name)
		if !ok {
			return worst, false
		}
		p := given
		if host != of {
			p = r.projection(host, r.Fleet.byName[host])
		}
		if r.Mode.Yielding && host != of {
			p = r.atLeast(host, p)
		}
		hosts, demands[host], slots = append(hosts, host), p.demands, append(slots, p.slots...)
	}
	for _, failed := range hosts {
		moving := slices.DeleteFunc(slices.Clone(demands[failed]), func(d *Demand) bool { return !d.clustered })
		s := Shortage{Host: failed}
		for _, d := range moving {
			s.Moves += d.Amount
		}
		if !slices.ContainsFunc(moving, func(d *Demand) bool { return !d.finds(s.Moves, slots, failed) }) {
			continue
		}
		left := slices.DeleteFunc(cloneSlots(slots), func(s Slot) bool { return s.host == failed })
		room := 0
		for i := range left {
			if left[i].up {
				room += left[i].free()
			}
		}
		for _, d := range moving {
			s.VMs += d.Amount - fill(d, left, failed)
		}
		s.Bound = s.Moves-s.VMs < min(room, s.Moves)
		if s.VMs > worst.VMs {
			worst = s
		}
	}
	return worst, true
}

// atLeast is a projection without the VMs whose assignments the run may yet take back, and with room for all where it may yet
// change the count: what is short then stays so, whatever is still to be planned.
func (r Future) atLeast(host string, p *projection) *projection {
	then := *p
	then.slots = slotsOf(p.of, &p.host)
	for i := range then.slots {
		if c := then.slots[i].Config; c != nil && c.Owner == r.Owner && !r.Superseded(c) {
			then.slots[i].Count += manyVMs
		}
	}
	then.demands, then.slots = r.runningDemands(host, &then)
	return &then
}

// manyVMs is more than a cluster has.
const manyVMs = 1 << 16

// finds tells whether so many partitions are free that VMs may have when a node has failed: if each
// finds as many as have to move, all find one.
func (d *Demand) finds(n int, slots []Slot, failed string) bool {
	for i := range slots {
		if n <= 0 {
			break
		}
		if d.fits(&slots[i], failed) {
			n -= slots[i].free()
		}
	}
	return n <= 0
}

// fits tells whether a VM may have a partition of a GPU when a node has failed.
func (d *Demand) fits(s *Slot, failed string) bool {
	if size, exact := s.Size(); d.min != nil && exact && gpu.Bytes(*d.min) > size || d.pinned != "" && !gpu.SameID(d.pinned, s.GPU.ID) {
		return false
	}
	if d.host != failed {
		return s.host == d.host && (d.on == "" || gpu.SameID(d.on, s.GPU.ID))
	}
	return s.host != failed && s.up && (len(d.VM.PossibleOwners) == 0 || gpu.HasID(d.VM.PossibleOwners, s.node))
}

// fill gives partitions to VMs that are alike, and tells to how many.
func fill(d *Demand, slots []Slot, failed string) int {
	for placed := 0; ; {
		n := place(d, d.Amount-placed, slots, failed, map[int]bool{})
		if n == 0 {
			return placed
		}
		placed += n
	}
}

// place gives at most n VMs that are alike a partition and moves others on, each to one that it may
// have, where that makes room. Who had a partition keeps one.
func place(d *Demand, n int, slots []Slot, failed string, seen map[int]bool) (placed int) {
	for i := range slots {
		s := &slots[i]
		if placed == n {
			break
		}
		if seen[i] || !d.fits(s, failed) {
			continue
		}
		seen[i] = true
		if k := min(n-placed, s.free()); k > 0 {
			s.take(d, k)
			placed += k
		}
		for j := 0; j < len(s.taken) && placed < n; j++ {
			if other := s.taken[j]; other.by != d && other.n > 0 {
				k := place(other.by, min(n-placed, other.n), slots, failed, seen)
				s.take(other.by, -k)
				s.take(d, k)
				placed += k
			}
		}
	}
	return placed
}

func cloneSlots(of []Slot) []Slot {
	out := slices.Clone(of)
	for i := range out {
		out[i].taken = slices.Clone(out[i].taken)
	}
	return out
}
