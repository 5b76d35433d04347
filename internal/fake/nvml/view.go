//go:build linux

package fakenvml

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Device is a GPU as it is now.
type Device struct {
	UUID, BusID string
	// MIG is the mode in force, Pending the mode after a reset.
	MIG, Pending bool
	ComputeMode  int
	ECC          bool
	Persistence  bool
	// Timeslice is what nvidia-smi compute-policy set.
	Timeslice int
	// VGPUMixed is the heterogeneous mode.
	VGPUMixed bool
	// MIGSliced is the mode in which vGPUs share GPU instances.
	MIGSliced bool
	// Instances are by their start, Processes by their ids.
	Instances []gpu.GPUInstance
	Processes []gpu.Process
	// Limits are the memory limits of cgroups.
	Limits []MemoryLimit
}

// MemoryLimit is what a cgroup may have of a GPU's memory; Hard is -1 for no limit.
type MemoryLimit struct {
	Cgroup     string
	Soft, Hard int
}

// GPU returns a GPU by its index.
func (m *Machine) GPU(index int) Device {
	m.tb.Helper()
	s := m.read()
	g := m.at(s, index)
	d := Device{
		UUID: g.UUID, BusID: g.Bus, MIG: g.MIG, Pending: g.MIGPending, ComputeMode: g.ComputeMode, ECC: g.ECC == 1,
		Persistence: g.Persistence, Timeslice: g.Timeslice, VGPUMixed: g.VGPUMixed, MIGSliced: g.VGPUMIGSliced,
		Instances: s.instances(index), Processes: s.processes(index),
	}
	for _, l := range s.Limits {
		if l.GPU == index {
			d.Limits = append(d.Limits, MemoryLimit{Cgroup: l.Cgroup, Soft: l.Soft, Hard: l.Hard})
		}
	}
	return d
}

// Clients are the processes that have NVML initialised now, and how often.
func (m *Machine) Clients() map[int]int {
	m.tb.Helper()
	clients := map[int]int{}
	for _, c := range m.read().Clients {
		clients[c.PID] = c.Inits
	}
	return clients
}

// at finds a GPU of a state.
func (m *Machine) at(s *state, index int) *gpuRecord {
	m.tb.Helper()
	for i := range s.GPUs {
		if s.GPUs[i].Index == index {
			return &s.GPUs[i]
		}
	}
	m.tb.Fatalf("fakenvml: there is no GPU %d", index)
	return nil
}

func (s *state) instances(index int) []gpu.GPUInstance {
	var all []gpu.GPUInstance
	for _, r := range s.Instances {
		if r.GPU != index {
			continue
		}
		i := gpu.GPUInstance{ID: r.ID, Start: r.Start}
		for _, p := range s.Profiles {
			if p.GPU == index && p.ID == r.Profile {
				i.Profile, i.Size, i.Memory = p.Name, p.Size, gpu.Bytes(p.Memory)*gpu.MiB
			}
		}
		for _, c := range s.Computes {
			if c.GPU == index && c.Instance == r.ID {
				i.Compute = append(i.Compute, gpu.ComputeInstance{ID: c.ID, UUID: c.UUID, Slices: c.Slices})
			}
		}
		slices.SortFunc(i.Compute, func(a, b gpu.ComputeInstance) int { return a.ID - b.ID })
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b gpu.GPUInstance) int { return a.Start - b.Start })
	return all
}

func (s *state) processes(index int) []gpu.Process {
	var all []gpu.Process
	for _, r := range s.Processes {
		if r.GPU != index {
			continue
		}
		p := gpu.Process{PID: r.PID, Name: r.Name, Memory: gpu.Bytes(r.Memory)}
		if r.Instance >= 0 {
			p.GPUInstance, p.ComputeInstance = &r.Instance, &r.Compute
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b gpu.Process) int { return a.PID - b.PID })
	return all
}
