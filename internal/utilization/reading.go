package utilization

import (
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Window is the time between two readings.
type Window struct {
	From, To time.Time
}

// Length is how long the window is.
func (w Window) Length() time.Duration { return w.To.Sub(w.From) }

// Reading is what a GPU, or a MIG instance of it, said at one time. What it cannot
// measure is nil.
type Reading struct {
	// Busy is the percentage of time that any kernel ran, on however few of the SMs. A GPU
	// in MIG mode does not measure it.
	Busy *float64 `json:"busy,omitempty"`
	// MemoryBusy is the percentage of time that the memory was read or written.
	MemoryBusy *float64 `json:"memory_busy,omitempty"`
	// SMActivity is the percentage of SMs that worked, averaged since the reading before.
	// Hopper and later measure it, MIG instances too.
	SMActivity  *float64  `json:"sm_activity,omitempty"`
	MemoryUsed  gpu.Bytes `json:"memory_used"`
	MemoryTotal gpu.Bytes `json:"memory_total"`
	// Processes are those that use it. Hidden is true when the driver does not show them.
	Processes []gpu.Process `json:"processes,omitempty"`
	Hidden    bool          `json:"hidden,omitempty"`
}

// GPU is a GPU that was read twice.
type GPU struct {
	ID string `json:"id"` // its UUID
	// Allocated is the part that is given out: 0.5 is half, more than 1 oversubscribes it. In
	// MIG mode the instances have theirs instead.
	Allocated float64 `json:"allocated"`
	First     Reading `json:"first"`
	Second    Reading `json:"second"`
	MIG       *MIG    `json:"mig,omitempty"` // nil unless it is in MIG mode
}

// MIG are the instances of a GPU, and the profiles that it offers.
type MIG struct {
	Profiles  []gpu.MIGProfile `json:"profiles"`
	Instances []Instance       `json:"instances"`
}

// Instance is a MIG GPU instance that was read twice.
type Instance struct {
	Profile   string  `json:"profile"`
	Start     int     `json:"start"`
	Size      int     `json:"size"` // memory slices
	Allocated float64 `json:"allocated"`
	First     Reading `json:"first"`
	Second    Reading `json:"second"`
}
