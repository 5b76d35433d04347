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
	gpu    *gpu.GPU // as it is now
	count  int
	config *gpu.Claim // of the config that will cover it, or nil
}

// size is the memory of one partition, and whether the host has said so; at another
// count than the present one it is an estimate.
func (s slot) size() (size gpu.Bytes, exact bool) {
	if s.count == s.gpu.Partitionable.Count {
		return s.gpu.Partitionable.PartitionVRAM(), true
	}
	return s.gpu.Partitionable.EstimatedPartitionVRAM(s.count), false
}

// slots lists the GPUs of a host that Hyper-V may take partitions from after this run:
// partitioned for real, not dismounted and not in a pool.
func (r *run) slots(host string, h *gpu.Host) []slot {
	return slices.Clone(r.projection(host, h).slots)
}

func slotsOf(h, then *gpu.Host) []slot {
	var out []slot
	for i := range then.GPUs {
		g := &then.GPUs[i]
		if now, ok := h.GPU(g.ID); ok && now.Partitionable != nil && partitions(g) && inPool(then, g.ID) == nil {
			s := slot{gpu: now, count: g.Partitionable.Count}
			for c := range then.ClaimsOf(gpu.ClaimConfig) {
				if c.Covers(g.ID) {
					s.config = c
				}
			}
			out = append(out, s)
		}
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
	vm        *gpu.VM
	seats     int
	uses      int // of the seats those that it has in its hands once the run is done
	clustered bool
	pinned    string
	asked     string // the GPU that its assignment pins it to
	config    string // the config that its partition is bound to
	planned   bool   // it does not have it yet; a plan of this run gives it
}

// who names the VM for a list of holders.
func (s seated) who() string {
	if s.planned {
		return quote(s.name) + " (planned in this run)"
	}
	return quote(s.name)
}

// seating lists who has a partition on the host after this run, by folded VM id.
func (r *run) seating(host string, h *gpu.Host) map[string]seated {
	return r.sitters(host, r.projection(host, h))
}

// sitters are those who have a partition on a projected host.
func (r *run) sitters(host string, p *projection) map[string]seated {
	held := holders(&p.host)
	return r.users(host, p, func(vm *gpu.VM) (int, int) { return len(vm.PartitionAdapters), held[gpu.FoldID(vm.ID)] })
}

// users lists the VMs that have something of a host after this run, by folded id: how much, and
// how much of that they hold. One that runs then has all of it in use, and one that does not only
// what it holds: it is paused, or goes on until its next power-off.
func (r *run) users(host string, p *projection, has func(*gpu.VM) (all, held int)) map[string]seated {
	claims := map[string]*gpu.Assignment{}
	for c := range p.host.ClaimsOf(gpu.ClaimAssignment) {
		if id := gpu.FoldID(c.ID); claims[id] == nil {
			claims[id] = c.Want.Assignment
		}
	}
	out := map[string]seated{}
	for i := range p.host.VMs {
		vm := &p.host.VMs[i]
		n, uses := has(vm)
		if n == 0 || r.mayGo(host, vm) {
			continue
		}
		id := gpu.FoldID(vm.ID)
		if vm.Runs() {
			uses = n
		}
		s := seated{name: cmp.Or(vm.Name, vm.ID), vm: vm, seats: n, uses: uses, clustered: vm.Clustered, planned: true}
		if now := r.fleet.vmOn(host, id); now != nil {
			had, _ := has(now)
			s.planned = had == 0
		}
		if len(vm.PartitionAdapters) > 0 {
			s.pinned = vm.PartitionAdapters[0].PinnedGPU
		}
		if a := claims[id]; a != nil && a.Partition != nil {
			s.config, s.asked = a.Partition.Config, a.Partition.PinnedGPU
		}
		out[id] = s
	}
	return out
}

// seatedAfter tells whether a VM that gets its first partition by this plan runs
// with it afterwards: it runs now, and is stopped and started again.
func seatedAfter(vm *gpu.VM, a *gpu.Assignment) bool {
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

// tally counts seats: those in use, and all.
func tally(seats map[string]seated) (running, configured int) {
	for _, s := range seats {
		configured += s.seats
		running += s.uses
	}
	return running, configured
}

// names lists who has seats.
func names(seats map[string]seated) []string {
	var out []string
	for _, s := range seats {
		out = append(out, s.who())
	}
	slices.Sort(out)
	return out
}

// runningOnly leaves those that run.
func runningOnly(seats map[string]seated) map[string]seated {
	out := maps.Clone(seats)
	maps.DeleteFunc(out, func(_ string, s seated) bool { return s.uses == 0 })
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
