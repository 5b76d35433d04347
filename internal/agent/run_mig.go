package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
)

// migEffects are the steps that a Linux host with NVIDIA GPUs can do.
var migEffects = effects[backend.MIG]{
	change.OpSetMIGMode: func(ctx context.Context, host backend.MIG, s change.Step) error {
		return host.SetMIGMode(ctx, s.GPU, s.Enable, s.Force)
	},
	change.OpCreateInstance: func(ctx context.Context, host backend.MIG, s change.Step) error {
		return host.CreateInstance(ctx, s.GPU, *s.Instance)
	},
	change.OpDestroyInstance: func(ctx context.Context, host backend.MIG, s change.Step) error {
		return host.DestroyInstance(ctx, s.GPU, *s.Instance)
	},
	change.OpRefreshDevices: func(ctx context.Context, host backend.MIG, _ change.Step) error { return host.RefreshDevices(ctx) },
	change.OpStopUnit:       func(ctx context.Context, host backend.MIG, s change.Step) error { return host.StopUnit(ctx, s.Unit) },
	change.OpStartUnit:      func(ctx context.Context, host backend.MIG, s change.Step) error { return host.StartUnit(ctx, s.Unit) },
}
