package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// runMIG runs the steps that a Linux host with NVIDIA GPUs can do.
func runMIG(ctx context.Context, host backend.MIG, s Step) error {
	switch s.Op {
	case OpSetMIGMode:
		return host.SetMIGMode(ctx, s.GPU, s.Enable, s.Force)
	case OpCreateInstance:
		return host.CreateInstance(ctx, s.GPU, *s.Instance)
	case OpDestroyInstance:
		return host.DestroyInstance(ctx, s.GPU, *s.Instance)
	case OpRefreshDevices:
		return host.RefreshDevices(ctx)
	case OpStopUnit:
		return host.StopUnit(ctx, s.Unit)
	case OpStartUnit:
		return host.StartUnit(ctx, s.Unit)
	}
	return noStep(s.Op)
}
