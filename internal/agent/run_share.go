package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
)

// sharingEffects are the steps on what processes and containers share GPUs with.
var sharingEffects = effects[backend.Sharing]{
	change.OpSetComputeMode: func(ctx context.Context, host backend.Sharing, s change.Step) error {
		return host.SetComputeMode(ctx, s.GPU, s.ComputeMode)
	},
	change.OpSetTimeSlice: func(ctx context.Context, host backend.Sharing, s change.Step) error {
		return host.SetTimeSlice(ctx, s.GPU, s.TimeSlice)
	},
	change.OpEnsureDaemon: func(ctx context.Context, host backend.Sharing, s change.Step) error {
		return host.EnsureDaemon(ctx, *s.Daemon, s.Force)
	},
	change.OpRemoveDaemon: func(ctx context.Context, host backend.Sharing, s change.Step) error {
		return host.RemoveDaemon(ctx, s.Daemon.Name, s.Force)
	},
	change.OpWriteShare: func(ctx context.Context, host backend.Sharing, s change.Step) error {
		return host.WriteShare(ctx, *s.Share)
	},
	change.OpRemoveShare: func(ctx context.Context, host backend.Sharing, s change.Step) error {
		return host.RemoveShare(ctx, s.Share.Name, s.Force)
	},
}
