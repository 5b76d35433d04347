package change

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// binding is what a host has for the partition of a VM whose assignment names configs.
// Hyper-V takes it from any partitionable GPU unless the adapter is pinned, and a pinned
// adapter keeps a clustered VM from starting elsewhere: there the rules ask for GPUs of one
// size instead.
type binding struct {
	host  *gpu.Host
	vm    *gpu.VM
	gpus  []*gpu.GPU // those of the configs
	other []*gpu.GPU // the rest that Hyper-V may choose from
}

// bound is the binding of a VM's partition, nil where nothing has to be bound.
func bound(host *gpu.Host, vm *gpu.VM, w *gpu.PartitionWant) *binding {
	if w == nil || w.PinnedGPU != "" || vm.Clustered {
		return nil
	}
	covered := func(id string) bool {
		return slices.ContainsFunc(w.ConfigIDs(), func(config string) bool {
			claim, claimed := host.Claim(gpu.ClaimConfig, config)
			return claimed && claim.Covers(id)
		})
	}
	b := &binding{host: host, vm: vm}
	for i := range host.GPUs {
		switch g := &host.GPUs[i]; {
		case !offersPartitions(host, g):
		case covered(g.ID):
			b.gpus = append(b.gpus, g)
		default:
			b.other = append(b.other, g)
		}
	}
	if len(b.gpus) == 0 {
		return nil
	}
	return b
}

// offersPartitions tells whether Hyper-V may take partitions from a GPU.
func offersPartitions(host *gpu.Host, g *gpu.GPU) bool {
	return g.Partitionable != nil && !g.Partitionable.Paravirtual && !g.Dismounted && g.Problem == "" &&
		!slices.ContainsFunc(host.Pools, func(p gpu.Pool) bool { return p.Has(g.ID) })
}

// has tells whether a GPU is of the config.
func (b *binding) has(id string) bool {
	return slices.ContainsFunc(b.gpus, func(g *gpu.GPU) bool { return gpu.SameID(g.ID, id) })
}

// sized tells whether the config's GPUs have partitions of that size.
func (b *binding) sized(size gpu.Bytes) bool {
	return slices.ContainsFunc(b.gpus, func(g *gpu.GPU) bool { return g.Partitionable.PartitionVRAM() == size })
}

// mixed tells whether Hyper-V could choose a partition of another size.
func (b *binding) mixed() bool {
	return slices.ContainsFunc(b.other, func(g *gpu.GPU) bool { return !b.sized(g.Partitionable.PartitionVRAM()) })
}

// pin is the GPU that a new adapter is pinned to: the emptiest of the config. Where there is
// nothing else to choose it is left to Hyper-V, and where none is free but others are as good.
func (b *binding) pin() string {
	if b == nil || len(b.other) == 0 {
		return ""
	}
	best := slices.MaxFunc(b.gpus, func(x, y *gpu.GPU) int { return b.free(x) - b.free(y) })
	if b.free(best) <= 0 && !b.mixed() {
		return ""
	}
	return best.ID
}

// free is how many partitions of a GPU other VMs neither hold nor are pinned to.
func (b *binding) free(g *gpu.GPU) int {
	n := g.Partitionable.Count
	for i := range b.host.VMs {
		vm := &b.host.VMs[i]
		if !gpu.SameID(vm.ID, b.vm.ID) &&
			(gpu.HasID(holders(g), vm.ID) ||
				slices.ContainsFunc(vm.PartitionAdapters, func(a gpu.PartitionAdapter) bool { return gpu.SameID(a.PinnedGPU, g.ID) })) {
			n--
		}
	}
	return n
}

// unfit is why the adapter of a VM does not give it a partition of the config, "" where it
// does. A VM that is off has none yet.
func (b *binding) unfit(a *gpu.PartitionAdapter) string {
	switch {
	case b == nil:
		return ""
	case a.PinnedGPU != "":
		g, ok := b.host.GPU(a.PinnedGPU)
		if b.has(a.PinnedGPU) || ok && offersPartitions(b.host, g) && b.sized(g.Partitionable.PartitionVRAM()) {
			return "" // one that the config had before is as good
		}
		return "the adapter is pinned to GPU " + a.PinnedGPU
	}
	for _, g := range b.other {
		for _, part := range g.Partitionable.Partitions {
			if size := partitionSize(g, part); gpu.SameID(part.VMID, b.vm.ID) && !b.sized(size) {
				return fmt.Sprintf("it has a partition of %d MiB on GPU %s", size.MiB(), g.ID)
			}
		}
	}
	return ""
}

// partitionSize is the memory of a partition in use.
func partitionSize(g *gpu.GPU, p gpu.Partition) gpu.Bytes {
	if p.VRAM != 0 {
		return p.VRAM
	}
	return g.Partitionable.PartitionVRAM()
}

// adapterFor is the adapter that an assignment made: where there are several, the one that
// was pinned for its config.
func adapterFor(host *gpu.Host, vm *gpu.VM, w *gpu.PartitionWant) *gpu.PartitionAdapter {
	if b := bound(host, vm, w); b != nil && len(vm.PartitionAdapters) > 1 {
		for i := range vm.PartitionAdapters {
			if a := &vm.PartitionAdapters[i]; a.PinnedGPU != "" && b.has(a.PinnedGPU) {
				return a
			}
		}
	}
	return vm.AdapterFor(w)
}

// serves tells whether an adapter is what is wanted, but for its quotas.
func serves(host *gpu.Host, vm *gpu.VM, a *gpu.PartitionAdapter, w *gpu.PartitionWant) bool {
	b := bound(host, vm, w)
	if b == nil || w.PinnedGPU != "" {
		return gpu.SameID(a.PinnedGPU, w.PinnedGPU)
	}
	if !vm.Runs() && a.PinnedGPU == "" && b.mixed() {
		return false // at its next start it may get another size
	}
	return b.unfit(a) == ""
}

// Strayed is why what a VM has is not the partition that its assignment wants and an update
// of it would give, "" where it is or where nothing better is at hand.
func Strayed(host *gpu.Host, vm *gpu.VM, w *gpu.PartitionWant) string {
	a := adapterFor(host, vm, w)
	switch b := bound(host, vm, w); {
	case a == nil:
		return "has no such GPU partition adapter"
	case b != nil:
		if why := b.unfit(a); why != "" {
			return "has no partition of " + configsOf(w) + ": " + why
		}
	case !gpu.SameID(a.PinnedGPU, w.PinnedGPU):
		return "has an adapter that is bound to " + pinned(a.PinnedGPU) + ", declared is " + pinned(w.PinnedGPU)
	}
	if !a.Quotas.Has(w.Quotas) {
		return "has an adapter whose quotas are not the declared ones"
	}
	return ""
}

func pinned(id string) string {
	if id == "" {
		return "no GPU"
	}
	return "GPU " + id
}

// configsOf names the configs of a partition.
func configsOf(w *gpu.PartitionWant) string {
	return words.Verb(len(w.ConfigIDs()), "partition config ", "partition configs ") + words.JoinAll(w.ConfigIDs())
}

// Undelivered is how the partition that a VM got at its start differs from what its
// assignment wants, "" for nothing.
func Undelivered(host *gpu.Host, a *gpu.Assignment) string {
	if a == nil || a.Partition == nil {
		return ""
	}
	vm, ok := host.VM(a.VMID)
	if !ok || !vm.Runs() {
		return ""
	}
	// What another adapter of the VM gives it, which somebody else made, is not what was asked for.
	if b, is := bound(host, vm, a.Partition), adapterFor(host, vm, a.Partition); b != nil && is != nil {
		if why := b.unfit(is); why != "" {
			return fmt.Sprintf("VM %q has no partition of %s: %s", vm.Name, configsOf(a.Partition), why)
		}
	}
	for i := range host.GPUs {
		g := &host.GPUs[i]
		if g.Partitionable == nil || a.Partition.VRAM == nil {
			continue
		}
		for _, part := range g.Partitionable.Partitions {
			if size := partitionSize(g, part); gpu.SameID(part.VMID, vm.ID) && size != 0 && size.MiB() != a.Partition.VRAM.MiB() {
				return fmt.Sprintf("VM %q has a partition of %d MiB on GPU %s, and vram_mib asserts %d MiB",
					vm.Name, size.MiB(), g.ID, a.Partition.VRAM.MiB())
			}
		}
	}
	return ""
}
