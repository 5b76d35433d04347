package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
)

// runSharing runs the steps on what processes and containers share GPUs with.
func runSharing(ctx context.Context, host backend.Sharing, s change.Step) error {
	switch s.Op {
	case change.OpSetComputeMode:
		return host.SetComputeMode(ctx, s.GPU, s.ComputeMode)
	case change.OpSetTimeSlice:
		return host.SetTimeSlice(ctx, s.GPU, s.TimeSlice)
	case change.OpEnsureDaemon:
		return host.EnsureDaemon(ctx, *s.Daemon, s.Force)
	case change.OpRemoveDaemon:
		return host.RemoveDaemon(ctx, s.Daemon.Name, s.Force)
	case change.OpWriteShare:
		return host.WriteShare(ctx, *s.Share)
	case change.OpRemoveShare:
		return host.RemoveShare(ctx, s.Share.Name)
	}
	return noStep(s.Op)
}
