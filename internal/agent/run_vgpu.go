package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
)

// runVGPU runs the steps that a Linux KVM host with NVIDIA's vGPU driver can do.
func runVGPU(ctx context.Context, host backend.VGPU, s change.Step) error {
	switch s.Op {
	case change.OpSetFunctions:
		return host.SetVirtualFunctions(ctx, s.GPU, s.Enable)
	case change.OpSetHeterogeneous:
		return host.SetHeterogeneous(ctx, s.GPU, s.Enable)
	case change.OpCreateVGPU:
		return host.CreateVGPU(ctx, s.GPU, *s.VGPU)
	case change.OpRemoveVGPU:
		return host.RemoveVGPU(ctx, s.GPU, *s.VGPU)
	}
	return noStep(s.Op)
}
