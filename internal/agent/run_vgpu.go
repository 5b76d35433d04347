package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
)

// vgpuEffects are the steps that a Linux KVM host with NVIDIA's vGPU driver can do.
var vgpuEffects = effects[backend.VGPU]{
	change.OpSetFunctions: func(ctx context.Context, host backend.VGPU, s change.Step) error {
		return host.SetVirtualFunctions(ctx, s.GPU, s.Enable)
	},
	change.OpSetHeterogeneous: func(ctx context.Context, host backend.VGPU, s change.Step) error {
		return host.SetHeterogeneous(ctx, s.GPU, s.Enable)
	},
	change.OpCreateVGPU: func(ctx context.Context, host backend.VGPU, s change.Step) error {
		return host.CreateVGPU(ctx, s.GPU, *s.VGPU)
	},
	change.OpRemoveVGPU: func(ctx context.Context, host backend.VGPU, s change.Step) error {
		return host.RemoveVGPU(ctx, s.GPU, *s.VGPU)
	},
}
