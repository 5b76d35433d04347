package conformance

import (
	"context"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What is done to a host through its backend.

func setMode(gpuID string, on bool) migAction {
	return func(ctx context.Context, b *migBench) error { return b.MIG().SetMIGMode(ctx, gpuID, on, false) }
}

// setModeByReset sets a mode where the GPU may be reset for it.
func setModeByReset(gpuID string, on bool) migAction {
	return func(ctx context.Context, b *migBench) error { return b.MIG().SetMIGMode(ctx, gpuID, on, true) }
}

func create(gpuID, profile string, start int) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.MIG().CreateInstance(ctx, gpuID, gpu.MIGPlacement{Profile: profile, Start: start})
	}
}

func destroy(gpuID, profile string, start int) migAction {
	return func(ctx context.Context, b *migBench) error {
		return b.MIG().DestroyInstance(ctx, gpuID, gpu.MIGPlacement{Profile: profile, Start: start})
	}
}

func refreshDevices(ctx context.Context, b *migBench) error { return b.MIG().RefreshDevices(ctx) }

func stopUnit(name string) migAction {
	return func(ctx context.Context, b *migBench) error { return b.MIG().StopUnit(ctx, name) }
}

func startUnit(name string) migAction {
	return func(ctx context.Context, b *migBench) error { return b.MIG().StartUnit(ctx, name) }
}

// lookOnly reads the host, which happens before and after anyway.
func lookOnly(context.Context, *migBench) error { return nil }

// What others do on it.

func starts(process, gpuID string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.pids[process] = b.StartProcess(b.t, gpuID, nil, process)
		return nil
	}
}

func startsIn(process, gpuID, profile string, start int) migAction {
	return func(_ context.Context, b *migBench) error {
		b.pids[process] = b.StartProcess(b.t, gpuID, &gpu.MIGPlacement{Profile: profile, Start: start}, process)
		return nil
	}
}

func ends(process string) migAction {
	return func(_ context.Context, b *migBench) error {
		b.StopProcess(b.t, b.pids[process])
		return nil
	}
}

func somebodyCreates(gpuID, profile string, start int) migAction {
	return func(_ context.Context, b *migBench) error {
		b.CreateOutside(b.t, gpuID, gpu.MIGPlacement{Profile: profile, Start: start})
		return nil
	}
}

func somebodyDestroys(gpuID, profile string, start int) migAction {
	return func(_ context.Context, b *migBench) error {
		b.DestroyOutside(b.t, gpuID, gpu.MIGPlacement{Profile: profile, Start: start})
		return nil
	}
}

func somebodyHalfMakes(gpuID, profile string, start int) migAction {
	return func(_ context.Context, b *migBench) error {
		b.HalfMake(b.t, gpuID, gpu.MIGPlacement{Profile: profile, Start: start})
		return nil
	}
}

func somebodyDivides(gpuID, profile string, start, slices int) migAction {
	return func(_ context.Context, b *migBench) error {
		b.Divide(b.t, gpuID, gpu.MIGPlacement{Profile: profile, Start: start}, slices)
		return nil
	}
}

func reboot(_ context.Context, b *migBench) error {
	b.Reboot(b.t)
	return nil
}

// sevenSmall is a GPU cut into instances of one slice each.
func sevenSmall(gpuID string) migAction {
	var all []migAction
	for start := range 7 {
		all = append(all, create(gpuID, mig1g, start))
	}
	return each(all...)
}

// uuidOf is the UUID of the MIG device at a place.
func uuidOf(h *gpu.Host, gpuID string, at gpu.MIGPlacement) (string, error) {
	i, ok := instanceAt(h, gpuID, at)
	if !ok || len(i.Compute) != 1 {
		return "", fmt.Errorf("GPU %s has no whole instance %s at %d: %v", gpuID, at.Profile, at.Start, i)
	}
	return i.Compute[0].UUID, nil
}

func instanceAt(h *gpu.Host, gpuID string, at gpu.MIGPlacement) (gpu.GPUInstance, bool) {
	if g, ok := h.GPU(gpuID); ok && g.MIG != nil {
		for _, i := range g.MIG.Instances {
			if i.Placement() == at {
				return i, true
			}
		}
	}
	return gpu.GPUInstance{}, false
}
