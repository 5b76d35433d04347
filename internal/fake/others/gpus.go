package others

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-uuid"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// AddGPU plugs a GPU in.
func (f *Fleet) AddGPU(ctx context.Context, host string, g gpu.GPU) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		m.State().GPUs = append(m.State().GPUs, g)
		return nil
	})
}

// RemoveGPU takes a GPU out, or lets it die. VMs that hold it or a part of it go off;
// settings that name it stay.
func (f *Fleet) RemoveGPU(ctx context.Context, host, gpuID string) error {
	return f.onGPU(ctx, host, gpuID, func(m simulated.Machine, g *gpu.GPU) error {
		h, id := m.State(), g.ID
		for i := range h.VMs {
			if vm := &h.VMs[i]; vm.State != gpu.VMOff && vm.State != gpu.VMSaved && holds(vm, g) {
				if err := stop(ctx, m, vm, gpu.VMOff); err != nil {
					return err
				}
			}
		}
		endOn(h, g)
		h.GPUs = slices.DeleteFunc(h.GPUs, func(g gpu.GPU) bool { return gpu.SameID(g.ID, id) })
		for i := range h.Pools {
			h.Pools[i].GPUs = slices.DeleteFunc(h.Pools[i].GPUs, func(m string) bool { return gpu.SameID(m, id) })
		}
		maps.DeleteFunc(m.Simulation().GPUs, func(k string, _ simulated.Hidden) bool { return gpu.SameID(k, id) })
		return nil
	})
}

func holds(vm *gpu.VM, g *gpu.GPU) bool {
	return slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return gpu.SameID(d.GPU, g.ID) }) ||
		g.Partitionable != nil && slices.ContainsFunc(g.Partitionable.Partitions, func(p gpu.Partition) bool { return gpu.SameID(p.VMID, vm.ID) })
}

// SetCountOutside sets a GPU's partition count as an administrator does.
func (f *Fleet) SetCountOutside(ctx context.Context, host, gpuID string, count int) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error { return m.SetPartitionCount(ctx, gpuID, count) })
}

// SetMIGModeOutside sets a MIG mode as nvidia-smi does: where that takes a reset, the
// mode waits for one.
func (f *Fleet) SetMIGModeOutside(ctx context.Context, host, gpuID string, on bool) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		if g, ok := m.State().GPU(gpuID); ok && g.MIG != nil && g.MIG.NeedsReset && g.MIG.Enabled != on {
			g.MIG.Pending = on
			return nil
		}
		return m.SetMIGMode(ctx, gpuID, on, false)
	})
}

// ResetGPU resets a GPU, whoever uses it, as a driver does after an error.
func (f *Fleet) ResetGPU(ctx context.Context, host, gpuID string) error {
	return f.onGPU(ctx, host, gpuID, func(m simulated.Machine, g *gpu.GPU) error {
		endOn(m.State(), g)
		reset(g)
		return nil
	})
}

// reset brings a MIG mode into force that waits for it.
func reset(g *gpu.GPU) {
	g.Processes = nil
	if m := g.MIG; m != nil {
		m.Instances, m.Enabled = nil, m.Pending
	}
	if g.ComputeMode != "" {
		g.ComputeMode = gpu.ComputeDefault
	}
	if g.TimeSlice != "" {
		g.TimeSlice = gpu.TimeSliceDefault
	}
}

// boot does to a GPU what a reboot does: Ampere keeps its MIG mode, later ones lose it with
// the driver, and instances, vGPUs, processes, compute modes and time slices are kept by none
// (assumption linux-time-slice-reset).
func boot(g *gpu.GPU) {
	if v := g.VGPU; v != nil {
		v.FunctionsOn, v.Heterogeneous, v.Instances, v.Taken = false, false, nil, nil
	}
	if g.MIG != nil && !g.MIG.NeedsReset {
		g.MIG.Pending = false
	}
	reset(g)
}

// CreateInstanceOutside makes a GPU instance with one compute instance that fills it.
func (f *Fleet) CreateInstanceOutside(ctx context.Context, host, gpuID string, p gpu.MIGPlacement) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error { return m.CreateInstance(ctx, gpuID, p) })
}

// HalfMakeInstance makes a GPU instance without a compute instance.
func (f *Fleet) HalfMakeInstance(ctx context.Context, host, gpuID string, p gpu.MIGPlacement) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		if err := m.CreateInstance(ctx, gpuID, p); err != nil {
			return err
		}
		g, _ := m.State().GPU(gpuID)
		instance(g, p).Compute = nil
		return nil
	})
}

// DivideInstance has a GPU instance that is there hold one compute instance of a number of
// slices.
func (f *Fleet) DivideInstance(ctx context.Context, host, gpuID string, p gpu.MIGPlacement, size int) error {
	return f.onGPU(ctx, host, gpuID, func(_ simulated.Machine, g *gpu.GPU) error {
		i := instance(g, p)
		if i == nil {
			return fmt.Errorf("it has no instance %s@%d", p.Profile, p.Start)
		}
		id, err := uuid.GenerateUUID()
		i.Compute = []gpu.ComputeInstance{{UUID: "MIG-" + id, Slices: size}}
		if i.Minor != 0 {
			i.Compute[0].Minor = i.Minor + 1
		}
		return err
	})
}

func instance(g *gpu.GPU, p gpu.MIGPlacement) *gpu.GPUInstance {
	if g.MIG == nil {
		return nil
	}
	for i := range g.MIG.Instances {
		if g.MIG.Instances[i].Placement() == p {
			return &g.MIG.Instances[i]
		}
	}
	return nil
}

// DestroyInstanceOutside removes a GPU instance and the compute instances in it.
func (f *Fleet) DestroyInstanceOutside(ctx context.Context, host, gpuID string, p gpu.MIGPlacement) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error { return m.DestroyInstance(ctx, gpuID, p) })
}

// HoldVGPU has a virtual machine hold a vGPU, as one does that runs with it.
func (f *Fleet) HoldVGPU(ctx context.Context, host, gpuID string, p gpu.VGPUPlace, vm string) error {
	return f.setHolder(ctx, host, gpuID, p, "VM "+vm)
}

// ReleaseVGPU ends what HoldVGPU began.
func (f *Fleet) ReleaseVGPU(ctx context.Context, host, gpuID string, p gpu.VGPUPlace) error {
	return f.setHolder(ctx, host, gpuID, p, "")
}

func (f *Fleet) setHolder(ctx context.Context, host, gpuID string, p gpu.VGPUPlace, holder string) error {
	return f.onVGPU(ctx, host, gpuID, p, func(_ *gpu.Host, in *gpu.VGPUInstance) { in.Holder = holder })
}

// DefineVM has the definition of a VM, in a state, name a vGPU, as libvirt keeps it.
func (f *Fleet) DefineVM(ctx context.Context, host, gpuID string, p gpu.VGPUPlace, vm string, state gpu.VMState) error {
	return f.onVGPU(ctx, host, gpuID, p, func(h *gpu.Host, in *gpu.VGPUInstance) {
		d := gpu.HostDevice{VM: vm, State: state, UUID: in.UUID}
		if d.UUID == "" {
			d.Address = in.Address
		}
		h.HostDevices = append(h.HostDevices, d)
		slices.SortFunc(h.HostDevices, func(a, b gpu.HostDevice) int { return strings.Compare(a.VM, b.VM) })
	})
}

// TakeFunction has a driver take the virtual function at a place from NVIDIA's, with the vGPU there, as libvirt
// does for a VM whose definition says managed='yes'.
func (f *Fleet) TakeFunction(ctx context.Context, host, gpuID string, p gpu.VGPUPlace, driver string) error {
	return f.onVGPU(ctx, host, gpuID, p, func(h *gpu.Host, in *gpu.VGPUInstance) {
		g, _ := h.GPU(gpuID)
		g.VGPU.Taken = append(g.VGPU.Taken, gpu.TakenFunction{Function: in.Function, Address: in.Address, Driver: driver})
		gone := in.VGPUPlace
		g.VGPU.Instances = slices.DeleteFunc(g.VGPU.Instances, func(i gpu.VGPUInstance) bool { return i.VGPUPlace == gone })
	})
}

// UndefineVM removes a VM from libvirt.
func (f *Fleet) UndefineVM(ctx context.Context, host, vm string) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error {
		h := m.State()
		h.HostDevices = slices.DeleteFunc(h.HostDevices, func(d gpu.HostDevice) bool { return d.VM == vm })
		return nil
	})
}

func (f *Fleet) onVGPU(
	ctx context.Context, host, gpuID string, p gpu.VGPUPlace, change func(*gpu.Host, *gpu.VGPUInstance),
) error {
	return f.onGPU(ctx, host, gpuID, func(m simulated.Machine, g *gpu.GPU) error {
		if g.VGPU == nil {
			return fmt.Errorf("GPU %s has no vGPUs", g.ID)
		}
		if t, ok := g.VGPU.Offers(p.Type); ok {
			p.Type = t.Name
		}
		for i := range g.VGPU.Instances {
			in := &g.VGPU.Instances[i]
			here := in.Function == p.Function
			if in.UUID != "" {
				here = gpu.SameID(in.UUID, p.UUID)
			}
			if here && gpu.SameID(in.Type, p.Type) {
				change(m.State(), in)
				return nil
			}
		}
		return fmt.Errorf("GPU %s has no vGPU %s on function %d, UUID %q", g.ID, p.Type, p.Function, p.UUID)
	})
}

// CreateVGPUOutside makes a vGPU. A refusal is the driver's own.
func (f *Fleet) CreateVGPUOutside(ctx context.Context, host, gpuID string, p gpu.VGPUPlace) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error { return m.CreateVGPU(ctx, gpuID, p) })
}

// RemoveVGPUOutside takes a vGPU away.
func (f *Fleet) RemoveVGPUOutside(ctx context.Context, host, gpuID string, p gpu.VGPUPlace) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error { return m.RemoveVGPU(ctx, gpuID, p) })
}

// SetVirtualFunctionsOutside turns virtual functions on or off as sriov-manage does.
func (f *Fleet) SetVirtualFunctionsOutside(ctx context.Context, host, gpuID string, on bool) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error { return m.SetVirtualFunctions(ctx, gpuID, on) })
}

// SetComputeModeOutside sets a compute mode as nvidia-smi does.
func (f *Fleet) SetComputeModeOutside(ctx context.Context, host, gpuID string, mode gpu.ComputeMode) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error { return m.SetComputeMode(ctx, gpuID, mode) })
}

// SetTimeSliceOutside sets a time slice as nvidia-smi does.
func (f *Fleet) SetTimeSliceOutside(ctx context.Context, host, gpuID string, t gpu.TimeSlice) error {
	return f.onHost(ctx, host, func(m simulated.Machine) error { return m.SetTimeSlice(ctx, gpuID, t) })
}

// SetLoad says how busy a GPU or GPU instance is from now on.
func (f *Fleet) SetLoad(ctx context.Context, host string, l simulated.Load) error {
	return f.EditSimulation(ctx, host, func(s *simulated.Simulation) {
		d := gpu.SharedDevice{GPU: l.GPU, Instance: l.Instance}
		s.Load = slices.DeleteFunc(s.Load, func(o simulated.Load) bool { return d.Same(gpu.SharedDevice{GPU: o.GPU, Instance: o.Instance}) })
		s.Load = append(s.Load, l)
	})
}
