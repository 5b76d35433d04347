package simulated

import (
	"context"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The methods in this file are what others do about vGPUs behind our back: virtual
// machines that start and stop, an administrator who writes to sysfs.

// HoldVGPU has a virtual machine hold a vGPU, as one does that runs with it.
func (f *Fleet) HoldVGPU(ctx context.Context, host, gpuID string, p gpu.VGPUPlace, vm string) error {
	return f.setHolder(ctx, host, gpuID, p, "VM "+vm)
}

// ReleaseVGPU ends what HoldVGPU began.
func (f *Fleet) ReleaseVGPU(ctx context.Context, host, gpuID string, p gpu.VGPUPlace) error {
	return f.setHolder(ctx, host, gpuID, p, "")
}

func (f *Fleet) setHolder(ctx context.Context, host, gpuID string, p gpu.VGPUPlace, holder string) error {
	return f.onHost(ctx, host, func(r *record) error {
		g, err := r.vgpuGPU(gpuID)
		if err != nil {
			return f.file.fail(fmt.Errorf("host %q, GPU %s: %w", r.Name, gpuID, err))
		}
		in := g.vgpuAt(p)
		if in == nil || !sameVGPUType(g.VGPU, in.Type, p.Type) {
			return f.file.fail(fmt.Errorf("host %q, GPU %s: it has no vGPU %s", r.Name, g.ID, vgpuText(p)))
		}
		in.Holder = holder
		return nil
	})
}

// CreateVGPUOutside makes a vGPU. A refusal is the driver's own.
func (f *Fleet) CreateVGPUOutside(ctx context.Context, host, gpuID string, p gpu.VGPUPlace) error {
	return f.onHost(ctx, host, func(r *record) error {
		return complete(r.createVGPU(gpuID, p), call{op: OpCreateVGPU, gpu: gpuID, place: vgpuText(p)}, r)
	})
}

// RemoveVGPUOutside takes a vGPU away.
func (f *Fleet) RemoveVGPUOutside(ctx context.Context, host, gpuID string, p gpu.VGPUPlace) error {
	return f.onHost(ctx, host, func(r *record) error {
		return complete(r.removeVGPU(gpuID, p), call{op: OpRemoveVGPU, gpu: gpuID, place: vgpuText(p)}, r)
	})
}

// SetVirtualFunctionsOutside turns virtual functions on or off as sriov-manage does.
func (f *Fleet) SetVirtualFunctionsOutside(ctx context.Context, host, gpuID string, on bool) error {
	return f.onHost(ctx, host, func(r *record) error {
		return complete(r.setFunctions(gpuID, on), call{op: OpSetFunctions, gpu: gpuID}, r)
	})
}
