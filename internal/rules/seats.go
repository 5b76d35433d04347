package rules

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// slot is a partitionable GPU of a host with the number of partitions that it will
// have once the plans of this run are made real.
type slot struct {
	gpu    *gpu.GPU
	count  int
	config string // id of the config of this run that covers it, or ""
}

// size is the memory of one partition, and whether the host has said so; at another
// count than the present one it is an estimate.
func (s slot) size() (size gpu.Bytes, exact bool) {
	if s.count == s.gpu.Partitionable.Count {
		return s.gpu.Partitionable.PartitionVRAM(), true
	}
	return s.gpu.Partitionable.EstimatedPartitionVRAM(s.count), false
}

// slots lists the GPUs of a host that Hyper-V may take partitions from: partitioned
// for real, not dismounted, not in a pool and not about to be.
func (r *run) slots(host string, h *gpu.Host) []slot {
	var out []slot
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if !partitions(g) || inPool(h, g.ID) != nil || r.passedThrough(host, g.ID) {
			continue
		}
		s := slot{gpu: g, count: g.Partitionable.Count}
		if c := r.configOver(host, g.ID); c != nil && c.Kind == gpu.KindGPUP {
			s.count, s.config = c.Count, c.ID
		}
		out = append(out, s)
	}
	return out
}

// partitions tells whether the GPU offers partitions now.
func partitions(g *gpu.GPU) bool {
	return g.Partitionable != nil && !g.Partitionable.Paravirtual && !g.Dismounted
}

// inPool finds the pool of a host that a GPU is in.
func inPool(h *gpu.Host, id string) *gpu.Pool {
	for i := range h.Pools {
		if h.Pools[i].Has(id) {
			return &h.Pools[i]
		}
	}
	return nil
}

// configOver is the config of this run that will cover a GPU. What the checked
// config had before is what the host has now.
func (r *run) configOver(host, id string) *gpu.PartitionConfig {
	if c := r.plan.Want.Config; c != nil && !r.before && contains(c.GPUs[host], id) {
		return c
	}
	for e := range r.others(gpusOn(host)) {
		if c := e.plan.Want.Config; c != nil && contains(c.GPUs[host], id) {
			return c
		}
	}
	return nil
}

// passedThrough tells whether a plan of this run takes the GPU for passthrough.
func (r *run) passedThrough(host, id string) bool {
	if takesWhole(r.plan.Want, host, id) && !r.before {
		return true
	}
	for e := range r.others(gpusOn(host)) {
		if takesWhole(e.plan.Want, host, id) {
			return true
		}
	}
	return false
}

// takesWhole tells whether a pool or a device assignment takes the GPU.
func takesWhole(w gpu.Want, host, id string) bool {
	if w.Pool != nil {
		return contains(w.Pool.Members[host], id)
	}
	if w.Assignment != nil && w.Assignment.Device != nil {
		return w.Assignment.Device.Host == host && contains(w.Assignment.Device.GPUIDs, id)
	}
	return false
}

// seated is a VM that has, or will have, a partition on a host.
type seated struct {
	name      string
	seats     int
	running   bool // it holds its partition now, or will after this run
	clustered bool
	pinned    string
	config    string // the config that its partition is bound to
	planned   bool // it does not have it yet; a plan of this run gives it
}

// who names the VM for a list of holders.
func (s seated) who() string {
	if s.planned {
		return quote(s.name) + " (planned in this run)"
	}
	return quote(s.name)
}

// seating lists who has a partition on the host once the other plans of this run
// are made real, by folded VM id. The checked plan itself is left out.
func (r *run) seating(host string, h *gpu.Host) map[string]seated {
	holding := holders(h)
	holdsNow := func(vm *gpu.VM) bool {
		return len(vm.PartitionAdapters) > 0 && (vm.Runs() || holding[gpu.FoldID(vm.ID)])
	}
	out := map[string]seated{}
	for i := range h.VMs {
		vm := &h.VMs[i]
		if len(vm.PartitionAdapters) == 0 || r.mayGo(vm) {
			continue
		}
		out[gpu.FoldID(vm.ID)] = seated{
			name:      cmp.Or(vm.Name, vm.ID),
			seats:     len(vm.PartitionAdapters),
			running:   holdsNow(vm),
			clustered: vm.Clustered,
			pinned:    vm.PartitionAdapters[0].PinnedGPU,
			config:    r.configOfClaim(vm),
		}
	}
	partition := func(a *gpu.Assignment) bool { return a != nil && a.Partition != nil }
	if at, ok := r.locate(r.plan.Prior.Assignment); ok && partition(r.plan.Prior.Assignment) {
		delete(out, gpu.FoldID(at.vm.ID))
	}
	// First who leaves, then who comes: a renamed resource is both.
	for e := range r.others(vmsOn(host)) {
		if prior := e.plan.Prior.Assignment; partition(prior) && !partition(e.plan.Want.Assignment) {
			if at, ok := r.locate(prior); ok && at.key == host {
				delete(out, gpu.FoldID(at.vm.ID))
			}
		}
	}
	for e := range r.others(vmsOn(host)) {
		a := e.plan.Want.Assignment
		if !partition(a) {
			continue
		}
		if at, ok := r.locate(a); ok && at.key == host {
			out[gpu.FoldID(at.vm.ID)] = seated{
				name:      at.vm.Name,
				seats:     1,
				running:   holdsNow(at.vm) || seatedAfter(at.vm, a),
				clustered: at.vm.Clustered,
				pinned:    a.Partition.PinnedGPU,
				config:    a.Partition.Config,
				planned:   len(at.vm.PartitionAdapters) == 0,
			}
		}
	}
	return out
}

// seatedAfter tells whether a VM that gets its first partition by this plan runs
// with it afterwards: it runs now, and is stopped and started again.
func seatedAfter(vm *gpu.VM, a *gpu.Assignment) bool {
	return vm.Runs() && !a.Power.StayOff && !a.Power.NextOff
}

// holders are the folded ids of the VMs that hold a partition of the host now.
func holders(h *gpu.Host) map[string]bool {
	out := map[string]bool{}
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			for _, part := range p.Partitions {
				out[gpu.FoldID(part.VMID)] = true
			}
		}
	}
	return out
}

// tally counts seats: those in use by VMs that run, and those of all VMs.
func tally(seats map[string]seated) (running, configured int, names []string) {
	for _, id := range sortedKeys(seats) {
		s := seats[id]
		configured += s.seats
		if s.running {
			running += s.seats
		}
		names = append(names, s.who())
	}
	slices.Sort(names)
	return running, configured, names
}

// runningOnly leaves those that run.
func runningOnly(seats map[string]seated) map[string]seated {
	out := maps.Clone(seats)
	maps.DeleteFunc(out, func(_ string, s seated) bool { return !s.running })
	return out
}

// total is the number of partitions of all slots.
func total(slots []slot) int {
	n := 0
	for _, s := range slots {
		n += s.count
	}
	return n
}

// vmNames names VMs by id as a host knows them.
func vmNames(h *gpu.Host, ids []string) []string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if vm, ok := h.VM(id); ok {
			names = append(names, quote(cmp.Or(vm.Name, vm.ID)))
		} else {
			names = append(names, quote(id))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// heldBy is how many partitions of a GPU a VM holds now.
func heldBy(g *gpu.GPU, vm string) int {
	n := 0
	for _, p := range g.Partitionable.Partitions {
		if gpu.SameID(p.VMID, vm) {
			n++
		}
	}
	return n
}

// holderIDs are the ids of the VMs that hold a GPU's partitions.
func holderIDs(g *gpu.GPU) []string {
	var out []string
	if g.Partitionable != nil {
		for _, p := range g.Partitionable.Partitions {
			if !contains(out, p.VMID) {
				out = append(out, p.VMID)
			}
		}
	}
	return out
}
