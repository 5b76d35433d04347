package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// onVGPUs tells whether a step takes a host with NVIDIA's vGPU driver.
func (o Op) onVGPUs() bool {
	switch o { //nolint:exhaustive // all others do not
	case OpSetFunctions, OpSetHeterogeneous, OpCreateVGPU, OpRemoveVGPU:
		return true
	}
	return false
}

// runVGPU runs the steps that a Linux KVM host with NVIDIA's vGPU driver can do.
func runVGPU(ctx context.Context, host backend.VGPU, s Step) error {
	switch s.Op { //nolint:exhaustive // the caller has asked onVGPUs
	case OpSetFunctions:
		return host.SetVirtualFunctions(ctx, s.GPU, s.Enable)
	case OpSetHeterogeneous:
		return host.SetHeterogeneous(ctx, s.GPU, s.Enable)
	case OpCreateVGPU:
		return host.CreateVGPU(ctx, s.GPU, *s.VGPU)
	case OpRemoveVGPU:
		return host.RemoveVGPU(ctx, s.GPU, *s.VGPU)
	}
	return noStep(s.Op)
}
