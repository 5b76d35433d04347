package simulated

import (
	"context"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The methods in this file are what others do to a Linux host behind our back: users
// with their processes, an administrator with nvidia-smi and systemctl.

// firstPID is the id of the first process that is started on a host without any.
const firstPID = 4001

// StartProcess has a process compute on a GPU, or in its GPU instance at a place: on
// that instance's first compute instance. It returns the process id, which is the
// process's own if it has one.
func (f *Fleet) StartProcess(ctx context.Context, host, gpuID string, at *gpu.MIGPlacement, p gpu.Process) (int, error) {
	err := f.onHost(ctx, host, func(r *record) error {
		g, ok := r.GPU(gpuID)
		if !ok {
			return f.file.fail(fmt.Errorf("host %q has no GPU %s", r.Name, gpuID))
		}
		if p.PID == 0 {
			p.PID = r.newPID()
		}
		if err := r.compute(p, gpu.SharedDevice{GPU: g.ID, Instance: at}); err != nil {
			return f.file.fail(fmt.Errorf("host %q, GPU %s: %w", r.Name, g.ID, err))
		}
		return nil
	})
	return p.PID, err
}

// compute has a process compute on devices that let it in.
func (r *record) compute(p gpu.Process, devices ...gpu.SharedDevice) error {
	for _, d := range devices {
		g, ok := r.GPU(d.GPU)
		if !ok {
			return fmt.Errorf("the host has no GPU %s any more", d.GPU)
		}
		if err := admits(g); err != nil {
			return err
		}
		if err := (migFace{g}).place(p, d.Instance); err != nil {
			return err
		}
	}
	return nil
}

// place has a process on the GPU.
func (g migFace) place(p gpu.Process, at *gpu.MIGPlacement) error {
	if err := g.seat(&p, at); err != nil {
		return err
	}
	g.Processes = append(g.Processes, p)
	return nil
}

// seat says of a process where on the GPU it runs.
func (g migFace) seat(p *gpu.Process, at *gpu.MIGPlacement) error {
	p.GPUInstance, p.ComputeInstance = nil, nil
	switch inMIG := g.MIG != nil && g.MIG.Enabled; {
	case !inMIG && at != nil:
		return fmt.Errorf("it is not in MIG mode, so that no process runs in %s", placeText(*at))
	case !inMIG:
		return nil
	case at == nil:
		return fmt.Errorf("it is in MIG mode, so that a process runs in an instance or not at all")
	}
	i := g.instance(*at)
	if i == nil || len(i.Compute) == 0 {
		return fmt.Errorf("it has no instance %s with a compute instance", placeText(*at))
	}
	instance, compute := i.ID, i.Compute[0].ID
	p.GPUInstance, p.ComputeInstance = &instance, &compute
	return nil
}

// newPID is one that no process on the host has had.
func (r *record) newPID() int {
	r.Simulation.LastPID = max(r.Simulation.LastPID, firstPID-1)
	for _, g := range r.GPUs {
		for _, p := range g.Processes {
			r.Simulation.LastPID = max(r.Simulation.LastPID, p.PID)
		}
	}
	if r.MPS != nil {
		for _, d := range r.MPS.Daemons {
			r.Simulation.LastPID = max(r.Simulation.LastPID, d.PID)
		}
	}
	r.Simulation.LastPID++
	return r.Simulation.LastPID
}

// StopProcess ends a process, on all GPUs of its host.
func (f *Fleet) StopProcess(ctx context.Context, host string, pid int) error {
	return f.onHost(ctx, host, func(r *record) error {
		r.endProcesses(func(p gpu.Process) bool { return p.PID == pid })
		return nil
	})
}

// SetMIGModeOutside sets a MIG mode as nvidia-smi does: where that takes a reset, the
// mode waits for one.
func (f *Fleet) SetMIGModeOutside(ctx context.Context, host, gpuID string, on bool) error {
	return f.onMIG(ctx, host, gpuID, OpSetMIGMode, func(r *record, g migFace) error {
		if g.MIG.NeedsReset && g.MIG.Enabled != on {
			g.MIG.Pending = on
			return nil
		}
		return r.setMIGMode(g.ID, on, false)
	})
}

// ResetGPU resets a GPU, whoever uses it, as a driver does after an error.
func (f *Fleet) ResetGPU(ctx context.Context, host, gpuID string) error {
	return f.onMIG(ctx, host, gpuID, OpSetMIGMode, func(r *record, g migFace) error {
		r.endProcessesOn(g.GPU)
		g.reset()
		return nil
	})
}

// CreateInstanceOutside makes a GPU instance with one compute instance that fills it.
func (f *Fleet) CreateInstanceOutside(ctx context.Context, host, gpuID string, p gpu.MIGPlacement) error {
	return f.onMIG(ctx, host, gpuID, OpCreateInstance, func(r *record, g migFace) error { return r.createInstance(g.ID, p) })
}

// HalfMakeInstance makes a GPU instance without a compute instance.
func (f *Fleet) HalfMakeInstance(ctx context.Context, host, gpuID string, p gpu.MIGPlacement) error {
	return f.onMIG(ctx, host, gpuID, OpCreateInstance, func(_ *record, g migFace) error {
		_, err := g.makeInstance(p)
		return err
	})
}

// DivideInstance has a GPU instance that is there hold one compute instance of a number of
// slices.
func (f *Fleet) DivideInstance(ctx context.Context, host, gpuID string, p gpu.MIGPlacement, slices int) error {
	return f.onMIG(ctx, host, gpuID, OpCreateInstance, func(_ *record, g migFace) error {
		i := g.instance(p)
		if i == nil {
			return fmt.Errorf("it has no instance %s", placeText(p))
		}
		i.Compute = []gpu.ComputeInstance{{UUID: newMIGUUID(), Slices: slices}}
		return nil
	})
}

// DestroyInstanceOutside removes a GPU instance and the compute instances in it.
func (f *Fleet) DestroyInstanceOutside(ctx context.Context, host, gpuID string, p gpu.MIGPlacement) error {
	return f.onMIG(ctx, host, gpuID, OpDestroyInstance, func(r *record, g migFace) error { return r.destroyInstance(g.ID, p) })
}

// onMIG changes a GPU with MIG. A refusal is the hardware's own.
func (f *Fleet) onMIG(ctx context.Context, host, gpuID string, op Op, change func(*record, migFace) error) error {
	return f.onHost(ctx, host, func(r *record) error {
		g, err := r.migGPU(gpuID)
		if err == nil {
			err = change(r, g)
		}
		return complete(err, call{op: op, gpu: gpuID}, r)
	})
}

// SetUnit gives a host a unit, or changes how it behaves, and starts or stops it.
func (f *Fleet) SetUnit(ctx context.Context, host, name string, u Unit, run bool) error {
	return f.onHost(ctx, host, func(r *record) error {
		if r.Platform != gpu.Linux {
			return complete(refuse(backend.NotSupported, "the host does not run Linux"), call{op: OpStartUnit, unit: name}, r)
		}
		r.keepUnit(unitName(name), u)
		return r.setUnit(unitName(name), run)
	})
}
