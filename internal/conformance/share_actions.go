package conformance

import (
	"context"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What is done to a host through its backend.

func setComputeMode(gpuID string, mode gpu.ComputeMode) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.sharing.Sharing().SetComputeMode(ctx, gpuID, mode)
	}
}

func setTimeSlice(gpuID string, slice gpu.TimeSlice) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.sharing.Sharing().SetTimeSlice(ctx, gpuID, slice)
	}
}

func ensure(d gpu.MPSDaemonSpec) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.sharing.Sharing().EnsureDaemon(ctx, d, false)
	}
}

// ensureByForce may end clients.
func ensureByForce(d gpu.MPSDaemonSpec) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.sharing.Sharing().EnsureDaemon(ctx, d, true)
	}
}

func removeDaemon(name string) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.sharing.Sharing().RemoveDaemon(ctx, name, false)
	}
}

// removeDaemonByForce may end clients.
func removeDaemonByForce(name string) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.sharing.Sharing().RemoveDaemon(ctx, name, true)
	}
}

func hand(s gpu.ShareSpec) migAction {
	return func(ctx context.Context, b *migBench) error { return b.sharing.Sharing().WriteShare(ctx, s) }
}

func takeBack(share string) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.sharing.Sharing().RemoveShare(ctx, share, false)
	}
}

// takeBackByForce may end clients.
func takeBackByForce(share string) migAction {
	return func(ctx context.Context, b *migBench) error { return b.sharing.Sharing().RemoveShare(ctx, share, true) }
}

// measure reads the GPUs twice, without asking what comes of it.
func measure(ctx context.Context, b *migBench) error {
	m, err := meterOf(b)
	if err != nil {
		return err
	}
	_, _, err = m.Meter().Measure(ctx, time.Millisecond)
	return err
}

// What others do on it.

func connects(process, daemon string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.pids[process] = b.sharing.StartClient(b.t, daemon, process)
		return nil
	}
}

func startsInShare(process, share string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.pids[process] = b.sharing.StartInShare(b.t, share, process)
		return nil
	}
}

func dies(daemon string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.sharing.KillDaemon(b.t, daemon)
		return nil
	}
}

func diesAlone(daemon string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.sharing.KillControl(b.t, daemon)
		return nil
	}
}

func leavesSockets(daemon string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.sharing.LeaveSockets(b.t, daemon)
		return nil
	}
}

func startsFail(fail bool) migAction {
	return func(_ context.Context, b *migBench) error {
		b.sharing.FailStarts(b.t, fail)
		return nil
	}
}

func somebodyStartsDaemon(gpuIDs ...string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.sharing.StartDaemonOutside(b.t, gpuIDs...)
		return nil
	}
}

func somebodySetsComputeMode(gpuID string, mode gpu.ComputeMode) migAction {
	return func(_ context.Context, b *migBench) error {
		b.sharing.SetComputeModeOutside(b.t, gpuID, mode)
		return nil
	}
}

func somebodyWritesSpec(share string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.sharing.WriteForeignSpec(b.t, share)
		return nil
	}
}
