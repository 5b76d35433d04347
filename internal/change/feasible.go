package change

import (
	"math"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// feasible walks through the steps, with the host as each of them finds it, and refuses what
// the host would refuse. So a change that cannot end well stops nobody's VM on the way.
func (p *planner) feasible() error {
	d := draft{Host: p.host}
	for _, s := range p.steps {
		if r := Obstacle(&d.Host, s); r != nil {
			return r
		}
		d.project(s)
	}
	p.after = &d.Host
	return nil
}

// Obstacle is what keeps a host from doing a step; nil for nothing that it shows.
func Obstacle(host *gpu.Host, s Step) *gpu.Refusal {
	if hinders := rows[s.Op].hinders; hinders != nil {
		return hinders(host, s)
	}
	return nil
}

// whileHeld hinders what needs all partitions of a GPU free.
func whileHeld(doing string) func(*gpu.Host, Step) *gpu.Refusal {
	return func(host *gpu.Host, s Step) *gpu.Refusal {
		if g, ok := host.GPU(s.GPU); ok && len(holders(g)) > 0 {
			return refuse(gpu.InUse, doing, "GPU "+g.ID, "its partitions are held by %s", vmNames(host, holders(g))).Or("shut these VMs down first")
		}
		return nil
	}
}

func whileAssigned(host *gpu.Host, s Step) *gpu.Refusal {
	if vm := assignee(host, s.GPU); vm != nil {
		return refuse(gpu.InUse, "mount the GPU back", "GPU "+s.GPU, "it is assigned to VM %q", vm.Name).Or("take it from the VM first")
	}
	return nil
}

func changesPool(host *gpu.Host, s Step) *gpu.Refusal {
	if r := leavesPool(host, s); r != nil {
		return r
	}
	return joinsPool(host, s)
}

func pinnedToNothing(host *gpu.Host, s Step) *gpu.Refusal {
	if g, ok := host.GPU(s.Adapter.PinnedGPU); s.Adapter.PinnedGPU != "" && (!ok || g.Dismounted || g.Partitionable == nil) {
		return refuse(gpu.InvalidState, changeGPU, vmText(s.VMName()), "GPU %s, which the partition is pinned to, has no partitions there",
			s.Adapter.PinnedGPU).Or("pin it to another GPU, or to none")
	}
	return nil
}

func notHandedOut(host *gpu.Host, s Step) *gpu.Refusal {
	if slices.Contains(host.ForeignSpecs, s.Share.Name) {
		return refuse(gpu.InUse, placeShare, "share "+s.Share.Name, "somebody else has a CDI specification in its place, which stays as it is").
			Or("move that file away, or give the share another name")
	}
	if _, runs := host.Daemon(s.Share.Daemon); s.Share.Daemon != "" && !runs {
		return refuse(gpu.Insufficient, placeShare, "share "+s.Share.Name, "MPS daemon %s does not run", s.Share.Daemon).
			Or("apply the partition config of its GPUs")
	}
	return nil
}

// leavesPool refuses to take a GPU from a pool that a VM has in its hands, wherever it has
// it from.
func leavesPool(host *gpu.Host, s Step) *gpu.Refusal {
	pool, ok := host.Pool(s.Pool)
	if !ok {
		return nil
	}
	for _, id := range pool.GPUs {
		if vm := user(host, id); vm != nil && !gpu.HasID(s.GPUs, id) {
			return refuse(gpu.InUse, "take the GPU from pool "+words.Name(pool.Name), "GPU "+id, "VM %q has it", vm.Name).
				Or("shut the VM down or take the GPU from it first").OfRule(Capacity)
		}
	}
	return nil
}

// joinsPool refuses to put a GPU into a pool that is in another one. Nothing takes it out there
// but what that one is changed by, which may come first.
func joinsPool(host *gpu.Host, s Step) *gpu.Refusal {
	for i := range host.Pools {
		for _, id := range s.GPUs {
			if o := &host.Pools[i]; !gpu.SameID(o.Name, s.Pool) && o.Has(id) {
				return refuse(gpu.Insufficient, "put the GPU into pool "+words.Name(s.Pool), "GPU "+id, "it is in pool %q", o.Name).
					Or("take it out of pool %q first, in an apply of its own", o.Name).OfRule(Capacity)
			}
		}
	}
	return nil
}

func takesDevice(host *gpu.Host, s Step) *gpu.Refusal {
	if d := s.Device; d.Pool != "" {
		if _, ok := host.Pool(d.Pool); !ok {
			return refuse(gpu.NotFound, changeGPU, vmText(s.VMName()), "the host has no pool %q", d.Pool)
		}
		return nil
	}
	if s.Device.VGPU != nil {
		return takesVGPU(host, s)
	}
	if vm := user(host, s.Device.GPU); vm != nil && !gpu.SameID(vm.ID, s.VM) {
		return refuse(gpu.InUse, changeGPU, vmText(s.VMName()), "VM %q has GPU %s", vm.Name, s.Device.GPU).
			Or("take it from that VM first, or choose another GPU").OfRule(Capacity)
	}
	return nil
}

// noRoom is why a VM would not find what it has to have at its start.
func noRoom(host *gpu.Host, s Step) *gpu.Refusal {
	vm, ok := host.VM(s.VM)
	if !ok || vm.State != gpu.VMOff {
		return nil
	}
	lacks := func(format string, args ...any) *gpu.Refusal {
		return refuse(gpu.Insufficient, "start", vmText(vm.Name), format, args...).
			Or("free one, make more, or start the VM elsewhere").OfRule(Capacity)
	}
	after := *host
	after.GPUs = slices.Clone(host.GPUs)
	starts := *vm
	if a := occupy(&after, &starts); a != nil {
		switch {
		case !a.Quotas.Equal(gpu.Quotas{}):
			return lacks("no free partition is as large as its quotas")
		case a.PinnedGPU != "":
			return lacks("no partition is free on GPU %s, which its own is pinned to", a.PinnedGPU)
		}
		return lacks("no GPU of the host has a free partition")
	}
	if d := resolve(&after, &starts); d != nil && d.Pool != "" {
		return lacks("pool %q has no free GPU", d.Pool)
	} else if d != nil && (d.VGPU != nil || d.GPU == "") {
		return lacks("the vGPU of its device %s is not there, or another VM has it", d.ID)
	} else if d != nil {
		return lacks("GPU %s is not free for it", d.GPU)
	}
	return nil
}

// StartedOn is a host whose VM has a partition of a certain GPU where the platform chooses, if it may
// have one there: the VM has just been started.
func StartedOn(host gpu.Host, vm, on string) (gpu.Host, bool) {
	off, start := Project(host, Step{Op: OpStopVM, VM: vm}), Step{Op: OpStartVM, VM: vm}
	starts, ok := off.VM(vm)
	if !ok {
		return host, false
	}
	adapters := starts.PartitionAdapters
	for i, a := range adapters {
		if a.PinnedGPU != "" {
			continue
		}
		starts.PartitionAdapters = slices.Clone(adapters)
		starts.PartitionAdapters[i].PinnedGPU = on
		if noRoom(&off, start) == nil {
			host = Project(off, start)
			runs, _ := host.VM(vm)
			runs.PartitionAdapters = adapters
			return host, true
		}
	}
	return host, false
}

// user is the VM that has a whole GPU in its hands now, and assignee the one that it is
// assigned to, even if it is off; nil for none.
func user(host *gpu.Host, id string) *gpu.VM {
	for i := range host.VMs {
		if vm := &host.VMs[i]; vm.State != gpu.VMOff && vm.State != gpu.VMSaved && hasWhole(vm, id) {
			return vm
		}
	}
	return nil
}

func assignee(host *gpu.Host, id string) *gpu.VM {
	i := slices.IndexFunc(host.VMs, func(vm gpu.VM) bool { return hasWhole(&vm, id) })
	if i < 0 {
		return nil
	}
	return &host.VMs[i]
}

func hasWhole(vm *gpu.VM, id string) bool {
	return slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return d.VGPU == nil && d.GPU != "" && gpu.SameID(d.GPU, id) })
}

// occupy gives a VM that starts a partition for each of its adapters: of the GPU that it
// is pinned to, or of the emptiest, since which one Hyper-V takes is its own affair. It
// returns the adapter that finds none. The host's list of GPUs is a copy already.
func occupy(host *gpu.Host, vm *gpu.VM) *gpu.PartitionAdapter {
	for _, a := range vm.PinnedFirst() {
		var best *gpu.GPU
		for i := range host.GPUs {
			g := &host.GPUs[i]
			if g.Partitionable == nil || g.Dismounted || g.Problem != "" || g.Partitionable.Free() <= 0 ||
				a.PinnedGPU != "" && !gpu.SameID(a.PinnedGPU, g.ID) ||
				!quotasFit(a.Quotas, g.Partitionable, g.Partitionable.Count) {
				continue
			}
			if best == nil || g.Partitionable.Free() > best.Partitionable.Free() {
				best = g
			}
		}
		if best == nil {
			return &a
		}
		part := *best.Partitionable
		part.Partitions = append(slices.Clone(part.Partitions), gpu.Partition{
			VMID: vm.ID, VRAM: part.PartitionVRAM(), SupportsOutgoingLiveMigration: part.SupportsIncomingLiveMigration,
		})
		available(&part)
		best.Partitionable = &part
	}
	return nil
}

// resolve gives a VM that starts GPUs of the pools that it draws from, and unresolve takes
// them back. It returns the device that is not to be had.
func resolve(host *gpu.Host, vm *gpu.VM) *gpu.DeviceAssignment {
	vm.Devices = slices.Clone(vm.Devices)
	var missing *gpu.DeviceAssignment
	for i := range vm.Devices {
		d := &vm.Devices[i]
		if d.VGPU != nil || d.GPU == "" && d.Pool == "" {
			if in, ok := host.VGPUOf(d); !ok || in.Holder != "" && in.Holder != "VM "+vm.Name {
				missing = d
			}
			continue
		}
		if d.Pool == "" {
			if g, ok := host.GPU(d.GPU); !ok || !g.Dismounted || user(host, d.GPU) != nil {
				missing = d
			}
			continue
		}
		pool, ok := host.Pool(d.Pool)
		if d.GPU != "" {
			continue
		}
		free := -1
		if ok {
			free = slices.IndexFunc(pool.GPUs, func(id string) bool {
				g, there := host.GPU(id)
				return there && g.Dismounted && g.Problem == "" && user(host, id) == nil && !hasWhole(vm, id)
			})
		}
		if free < 0 {
			missing = d
			continue
		}
		d.GPU = pool.GPUs[free]
	}
	return missing
}

// quotasFit tells whether a partition of a GPU, at a count, is as large as quotas ask.
func quotasFit(q gpu.Quotas, part *gpu.Partitionable, count int) bool {
	fit := func(q gpu.Quota, c gpu.Capacity) bool {
		size, known := c.Largest()
		if !known {
			return true // which the host decides when the VM starts
		}
		if count > 0 {
			size = scaled(size, part.Count, count)
		}
		for _, v := range []*uint64{q.Min, q.Max, q.Optimal} {
			if v != nil && *v != math.MaxUint64 && *v > size {
				return false
			}
		}
		return true
	}
	return fit(q.VRAM, part.VRAM) && fit(q.Encode, part.Encode) && fit(q.Decode, part.Decode) && fit(q.Compute, part.Compute)
}
