package change

import (
	"math"
	"math/bits"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// vacate takes partitions back from those who hold them.
func vacate(host *gpu.Host, whose func(gpu.Partition) bool) {
	holds := func(g gpu.GPU) bool {
		return g.Partitionable != nil && slices.ContainsFunc(g.Partitionable.Partitions, whose)
	}
	if !slices.ContainsFunc(host.GPUs, holds) {
		return
	}
	host.GPUs = slices.Clone(host.GPUs)
	for i := range host.GPUs {
		g := &host.GPUs[i]
		if !holds(*g) {
			continue
		}
		part := *g.Partitionable
		part.Partitions = slices.DeleteFunc(slices.Clone(part.Partitions), whose)
		available(&part)
		g.Partitionable = &part
	}
}

func unresolve(vm *gpu.VM) {
	vm.Devices = slices.Clone(vm.Devices)
	for i := range vm.Devices {
		if vm.Devices[i].Pool != "" {
			vm.Devices[i].GPU = ""
		}
	}
}

// assigned brings the status of GPUs that VMs have, or had, whole up to date.
func assigned(host *gpu.Host) {
	cloned := false
	for i := range host.GPUs {
		g := &host.GPUs[i]
		status := g.Status
		switch taken := assignee(host, g.ID) != nil; {
		case taken:
			status = gpu.Assigned
		case g.Dismounted:
			status = gpu.ReadyForDDA
		case g.Status == gpu.Assigned: // of a VM that has come from a node where it had one of that id
			status = mountedStatus(g)
		}
		if g.Status == status {
			continue
		}
		if !cloned {
			host.GPUs, cloned = slices.Clone(host.GPUs), true
		}
		host.GPUs[i].Status = status
	}
}

// mountedStatus is that of a GPU which its host has, and no VM.
func mountedStatus(g *gpu.GPU) gpu.Status {
	switch {
	case g.Partitionable == nil:
		return gpu.ReadyForDDA
	case g.Partitionable.Paravirtual:
		return gpu.Paravirtualization
	}
	return gpu.Partitioned
}

// How Windows begins the instance path of a device that the host uses, and of one that it
// has given up.
const (
	mountedPrefix    = `PCI\`
	dismountedPrefix = `PCIP\`
)

// divided is a GPU at another partition count. Hyper-V tells the size of a partition at
// the present count only.
func divided(part gpu.Partitionable, count int) *gpu.Partitionable {
	if part.Count > 0 && count > 0 && part.Count != count {
		for _, c := range capacities(&part) {
			for _, v := range []*uint64{&c.Min, &c.Max, &c.Optimal} {
				*v = scaled(*v, part.Count, count)
			}
		}
	}
	part.Count = count
	available(&part)
	return &part
}

// scaled is what one of count partitions has of what one of before has.
func scaled(figure uint64, before, count int) uint64 {
	if figure == math.MaxUint64 { // no limit
		return figure
	}
	high, low := bits.Mul64(figure, uint64(before))
	if high != 0 {
		return math.MaxUint64
	}
	return low / uint64(count)
}

// available is what the free partitions of a GPU have together.
func available(part *gpu.Partitionable) {
	for _, c := range capacities(part) {
		if c.Available != math.MaxUint64 && c.Min != math.MaxUint64 {
			c.Available = c.Min * uint64(max(part.Free(), 0))
		}
	}
}

func capacities(part *gpu.Partitionable) []*gpu.Capacity {
	return []*gpu.Capacity{&part.VRAM, &part.Encode, &part.Decode, &part.Compute}
}
