package agent

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// sharesGPUs tells whether a step takes a host whose processes and containers share GPUs.
func (o Op) sharesGPUs() bool {
	switch o { //nolint:exhaustive // all others do not
	case OpSetComputeMode, OpSetTimeSlice, OpEnsureDaemon, OpRemoveDaemon, OpWriteShare, OpRemoveShare:
		return true
	}
	return false
}

// runSharing runs the steps on what processes and containers share GPUs with.
func runSharing(ctx context.Context, host backend.Sharing, s Step) error {
	switch s.Op { //nolint:exhaustive // the caller has asked sharesGPUs
	case OpSetComputeMode:
		return host.SetComputeMode(ctx, s.GPU, s.ComputeMode)
	case OpSetTimeSlice:
		return host.SetTimeSlice(ctx, s.GPU, s.TimeSlice)
	case OpEnsureDaemon:
		return host.EnsureDaemon(ctx, *s.Daemon, s.Force)
	case OpRemoveDaemon:
		return host.RemoveDaemon(ctx, s.Daemon.Name, s.Force)
	case OpWriteShare:
		return host.WriteShare(ctx, *s.Share)
	case OpRemoveShare:
		return host.RemoveShare(ctx, s.Share.Name)
	}
	return noStep(s.Op)
}
