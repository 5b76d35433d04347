package simulated

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// noLimit is what a driver reports for a resource that it does not ration.
const noLimit = math.MaxUint64

// SetPartitionCount sets the number of partitions of a GPU.
func (h *Host) SetPartitionCount(ctx context.Context, gpuID string, count int) error {
	return h.do(ctx, call{op: OpSetPartitionCount, gpu: gpuID}, func(r *record) error {
		return r.setPartitionCount(gpuID, count)
	})
}

func (r *record) setPartitionCount(gpuID string, count int) error {
	g, p, err := r.partitionable(gpuID)
	if err != nil {
		return err
	}
	if !slices.Contains(p.ValidCounts, count) {
		return refuse(backend.InvalidParameter, "the driver offers no %d partitions, only %s", count, listCounts(p.ValidCounts))
	}
	if p.Count == count {
		return nil
	}
	if p.Paravirtual {
		return refuse(backend.NotSupported, "the GPU is paravirtual: SR-IOV is not in use and its partition count is fixed at %d", p.Count)
	}
	if len(p.Partitions) > 0 {
		return refuse(backend.InUse, "partitions are assigned to %s", r.holders(p))
	}
	r.recount(g.ID, p, count)
	return nil
}

// recount divides a GPU whose partitions are all free.
func (r *record) recount(gpuID string, p *gpu.Partitionable, count int) {
	hidden := r.Simulation.hidden(gpuID)
	if hidden.Whole == nil {
		hidden.Whole = gather(p)
		r.Simulation.setHidden(gpuID, hidden)
	}
	p.Count = count
	hidden.Whole.VRAM.divide(&p.VRAM, count)
	hidden.Whole.Encode.divide(&p.Encode, count)
	hidden.Whole.Decode.divide(&p.Decode, count)
	hidden.Whole.Compute.divide(&p.Compute, count)
}

// partitionable finds a GPU that has a GPU-P face. A dismounted device has none: the
// host's driver is not loaded for it.
func (r *record) partitionable(gpuID string) (*gpu.GPU, *gpu.Partitionable, error) {
	g, ok := r.GPU(gpuID)
	switch {
	case !ok:
		return nil, nil, refuse(backend.NotFound, "the host has no such GPU")
	case g.Dismounted:
		return nil, nil, refuse(backend.NotSupported, "the device is dismounted from the host")
	case g.Partitionable == nil:
		return nil, nil, refuse(backend.NotSupported, "its driver offers no GPU partitioning")
	}
	return g, g.Partitionable, nil
}

// holders names the VMs that hold partitions.
func (r *record) holders(p *gpu.Partitionable) string {
	var names []string
	for _, part := range p.Partitions {
		names = append(names, r.vmName(part.VMID))
	}
	slices.Sort(names)
	return "VM " + strings.Join(slices.Compact(names), ", ")
}

func (r *record) vmName(id string) string {
	if vm, ok := r.VM(id); ok {
		return vm.Name
	}
	return id
}

func listCounts(counts []int) string {
	words := make([]string, len(counts))
	for i, n := range slices.Sorted(slices.Values(counts)) {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, ", ")
}

// Whole is what all partitions of a GPU have together.
type Whole struct {
	VRAM    Divisible `json:"vram"`
	Encode  Divisible `json:"encode"`
	Decode  Divisible `json:"decode"`
	Compute Divisible `json:"compute"`
}

// Divisible is one resource of a whole GPU. A figure that does not depend on the
// count, such as "no limit", is left out.
type Divisible struct {
	Min     *uint64 `json:"min,omitempty"`
	Max     *uint64 `json:"max,omitempty"`
	Optimal *uint64 `json:"optimal,omitempty"`
}

// gather multiplies the figures of one partition by the count.
func gather(p *gpu.Partitionable) *Whole {
	return &Whole{
		VRAM:    gatherOne(p.VRAM, p.Count),
		Encode:  gatherOne(p.Encode, p.Count),
		Decode:  gatherOne(p.Decode, p.Count),
		Compute: gatherOne(p.Compute, p.Count),
	}
}

func gatherOne(c gpu.Capacity, count int) Divisible {
	if count <= 0 {
		// Never partitioned so far: all there is will be divided.
		count, c.Min, c.Max, c.Optimal = 1, c.Total, c.Total, c.Total
	}
	d := Divisible{Min: times(c.Min, count)}
	// A maximum or optimum that would exceed the GPU count-fold is no share of it.
	limit := c.Total
	if d.Min != nil {
		limit = max(limit, *d.Min)
	}
	if n := times(c.Max, count); n != nil && *n <= limit {
		d.Max = n
	}
	if n := times(c.Optimal, count); n != nil && *n <= limit {
		d.Optimal = n
	}
	return d
}

// times is nil when the product is beyond what a driver can report.
func times(figure uint64, count int) *uint64 {
	high, low := bits.Mul64(figure, uint64(count))
	if high != 0 || low == noLimit {
		return nil
	}
	return &low
}

// divide gives the capacity the figures that one of count partitions has. All
// partitions are free, so what is available is what they have together; the total is
// the GPU's own and stays.
func (d Divisible) divide(c *gpu.Capacity, count int) {
	share := func(figure *uint64, whole *uint64) {
		if whole != nil {
			*figure = *whole / uint64(count)
		}
	}
	share(&c.Min, d.Min)
	share(&c.Max, d.Max)
	share(&c.Optimal, d.Optimal)
	if d.Min != nil {
		c.Available = *d.Min
	}
}

// occupy gives a partition of the GPU to a VM.
func (p *gpuFace) occupy(part gpu.Partition) {
	p.Partitions = append(p.Partitions, part)
	slices.SortFunc(p.Partitions, func(a, b gpu.Partition) int { return a.ID - b.ID })
	for _, c := range p.capacities() {
		if c.Available != noLimit {
			c.Available -= min(c.Min, c.Available)
		}
	}
}

// vacate takes the VM's partitions back.
func (p *gpuFace) vacate(vmID string) {
	kept := p.Partitions[:0]
	for _, part := range p.Partitions {
		if !gpu.SameID(part.VMID, vmID) {
			kept = append(kept, part)
			continue
		}
		for _, c := range p.capacities() {
			if c.Available != noLimit {
				c.Available = min(c.Available+c.Min, max(c.Total, c.Available))
			}
		}
	}
	p.Partitions = kept
	if len(kept) == 0 {
		p.Partitions = nil
	}
}

// gpuFace adds what a host does with its partitions.
type gpuFace struct{ *gpu.Partitionable }

func (p *gpuFace) capacities() []*gpu.Capacity {
	return []*gpu.Capacity{&p.VRAM, &p.Encode, &p.Decode, &p.Compute}
}

// freeID is the lowest PartitionId that is not in use.
func (p *gpuFace) freeID() int {
	for id := range p.Count {
		if !slices.ContainsFunc(p.Partitions, func(part gpu.Partition) bool { return part.ID == id }) {
			return id
		}
	}
	return p.Count
}
