package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
)

// runMIG runs the steps that a Linux host with NVIDIA GPUs can do.
func runMIG(ctx context.Context, host backend.MIG, s change.Step) error {
	switch s.Op {
	case change.OpSetMIGMode:
		return host.SetMIGMode(ctx, s.GPU, s.Enable, s.Force)
	case change.OpCreateInstance:
		return host.CreateInstance(ctx, s.GPU, *s.Instance)
	case change.OpDestroyInstance:
		return host.DestroyInstance(ctx, s.GPU, *s.Instance)
	case change.OpRefreshDevices:
		return host.RefreshDevices(ctx)
	case change.OpStopUnit:
		return host.StopUnit(ctx, s.Unit)
	case change.OpStartUnit:
		return host.StartUnit(ctx, s.Unit)
	}
	return noStep(s.Op)
}
