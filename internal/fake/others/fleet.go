// Package others is what others do to a simulated fleet behind our back: an administrator in
// Windows Admin Center or with nvidia-smi, users with their processes, the cluster, the
// hardware. It knows no latency and no faults, and reaches a host that we cannot.
package others

import (
	"context"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Fleet is a simulated fleet that others have their hands on. VMs are named by id or, if that
// is unique, by name.
type Fleet struct{ *simulated.Fleet }

// Open opens a fleet file.
func Open(path string) (*Fleet, error) { return on(simulated.Open(path)) }

// Create writes a new fleet file, and opens it.
func Create(path string, s gpu.Snapshot) (*Fleet, error) { return on(simulated.Create(path, s)) }

// InMemory makes a fleet without a file.
func InMemory(s gpu.Snapshot) (*Fleet, error) { return on(simulated.InMemory(s)) }

// Copy is another fleet in memory that is as this one is now.
func (f *Fleet) Copy(ctx context.Context) (*Fleet, error) { return on(f.Fleet.Copy(ctx)) }

func on(f *simulated.Fleet, err error) (*Fleet, error) {
	if err != nil {
		return nil, err
	}
	return &Fleet{f}, nil
}

// Edit changes anything. Each host keeps its agent and simulation sections, by name.
func (f *Fleet) Edit(ctx context.Context, change func(*gpu.Snapshot) error) error {
	return f.Handle(ctx, func(h *simulated.Hands) error {
		s := h.Shown()
		if err := change(&s); err != nil {
			return err
		}
		h.Replace(s)
		return nil
	})
}

// EditSimulation changes a host's simulation section.
func (f *Fleet) EditSimulation(ctx context.Context, host string, change func(*simulated.Simulation)) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		change(m.Simulation())
		return nil
	})
}

// SetUnreachable cuts a host off, or connects it again.
func (f *Fleet) SetUnreachable(ctx context.Context, host string, unreachable bool) error {
	return f.EditSimulation(ctx, host, func(s *simulated.Simulation) { s.Unreachable = unreachable })
}

// InjectFault adds a failure to come.
func (f *Fleet) InjectFault(ctx context.Context, host string, fault simulated.Fault) error {
	return f.EditSimulation(ctx, host, func(s *simulated.Simulation) { s.Faults = append(s.Faults, fault) })
}

func (f *Fleet) onHost(ctx context.Context, host string, change func(simulated.Machine) error) error {
	return f.Handle(ctx, func(h *simulated.Hands) error {
		m, ok := h.Machine(host)
		if !ok {
			return fmt.Errorf("there is no host %q in it", host)
		}
		return change(m)
	})
}

func (f *Fleet) onGPU(ctx context.Context, host, gpuID string, change func(simulated.Machine, *gpu.GPU) error) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		g, ok := m.State().GPU(gpuID)
		if !ok {
			return fmt.Errorf("host %q has no GPU %s", m.Name(), gpuID)
		}
		return change(m, g)
	})
}

// onVM finds a VM anywhere in the fleet.
func (f *Fleet) onVM(ctx context.Context, ref string, change func(*simulated.Hands, simulated.Machine, *gpu.VM) error) error {
	return f.Handle(ctx, func(h *simulated.Hands) error {
		host, id, byName := "", "", 0
		for _, shown := range h.Shown().Hosts {
			if vm, ok := shown.VM(ref); ok {
				host, id, byName = shown.Name, vm.ID, 1
				break
			}
			for _, vm := range shown.VMs {
				if gpu.SameID(vm.Name, ref) {
					host, id = shown.Name, vm.ID
					byName++
				}
			}
		}
		if byName != 1 {
			return fmt.Errorf("%d VMs in it are called %q", byName, ref)
		}
		m, _ := h.Machine(host)
		vm, _ := m.State().VM(id)
		return change(h, m, vm)
	})
}
