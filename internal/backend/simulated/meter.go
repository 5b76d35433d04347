package simulated

import (
	"context"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/utilization"
)

// Load is how busy a GPU, or a GPU instance of it, is. A GPU in MIG mode is as busy as its
// instances.
type Load struct {
	GPU      string            `json:"gpu"`
	Instance *gpu.MIGPlacement `json:"instance,omitempty"`
	// The three are percentages, see [utilization.Reading].
	Busy       float64 `json:"busy,omitempty"`
	MemoryBusy float64 `json:"memory_busy,omitempty"`
	SMActivity float64 `json:"sm_activity,omitempty"`
	// MemoryUsed is what is used beside the memory of the processes.
	MemoryUsed gpu.Bytes `json:"memory_used,omitempty"`
}

// Measure reads every GPU and GPU instance twice, a window apart.
func (h *Host) Measure(ctx context.Context, window time.Duration) ([]utilization.GPU, utilization.Window, error) {
	c := call{op: OpMeasure}
	w := utilization.Window{From: time.Now()}
	first, err := h.look(ctx, c)
	if err != nil {
		return nil, w, err
	}
	if err := c.op.offeredBy(first.Platform); err != nil {
		return nil, w, complete(err, c, first)
	}
	if err := sleep(ctx, window); err != nil {
		return nil, w, complete(refuse(backend.Timeout, "the window of %s had not passed: %v", window, err), c, first)
	}
	w.To = time.Now()
	second, err := h.peek(ctx, c)
	if err != nil {
		return nil, w, err
	}
	var out []utilization.GPU
	for i := range second.GPUs {
		out = append(out, compare(first, second, &second.GPUs[i]))
	}
	return out, w, nil
}

// compare makes of two looks what they tell of a GPU that is there at the second.
func compare(first, second *record, g *gpu.GPU) utilization.GPU {
	out := utilization.GPU{ID: g.ID, First: utilization.Reading{Hidden: true}, Second: second.read(g)}
	before, ok := first.GPU(g.ID)
	if ok && isInMIG(before) == isInMIG(g) {
		out.First = first.read(before)
	}
	if !isInMIG(g) {
		return out
	}
	out.MIG = &utilization.MIG{Profiles: g.MIG.Profiles}
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		both := utilization.Instance{
			Profile: in.Profile, Start: in.Start, Size: in.Size,
			First: utilization.Reading{Hidden: true}, Second: second.readInstance(g, in),
		}
		if ok && before.MIG != nil {
			if was := (migFace{before}).instance(in.Placement()); was != nil && sameDevices(was, in) {
				both.First = first.readInstance(before, was)
			}
		}
		out.MIG.Instances = append(out.MIG.Instances, both)
	}
	return out
}

// sameDevices tells whether an instance was not made again in between.
func sameDevices(a, b *gpu.GPUInstance) bool { return slices.Equal(a.Compute, b.Compute) }

// read is what a GPU says. One in MIG mode does not measure how busy it is.
func (r *record) read(g *gpu.GPU) utilization.Reading {
	out := utilization.Reading{MemoryTotal: g.VRAM, Processes: g.Processes}
	if isInMIG(g) {
		for i := range g.MIG.Instances {
			out.MemoryUsed += r.readInstance(g, &g.MIG.Instances[i]).MemoryUsed
		}
		return out
	}
	l := r.load(g.ID, nil)
	out.Busy, out.MemoryBusy = &l.Busy, &l.MemoryBusy
	if isHopper(g) {
		out.SMActivity = &l.SMActivity
	}
	out.MemoryUsed = l.MemoryUsed + memoryOf(g.Processes)
	return out
}

func (r *record) readInstance(g *gpu.GPU, in *gpu.GPUInstance) utilization.Reading {
	place := in.Placement()
	l := r.load(g.ID, &place)
	inside := migFace{g}.processesIn(in.ID)
	out := utilization.Reading{MemoryTotal: in.Memory, Processes: inside, MemoryUsed: l.MemoryUsed + memoryOf(inside)}
	if isHopper(g) {
		out.SMActivity = &l.SMActivity
	}
	return out
}

func memoryOf(processes []gpu.Process) gpu.Bytes {
	var sum gpu.Bytes
	for _, p := range processes {
		sum += p.Memory
	}
	return sum
}

// load is what is put on a device; one without an entry is idle.
func (r *record) load(gpuID string, at *gpu.MIGPlacement) Load {
	d := gpu.SharedDevice{GPU: gpuID, Instance: at}
	for _, l := range r.Simulation.Load {
		if d.Same(gpu.SharedDevice{GPU: l.GPU, Instance: l.Instance}) {
			return l
		}
	}
	return Load{}
}
