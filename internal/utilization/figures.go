package utilization

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Figures are what two readings of a GPU amount to.
type Figures struct {
	ID     string
	Window time.Duration
	Use
	// MIG is nil unless the GPU is in MIG mode.
	MIG *MIGFigures
}

// Use is how much of a GPU, or of a MIG instance, is given out and used. Of two readings
// it has the higher one. What was not measured is nil. As JSON it is what
// "gpu-agent utilization --json" prints.
type Use struct {
	Allocated   float64   `json:"allocated_fraction"`
	Busy        *float64  `json:"busy_percent"`
	MemoryBusy  *float64  `json:"memory_busy_percent"`
	SMActivity  *float64  `json:"sm_activity_percent"`
	MemoryUsed  gpu.Bytes `json:"memory_used"`
	MemoryTotal gpu.Bytes `json:"memory_total"`
	// Idle is true if nothing used it at either reading, and nil if that cannot be told.
	Idle      *bool         `json:"idle"`
	Processes []gpu.Process `json:"processes,omitempty"` // by PID
}

// MIGFigures are those of a GPU in MIG mode. Slices of compute are what profiles have in
// their names, slices of memory are what placements count.
type MIGFigures struct {
	Slices          int `json:"compute_slices"`           // in the whole GPU
	AllocatedSlices int `json:"allocated_compute_slices"` // in instances that are given out
	UsedSlices      int `json:"used_compute_slices"`      // in instances that are not idle, as far as that can be told

	MemorySlices int `json:"memory_slices"`
	FreeMemory   int `json:"free_memory_slices"` // slices of memory without an instance
	// Unallocatable are free slices of memory that no instance can be made of, as no profile
	// fits where they lie.
	Unallocatable int `json:"unallocatable_memory_slices"`

	Instances []InstanceFigures `json:"instances"` // by start

	profiles []gpu.MIGProfile
}

// InstanceFigures are those of a MIG instance.
type InstanceFigures struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Slices  int    `json:"-"` // of compute
	Use
}

// quiet is the percentage below which an SM activity is taken for none: GPM rounds.
const quiet = 1

// Assess makes figures of two readings.
func Assess(g *GPU, w Window) Figures {
	out := Figures{ID: g.ID, Window: w.Length(), Use: use(g.Allocated, &g.First, &g.Second)}
	if g.MIG != nil {
		out.MIG = assessMIG(g.MIG)
		out.Allocated = ratio(out.MIG.AllocatedSlices, out.MIG.Slices)
		if out.Idle == nil {
			out.Idle = out.MIG.idle()
		}
	}
	return out
}

func use(allocated float64, a, b *Reading) Use {
	out := Use{
		Allocated:   allocated,
		Busy:        higher(a.Busy, b.Busy),
		MemoryBusy:  higher(a.MemoryBusy, b.MemoryBusy),
		SMActivity:  higher(a.SMActivity, b.SMActivity),
		MemoryUsed:  max(a.MemoryUsed, b.MemoryUsed),
		MemoryTotal: max(a.MemoryTotal, b.MemoryTotal),
		Processes:   together(a.Processes, b.Processes),
	}
	busy := len(out.Processes) > 0 || out.Busy != nil && *out.Busy > 0 || out.SMActivity != nil && *out.SMActivity >= quiet
	// A GPU without processes is idle. Where they are hidden its counters tell it.
	if busy || !a.Hidden && !b.Hidden || out.Busy != nil || out.SMActivity != nil {
		out.Idle = new(!busy)
	}
	return out
}

// Used is the part of the GPU that was used: of its memory or of its multiprocessors,
// whichever is more. In MIG mode it is the part of its compute slices whose instances are
// not idle. It is nil where that was not measured.
func (f *Figures) Used() *float64 {
	if f.MIG != nil {
		return new(ratio(f.MIG.UsedSlices, f.MIG.Slices))
	}
	part, ok := f.used()
	if !ok {
		return nil
	}
	return &part
}

func assessMIG(m *MIG) *MIGFigures {
	out := &MIGFigures{profiles: m.Profiles, Instances: []InstanceFigures{}}
	for _, p := range m.Profiles {
		out.Slices = max(out.Slices, p.Slices)
	}
	for i := range m.Instances {
		in := &m.Instances[i]
		f := InstanceFigures{Profile: in.Profile, Start: in.Start, Use: use(in.Allocated, &in.First, &in.Second)}
		f.Slices = computeSlices(m.Profiles, in.Profile)
		if f.Allocated > 0 {
			out.AllocatedSlices += f.Slices
		}
		if f.Idle == nil || !*f.Idle {
			out.UsedSlices += f.Slices
		}
		out.Instances = append(out.Instances, f)
	}
	slices.SortFunc(out.Instances, func(a, b InstanceFigures) int { return cmp.Compare(a.Start, b.Start) })
	out.MemorySlices, out.FreeMemory, out.Unallocatable = fragmentation(m)
	return out
}

// idle tells whether all instances are, nil if that is not known of one.
func (m *MIGFigures) idle() *bool {
	idle := true
	for i := range m.Instances {
		switch in := &m.Instances[i]; {
		case in.Idle == nil:
			return nil
		case !*in.Idle:
			idle = false
		}
	}
	return &idle
}

func computeSlices(profiles []gpu.MIGProfile, name string) int {
	if i := slices.IndexFunc(profiles, func(p gpu.MIGProfile) bool { return p.Name == name }); i >= 0 {
		return profiles[i].Slices
	}
	return 0
}

func higher(a, b *float64) *float64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return new(max(*a, *b))
}

// together are the processes of both readings, each as the later one has it.
func together(first, second []gpu.Process) []gpu.Process {
	out := slices.Clone(second)
	for i := range first {
		if !slices.ContainsFunc(out, func(p gpu.Process) bool { return p.PID == first[i].PID }) {
			out = append(out, first[i])
		}
	}
	slices.SortFunc(out, func(a, b gpu.Process) int { return cmp.Compare(a.PID, b.PID) })
	return out
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
