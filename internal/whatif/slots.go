package whatif

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Slot is a partitionable GPU of a host with the number of partitions that it will
// have once the plans of this run are made real.
type Slot struct {
	GPU    *gpu.GPU // as it is now
	Count  int
	Config *gpu.Claim // of the config that will cover it, or nil

	// In a cluster:
	host  string
	node  string // what the cluster calls the host
	up    bool   // VMs may come here
	taken []taken
}

// Likeness tells whether two slots give partitions of one size. Estimates are taken to be
// as good as the driver's figures.
func (s Slot) Likeness(o Slot) bool {
	a, exactA := s.Size()
	b, exactB := o.Size()
	if a == 0 || b == 0 {
		return s.Count == o.Count
	}
	if exactA && exactB {
		return a == b
	}
	return Within(a, b, EstimateTolerance)
}

// Size is the memory of one partition, and whether the host has said so; at another
// count than the present one it is an estimate.
func (s Slot) Size() (size gpu.Bytes, exact bool) {
	if s.Count == s.GPU.Partitionable.Count {
		return s.GPU.Partitionable.PartitionVRAM(), true
	}
	return s.GPU.Partitionable.EstimatedPartitionVRAM(s.Count), false
}

// Slots lists the GPUs of a host that Hyper-V may take partitions from after this run:
// partitioned for real, not dismounted and not in a pool.
func (r Future) Slots(host string, h *gpu.Host) []Slot {
	return slices.Clone(r.projection(host, h).slots)
}

func slotsOf(h, then *gpu.Host) []Slot {
	var out []Slot
	for i := range then.GPUs {
		g := &then.GPUs[i]
		if now, ok := h.GPU(g.ID); ok && now.Partitionable != nil && Partitions(g) && InPool(then, g.ID) == nil {
			s := Slot{GPU: now, Count: g.Partitionable.Count}
			for c := range then.ClaimsOf(gpu.ClaimConfig) {
				if c.Covers(g.ID) {
					s.Config = c
				}
			}
			out = append(out, s)
		}
	}
	return out
}

// ConfigSlots are the slots of a host that a config covers once the plans of the run are
// made real.
func (r Future) ConfigSlots(host, id string) []Slot {
	return slices.DeleteFunc(r.Slots(host, r.Fleet.byName[host]), func(s Slot) bool {
		if c := r.Plan.Want.Config; c != nil && gpu.SameID(c.ID, id) { // also as it was before
			return !Contains(c.GPUs[host], s.GPU.ID)
		}
		return s.Config == nil || !gpu.SameID(s.Config.ID, id)
	})
}

// Choices are the slots that Hyper-V may take the VM's partition from: of the pinned GPU, or
// on a standalone host with GPUs of several sizes those of the config, which the VM is pinned
// to; else all of the host.
func (r Future) Choices(at Located, p *gpu.PartitionWant, host string) []Slot {
	all := r.Slots(host, r.Fleet.byName[host])
	if p.PinnedGPU != "" {
		return slices.DeleteFunc(all, func(s Slot) bool { return !gpu.SameID(s.GPU.ID, p.PinnedGPU) })
	}
	if p.Config == "" || at.VM.Clustered {
		return all
	}
	own := r.ConfigSlots(host, p.Config)
	if len(own) == 0 || !slices.ContainsFunc(all, func(s Slot) bool { return !s.Likeness(own[0]) }) {
		return all
	}
	return own
}

// Demand is a VM that has, or will have, partitions on a host or GPUs of a pool; or several VMs alike.
type Demand struct {
	Name      string
	VM        *gpu.VM
	Amount    int
	Uses      int // of the amount what it has in its hands once the run is done
	clustered bool
	Pinned    string
	Planned   bool               // it does not have it yet; a plan of this run gives it
	Asks      *gpu.PartitionWant // the partition that its assignment asks for, or nil

	// Of a VM that may have to move:
	host string  // that it runs on
	min  *uint64 // the least memory that its partition must have
	on   string  // the GPU whose partition it keeps while it stays
}

// BoundTo is the config that the partition of a VM is bound to, "" for none.
func (d Demand) BoundTo() string {
	if d.Asks == nil {
		return ""
	}
	return d.Asks.Config
}

// Demands lists who has a partition on the host after this run, by folded VM id.
func (r Future) Demands(host string, h *gpu.Host) map[string]Demand {
	return r.demandsOn(host, r.projection(host, h))
}

// demandsOn are those who have a partition on a projected host.
func (r Future) demandsOn(host string, p *projection) map[string]Demand {
	held := holders(&p.host)
	return r.users(host, p, func(vm *gpu.VM) (int, int) { return len(vm.PartitionAdapters), held[gpu.FoldID(vm.ID)] })
}

// users lists the VMs that have something of a host after this run, by folded id: how much, and
// how much of that they hold. One that runs then has all of it in use, and one that does not only
// what it holds: it is paused, or goes on until its next power-off.
func (r Future) users(host string, p *projection, has func(*gpu.VM) (all, held int)) map[string]Demand {
	claims := map[string]*gpu.Assignment{}
	for c := range p.host.ClaimsOf(gpu.ClaimAssignment) {
		if id := gpu.FoldID(c.ID); claims[id] == nil {
			claims[id] = c.Want.Assignment
		}
	}
	out := map[string]Demand{}
	for i := range p.host.VMs {
		vm := &p.host.VMs[i]
		n, uses := has(vm)
		if n == 0 || r.MayGo(host, vm) {
			continue
		}
		id := gpu.FoldID(vm.ID)
		if vm.Runs() {
			uses = n
		}
		s := Demand{Name: cmp.Or(vm.Name, vm.ID), VM: vm, Amount: n, Uses: uses, clustered: vm.Clustered, Planned: true}
		if now := r.Fleet.VMOn(host, id); now != nil {
			had, _ := has(now)
			s.Planned = had == 0
		}
		if len(vm.PartitionAdapters) > 0 {
			s.Pinned = vm.PartitionAdapters[0].PinnedGPU
		}
		if a := claims[id]; a != nil && a.Partition != nil {
			s.Asks = a.Partition
		}
		out[id] = s
	}
	return out
}

// RunsAfter tells whether a VM that gets its first partition by this plan runs
// with it afterwards: it runs now, and is stopped and started again.
func RunsAfter(vm *gpu.VM, a *gpu.Assignment) bool {
	return vm.Runs() && !a.Power.StayOff && !a.Power.NextOff
}

// holders are how many partitions of the host VMs hold, by folded id.
func holders(h *gpu.Host) map[string]int {
	out := map[string]int{}
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			for _, part := range p.Partitions {
				out[gpu.FoldID(part.VMID)]++
			}
		}
	}
	return out
}

// Tally counts amount: those in use, and all.
func Tally(demands map[string]Demand) (running, configured int) {
	for _, s := range demands {
		configured += s.Amount
		running += s.Uses
	}
	return running, configured
}

// RunningOnly leaves those that run.
func RunningOnly(demands map[string]Demand) map[string]Demand {
	out := maps.Clone(demands)
	maps.DeleteFunc(out, func(_ string, s Demand) bool { return s.Uses == 0 })
	return out
}

// Total is the number of partitions of all slots.
func Total(slots []Slot) int {
	n := 0
	for _, s := range slots {
		n += s.Count
	}
	return n
}

// PoolUsers lists who draws from a pool on the host after this run.
func (r Future) PoolUsers(host string, h *gpu.Host, pool string) map[string]Demand {
	return r.users(host, r.projection(host, h), func(vm *gpu.VM) (all, held int) {
		for _, d := range vm.Devices {
			if gpu.SameID(d.Pool, pool) && d.GPU != "" {
				held++
			}
		}
		return Drawn(vm, pool), held
	})
}

// AddsPartition tells whether the plan gives a VM a partition beside those that it has by hand.
func (r Future) AddsPartition(at Located) bool {
	if prior := r.Plan.Prior.Assignment; r.Plan.Unchanged || prior != nil && prior.Partition != nil {
		return false
	}
	then := r.Forced(*r.Projected(at.Key, at.Host), at.Key, r.Plan)
	vm, ok := then.VM(at.VM.ID)
	return ok && len(vm.PartitionAdapters) > len(at.VM.PartitionAdapters)
}

// Within tells whether a is at most so many percent away from b.
func Within(a, b gpu.Bytes, percent gpu.Bytes) bool {
	if a < b {
		a, b = b, a
	}
	return a-b <= a/100*percent
}

// Starter is a VM that a run starts with partitions.
type Starter struct {
	Name   string
	Held   map[string]int // those that it has now, by GPU
	Pinned map[string]int // those of GPUs that people pinned it to
	Loose  [][]Slot       // for each of the others the GPUs that the platform may take it from
}

// PinsAny tells whether an assignment on a host pins its VM to a GPU.
func PinsAny(h *gpu.Host) bool {
	for c := range h.ClaimsOf(gpu.ClaimAssignment) {
		if a := c.Want.Assignment; a != nil && a.Partition != nil && a.Partition.PinnedGPU != "" {
			return true
		}
	}
	return false
}

// StartsWith is what a VM takes at its start. For its config it is pinned to one of the config's
// GPUs, which is chosen only then.
func StartsWith(v Demand, slots []Slot) *Starter {
	out := &Starter{Name: v.Name, Held: map[string]int{}, Pinned: map[string]int{}}
	own := slices.DeleteFunc(slices.Clone(slots), func(s Slot) bool { return s.Config == nil || !gpu.SameID(s.Config.ID, v.BoundTo()) })
	for _, a := range v.VM.PartitionAdapters {
		at := slices.IndexFunc(slots, func(s Slot) bool { return gpu.SameID(s.GPU.ID, a.PinnedGPU) })
		switch {
		case a.PinnedGPU == "":
			out.Loose = append(out.Loose, slots)
		case (v.Asks == nil || !gpu.SameID(a.PinnedGPU, v.Asks.PinnedGPU)) && len(own) > 0:
			out.Loose = append(out.Loose, own)
		case at >= 0:
			out.Pinned[slots[at].GPU.ID]++
		}
	}
	return out
}

// TakenFirst is how many partitions of a GPU VMs that are not pinned to it may take before one that
// is gets its own: at worst all others have come before, what that one has of others has too, and of
// two GPUs with as many free partitions they get this one.
func TakenFirst(of Slot, last string, starters map[string]*Starter, free map[string]int) int {
	pinned := func(v *Starter, id string) int {
		if id == of.GPU.ID {
			return 0 // else it has come before
		}
		return v.Pinned[id]
	}
	room := map[string]int{}
	for id, n := range free {
		room[id] = n
		for _, v := range starters {
			room[id] -= max(v.Held[id], pinned(v, id))
		}
	}
	taken := 0
	order := slices.DeleteFunc(SortedKeys(starters), func(id string) bool { return id == last })
	for _, id := range append(order, last) {
		v := starters[id]
		for id, n := range v.Held { // it is stopped first
			room[id] += max(0, n-pinned(v, id))
		}
		for _, from := range v.Loose {
			points := func(s Slot) int {
				switch left := room[s.GPU.ID] - v.Pinned[s.GPU.ID]; {
				case s.GPU != of.GPU:
					return 2 * room[s.GPU.ID]
				case left <= 0:
					return 2 * left // it would not find its own there
				}
				return 2*room[s.GPU.ID] + 1
			}
			best := slices.MaxFunc(from, func(a, b Slot) int { return points(a) - points(b) })
			if room[best.GPU.ID]--; best.GPU == of.GPU {
				taken++
			}
		}
	}
	return taken
}

// EstimateTolerance is how far, in percent, an estimated partition size may be from
// the asserted one. The driver rounds and reserves; only the present count is exact.
const EstimateTolerance = 5
