package simulated

import (
	"fmt"
	"math/rand/v2"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// noResources is the one error that Hyper-V has for a start that found no room,
// whatever there was too little of.
const noResources = "insufficient system resources exist to complete the requested service (0x800705AA)"

// takePlaces finds a partition for each of the VM's adapters and a GPU for each of its
// device settings. That is decided at each start anew.
func (r *record) takePlaces(vm *gpu.VM) error {
	for _, a := range vm.PinnedFirst() {
		if err := r.seatAdapter(vm, a); err != nil {
			return err
		}
	}
	for i := range vm.Devices {
		if err := r.seatDevice(vm, &vm.Devices[i]); err != nil {
			return err
		}
	}
	return r.fitMMIO(vm)
}

// seatAdapter takes a partition of the pinned GPU, or of the GPU with the most free
// ones (assumption hyperv-emptier-gpu).
func (r *record) seatAdapter(vm *gpu.VM, a gpu.PartitionAdapter) error {
	var best *gpu.Partitionable
	tooSmall := false
	for i := range r.GPUs {
		g := &r.GPUs[i]
		p := g.Partitionable
		if p == nil || g.Problem != "" || p.Free() <= 0 {
			continue
		}
		if a.PinnedGPU != "" && !gpu.SameID(g.ID, a.PinnedGPU) {
			continue
		}
		if !satisfies(p, a.Quotas) {
			tooSmall = true
			continue
		}
		if best == nil || better(p, best) {
			best = p
		}
	}
	if best == nil {
		switch {
		case tooSmall:
			return refuse(backend.Insufficient, "%s: no free partition is as large as the adapter's quotas", noResources)
		case a.PinnedGPU != "":
			return refuse(backend.Insufficient, "%s: no free partition on GPU %s, which the adapter is pinned to", noResources, a.PinnedGPU)
		default:
			return refuse(backend.Insufficient, "%s: no GPU has a free partition", noResources)
		}
	}
	face := gpuFace{best}
	id := face.freeID()
	face.occupy(gpu.Partition{
		ID:                            id,
		VMID:                          vm.ID,
		VFLUID:                        fmt.Sprintf("%d-%d", 10+id, rand.Uint32()),
		VRAM:                          gpu.Bytes(best.VRAM.Min),
		SupportsOutgoingLiveMigration: clone(best.SupportsIncomingLiveMigration),
	})
	return nil
}

// better prefers hardware partitions to paravirtual ones, then the emptier GPU.
func better(p, than *gpu.Partitionable) bool {
	if p.Paravirtual != than.Paravirtual {
		return !p.Paravirtual
	}
	return p.Free() > than.Free()
}

// satisfies tells whether a partition is as large as the quotas ask.
func satisfies(p *gpu.Partitionable, q gpu.Quotas) bool {
	fits := func(c gpu.Capacity, q gpu.Quota) bool {
		for _, n := range []*uint64{q.Min, q.Optimal, q.Max} {
			if most, known := c.Largest(); known && n != nil && *n != noLimit && *n > most {
				return false
			}
		}
		return true
	}
	return fits(p.VRAM, q.VRAM) && fits(p.Encode, q.Encode) && fits(p.Decode, q.Decode) && fits(p.Compute, q.Compute)
}

// seatDevice resolves a device setting to a GPU that no other VM has in hand.
func (r *record) seatDevice(vm *gpu.VM, d *gpu.DeviceAssignment) error {
	if d.Pool == "" {
		g, ok := r.GPU(d.GPU)
		if !ok || !g.Dismounted {
			return refuse(backend.Failed, "Virtual Pci Express Port: element not found (0x80070490): GPU %s is not dismounted on this host", d.GPU)
		}
		if holder, held := r.wholeHolder(g.ID); held {
			return refuse(backend.InUse, "GPU %s is held by VM %s", g.ID, holder)
		}
		return nil
	}
	pool, ok := r.Pool(d.Pool)
	if !ok {
		return refuse(backend.Insufficient, "%s: the host has no pool %s", noResources, d.Pool)
	}
	for _, id := range pool.GPUs {
		g, ok := r.GPU(id)
		_, held := r.wholeHolder(id)
		if ok && g.Dismounted && g.Problem == "" && !held && !hasDevice(vm, id) {
			d.GPU = g.ID
			return nil
		}
	}
	return refuse(backend.Insufficient, "%s: pool %s has no free GPU", noResources, pool.Name)
}

// fitMMIO checks that the VM's memory-mapped IO space holds its whole devices.
func (r *record) fitMMIO(vm *gpu.VM) error {
	var need gpu.MMIO
	for _, d := range vm.Devices {
		if g, ok := r.GPU(d.GPU); ok {
			need.Low += g.MMIO.Low
			need.High += g.MMIO.High
		}
	}
	low, high := defaultLowMMIO, defaultHighMMIO
	if s := vm.Settings.LowMemoryMappedIOSpace; s != nil {
		low = *s
	}
	if s := vm.Settings.HighMemoryMappedIOSpace; s != nil {
		high = *s
	}
	if low < need.Low || high < need.High {
		return refuse(backend.Insufficient, "%s: the devices need %s below and %s above 4 GiB of memory-mapped IO space, the VM has %s and %s",
			noResources, need.Low, need.High, low, high)
	}
	return nil
}
