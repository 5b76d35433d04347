package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// MIG is the Multi-Instance GPU face of a GPU.
type MIG struct {
	// Enabled is the mode in force. Pending is the mode after the next GPU reset; the
	// two differ only while one is due, which Hopper and later never need.
	Enabled bool `json:"enabled"`
	Pending bool `json:"pending"`
	// NeedsReset is true when a change of the mode takes a reset of the GPU (Ampere).
	NeedsReset bool `json:"needs_reset,omitempty"`
	// Profiles are the GPU instance profiles that this GPU offers, in the driver's order.
	Profiles  []MIGProfile  `json:"profiles,omitempty"`
	Instances []GPUInstance `json:"instances,omitempty"`
}

// MIGEnabled tells whether MIG mode is in force.
func (g *GPU) MIGEnabled() bool { return g.MIG != nil && g.MIG.Enabled }

// MIGProfile is a GPU instance profile. Start and size count memory slices, of which
// most GPUs have eight.
type MIGProfile struct {
	// ID is the hardware's profile id, as nvidia-smi lists it: 19 is an A100's smallest.
	ID   int    `json:"id"`
	Name string `json:"name"` // "1g.10gb", "1g.10gb+me"
	// Slices is the number of compute slices.
	Slices int `json:"slices"`
	// Memory is 0 where it is not known, as on a GPU that shares the system's.
	Memory Bytes `json:"memory,omitempty"`
	// Max is how many instances of the profile an empty GPU takes.
	Max int `json:"max"`
	// Size is the number of memory slices of one instance; Starts are the first memory
	// slices at which one may begin, ascending.
	Size   int   `json:"size"`
	Starts []int `json:"starts"`
}

// GPUInstance is one MIG GPU instance. It is known by its GPU, profile and start: ids
// and UUIDs change when it is made again.
type GPUInstance struct { //nolint:revive // NVIDIA calls it so
	ID      int    `json:"id"` // the driver's, reused
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	Memory  Bytes  `json:"memory,omitempty"` // 0 where it is not known
	// Minor is the number of its capability device, 12 for /dev/nvidia-caps/nvidia-cap12; 0 where it is not known: the driver
	// counts from 1.
	Minor int `json:"minor,omitempty"`
	// Compute are the compute instances. One that fills the GPU instance is what
	// workloads see as the MIG device.
	Compute []ComputeInstance `json:"compute_instances,omitempty"`
}

// Filled reports whether one compute instance has all slices of the GPU instance, so that the
// MIG device which workloads see is all of it.
func (i *GPUInstance) Filled() bool {
	return len(i.Compute) == 1 && strings.HasPrefix(i.Profile, fmt.Sprintf("%dg.", i.Compute[0].Slices))
}

// ComputeText says how a GPU instance that is not filled is divided, as the end of "it …".
func (i *GPUInstance) ComputeText() string {
	if len(i.Compute) == 0 {
		return "has no compute instance"
	}
	var names []string
	for _, c := range i.Compute {
		names = append(names, i.ComputeName(c))
	}
	return "is divided into " + strings.Join(names, ", ")
}

// ComputeName is the name of a MIG device: that of its GPU instance where it fills it, else
// "1c.3g.40gb".
func (i *GPUInstance) ComputeName(c ComputeInstance) string {
	if strings.HasPrefix(i.Profile, fmt.Sprintf("%dg.", c.Slices)) {
		return i.Profile
	}
	return fmt.Sprintf("%dc.%s", c.Slices, i.Profile)
}

// ComputeInstance is one MIG compute instance.
type ComputeInstance struct {
	ID   int    `json:"id"`
	UUID string `json:"uuid"` // "MIG-..." of the MIG device
	// Slices is the number of compute slices.
	Slices int `json:"slices"`
	// Minor is the number of its capability device, as a GPU instance has one; 0 where it is not known.
	Minor int `json:"minor,omitempty"`
}

// Capabilities are the numbers of the capability devices that a process needs of a GPU instance: its own, and those of its
// compute instances in their order. They are nil where one is not known.
func (i *GPUInstance) Capabilities() []int {
	out := []int{i.Minor}
	for _, c := range i.Compute {
		out = append(out, c.Minor)
	}
	if slices.Contains(out, 0) {
		return nil
	}
	return out
}

// MIGPlacement is one wanted or existing GPU instance.
type MIGPlacement struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
}

// Placement is where the instance is.
func (i *GPUInstance) Placement() MIGPlacement {
	return MIGPlacement{Profile: i.Profile, Start: i.Start}
}

// Profile finds a GPU instance profile by its name.
func (m *MIG) Profile(name string) (MIGProfile, bool) {
	i := slices.IndexFunc(m.Profiles, func(p MIGProfile) bool { return p.Name == name })
	if i < 0 {
		return MIGProfile{}, false
	}
	return m.Profiles[i], true
}

// MIGLayout is a wanted set of GPU instances for each of some GPUs. At most one of the
// three is set.
type MIGLayout struct {
	// Off is MIG mode switched off, and so no instances.
	Off bool `json:"off,omitempty"`
	// Profiles are numbers of instances by profile, placed by the solver.
	Profiles map[string]int `json:"profiles,omitempty"`
	// Placements are taken as written.
	Placements []MIGPlacement `json:"placements,omitempty"`
}

// Process is a process that uses a GPU.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name,omitempty"`
	// Holder says who the process is: "unit foo.service", "container 3f2a...", "VM web-01";
	// "" when it cannot be told.
	Holder string `json:"holder,omitempty"`
	Memory Bytes  `json:"memory,omitempty"`
	// Share is the name of the share that it was started in; "" for none.
	Share string `json:"share,omitempty"`
	// MemoryLimit is what the driver holds its container to on the GPU, 0 for nothing; nil where
	// that is not told, or not asked since the process is in no share.
	MemoryLimit *Bytes `json:"memory_limit,omitempty"`
	// GPUInstance and ComputeInstance are where it runs on a GPU in MIG mode, else nil.
	GPUInstance     *int `json:"gpu_instance,omitempty"`
	ComputeInstance *int `json:"compute_instance,omitempty"`
}
