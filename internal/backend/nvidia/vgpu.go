//go:build linux && cgo

package nvidia

import (
	"context"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// SetVirtualFunctions turns a GPU's virtual functions on or off.
func (b *Backend) SetVirtualFunctions(ctx context.Context, gpuID string, on bool) error {
	op := "turn the virtual functions off"
	if on {
		op = "turn the virtual functions on"
	}
	return b.changeVGPU(ctx, op, gpuID, func(g *vgpu.GPU) error {
		if g.SRIOV != nil && g.VFsOn() != on {
			if who := who(g.Processes); who != "" {
				return refuse(backend.InUse, "the GPU is in use by %s", who)
			}
		}
		if on {
			return b.vgpus.EnableVFs(ctx, g)
		}
		return b.vgpus.DisableVFs(ctx, g)
	})
}

// SetHeterogeneous turns the mode of mixed frame buffer sizes on or off.
func (b *Backend) SetHeterogeneous(ctx context.Context, gpuID string, on bool) error {
	return b.changeVGPU(ctx, "set the mode of mixed vGPU sizes", gpuID, func(g *vgpu.GPU) error {
		return b.vgpus.SetHeterogeneous(ctx, g, on)
	})
}

// CreateVGPU makes a vGPU at its place.
func (b *Backend) CreateVGPU(ctx context.Context, gpuID string, p gpu.VGPUPlace) error {
	return b.changeVGPU(ctx, "create the vGPU "+p.Type, gpuID, func(g *vgpu.GPU) error {
		t, ok := g.Find(p.Type)
		switch {
		case !ok:
			return refuse(backend.InvalidParameter, "the GPU offers no vGPU type %s, only %s", p.Type,
				strings.Join(words.Each(g.Types, vgpu.Type.ShortName), ", "))
		case g.Shape == vgpu.ShapeOff:
			return refuse(backend.InvalidState, "the virtual functions of the GPU are off")
		case !t.MIGBacked() && g.MIG != nil && g.MIG.Enabled:
			return refuse(backend.InvalidState, "%s is time-sliced, and the GPU is in MIG mode", t.ShortName())
		}
		if err := b.shareInstances(g.Address, t); err != nil {
			return err
		}
		return b.vgpus.Create(g, vgpu.Spec{Function: p.Function, UUID: p.UUID, Type: t.ID})
	})
}

// RemoveVGPU takes a vGPU away that nobody holds.
func (b *Backend) RemoveVGPU(ctx context.Context, gpuID string, p gpu.VGPUPlace) error {
	return b.changeVGPU(ctx, "remove the vGPU "+p.Type, gpuID, func(g *vgpu.GPU) error {
		// A type that the driver no longer lists has no id; what is there is another one then.
		t, _ := g.Find(p.Type)
		return b.vgpus.Remove(ctx, g, vgpu.Spec{Function: p.Function, UUID: p.UUID, Type: t.ID})
	})
}

// changeVGPU is change for a GPU with vGPU types.
func (b *Backend) changeVGPU(ctx context.Context, op, gpuID string, call func(*vgpu.GPU) error) error {
	return b.change(ctx, op, gpuID, func(s *session, d *device) error {
		s.identify(d)
		types, err := s.vgpuTypes(d)
		if err != nil {
			return err
		}
		if len(types) == 0 {
			return refuse(backend.NotSupported,
				"the driver offers no vGPU types on this GPU; it takes the driver of NVIDIA's vGPU Manager, and a GPU that it knows")
		}
		g, err := b.vgpus.Read(ctx, d.Address)
		if err != nil {
			return err
		}
		return call(&g)
	})
}

// readVGPU reads the vGPU face of a GPU, nil for one without types.
func (b *Backend) readVGPU(ctx context.Context, s *session, d *device) (*gpu.VGPU, error) {
	types, err := s.vgpuTypes(d)
	if err != nil || len(types) == 0 {
		return nil, err
	}
	g, err := b.vgpus.Read(ctx, d.Address)
	if err != nil {
		return nil, err
	}
	v := &gpu.VGPU{FunctionsOn: g.VFsOn(), Heterogeneous: g.Heterogeneous.Enabled, HeterogeneousSupported: g.Heterogeneous.Supported}
	if g.SRIOV != nil {
		v.Functions = g.SRIOV.Total
	}
	for _, t := range g.Types {
		v.Types = append(v.Types, gpu.VGPUType{
			Name: t.ShortName(), FrameBuffer: t.FrameBuffer, Max: t.Max, MaxPerVM: t.MaxPerVM, MIGProfile: t.Instance,
		})
	}
	for _, f := range g.Functions {
		if f.Taken {
			v.Taken = append(v.Taken, gpu.TakenFunction{
				Function: f.Index, Address: f.Address, Driver: f.Driver, Holder: strings.Join(words.Each(f.Holders, vgpu.Holder.String), ", "),
			})
		}
		for _, in := range f.VGPUs {
			v.Instances = append(v.Instances, gpu.VGPUInstance{
				VGPUPlace: gpu.VGPUPlace{Type: in.Type.ShortName(), Function: f.Index, UUID: in.UUID},
				Address:   f.Address, GPUInstance: in.Instance, Holder: strings.Join(words.Each(in.Holders, vgpu.Holder.String), ", "),
			})
		}
	}
	return v, nil
}

// nameVGPUs adds which VMs name the vGPUs of a host that has any. That is libvirt's to tell, and whoever
// has no libvirt has no such VMs.
func (b *Backend) nameVGPUs(ctx context.Context, host *gpu.Host) {
	if !slices.ContainsFunc(host.GPUs, func(g gpu.GPU) bool { return g.VGPU != nil }) {
		return
	}
	found, err := libvirt.Look(ctx, b.opt.Libvirt)
	lacks(host, gpu.PartVGPUs, err)
	lacks(host, gpu.PartVMs, err) // none of them is gone for that, and a start that is owed to one stays so
	host.HostDevices, host.VMManager = found.Devices, found.Manager
	if host.VMs = found.VMs; host.VMs == nil {
		host.VMs = []gpu.VM{}
	}
	host.AttachVGPUs()
	host.NameVGPUs()
}
