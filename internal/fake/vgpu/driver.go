package fakevgpu

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Driver is an NVML of its own that the host has instead of the kernel's. What it knows
// of a GPU counts, and it is told what sriov-manage does.
type Driver interface {
	// Open tells whether a process has NVML open.
	Open() bool
	// GPU is what NVML knows of the GPU at an address.
	GPU(address string) DriverGPU
	// Begin is a vGPU of a type that lives in a GPU instance, by a number, and End its end.
	Begin(address string, typ, instance int) int
	End(number int)
	// Unbind is a GPU whose driver is taken from it and given back.
	Unbind(address string)
}

// DriverGPU is what changes of a GPU without the kernel.
type DriverGPU struct {
	Heterogeneous, MIG bool
	Instances          []Instance
	Processes          []gpu.Process
}

// Instance is a GPU instance.
type Instance struct {
	ID      int
	Profile string
}

// Follow gives the host another NVML.
func (k *Kernel) Follow(d Driver) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.driver = d
	k.follow()
}

// follow takes over what the other NVML knows.
func (k *Kernel) follow() {
	if k.driver == nil {
		return
	}
	k.nvmlOpen = k.driver.Open()
	changed := false
	for _, c := range k.cards {
		g := k.driver.GPU(c.Address)
		changed = changed || c.heterogeneous != g.Heterogeneous || c.mig != g.MIG || !slices.Equal(c.instances, g.Instances)
		c.heterogeneous, c.mig, c.instances, c.processes = g.Heterogeneous, g.MIG, g.Instances, g.Processes
	}
	if changed {
		k.render()
	}
}
