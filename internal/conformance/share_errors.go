package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// failing is a history that is refused with a code.
func failing(code backend.Code, a migAction) migAction {
	return func(ctx context.Context, b *migBench) error {
		err := a(ctx, b)
		if refusal, ok := errors.AsType[*backend.Error](err); !ok || refusal.Code != code {
			return fmt.Errorf("must be refused as %s, got %w", code, err)
		}
		return nil
	}
}

// A refusal says what was tried on what, in words that a person finds again. One who has
// gone changes nothing.
func shareErrorScenarios() []migScenario {
	served := func(d []gpu.SharedDevice) gpu.ShareSpec { return gpu.ShareSpec{Name: shareA, Devices: d} }
	scenarios := []migScenario{
		{
			name:   "a daemon for a GPU that is not there",
			do:     ensure(daemon(daemonA, whole(h100A, noCard))),
			fails:  backend.NotFound,
			saying: []string{daemonA, noCard},
		},
		{
			name:   "a daemon for a GPU instance that is not there",
			first:  []migAction{create(h100B, mig3g, 0)},
			do:     ensure(daemon(daemonA, part(h100B, mig3g, 4))),
			fails:  backend.NotFound,
			saying: []string{daemonA, h100B, mig3g},
		},
		{
			name:  "a daemon for a GPU instance that is half made",
			first: []migAction{somebodyHalfMakes(h100B, mig3g, 4)},
			do:    ensure(daemon(daemonA, part(h100B, mig3g, 4))),
			fails: backend.NotFound,
		},
		{
			name:  "a daemon for a GPU instance on a GPU without MIG",
			do:    ensure(daemon(daemonA, part(l40s, mig3g, 0))),
			fails: backend.NotFound,
		},
		{
			name:   "a daemon for a GPU in MIG mode as a whole",
			do:     ensure(daemon(daemonA, whole(h100B))),
			fails:  backend.NotSupported,
			saying: []string{h100B, "MIG"},
		},
		{
			name:  "a daemon for two GPU instances",
			first: []migAction{create(h100B, mig3g, 0), create(h100B, mig3g, 4)},
			do:    ensure(daemon(daemonA, append(part(h100B, mig3g, 0), part(h100B, mig3g, 4)...))),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a daemon without devices",
			do:    ensure(daemon(daemonA, nil)),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a daemon for nobody",
			do:    ensure(daemon(daemonA, whole(h100A), func(d *gpu.MPSDaemonSpec) { d.User = nil })),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a daemon for more than all threads",
			do:    ensure(daemon(daemonA, whole(h100A), withLimits(101, 0))),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a daemon of a name that is none",
			do:    ensure(daemon("Team A/..", whole(h100A))),
			fails: backend.InvalidParameter,
		},
		{
			name:   "a share of a GPU that is not there",
			do:     hand(served(whole(noCard))),
			fails:  backend.NotFound,
			saying: []string{shareA, noCard},
		},
		{
			name:   "a share of a GPU instance that is not there",
			do:     hand(served(part(h100B, mig3g, 4))),
			fails:  backend.NotFound,
			saying: []string{shareA, h100B, mig3g},
		},
		{
			name:   "a share of a GPU in MIG mode as a whole",
			do:     hand(served(whole(h100B))),
			fails:  backend.NotSupported,
			saying: []string{h100B, "MIG"},
		},
		{
			name:   "a share of a daemon that is not there",
			do:     hand(fraction(50)),
			fails:  backend.NotFound,
			saying: []string{shareA, daemonA},
		},
		{
			name:  "a change of a share that cannot be leaves it",
			first: []migAction{hand(served(whole(h100A)))},
			do:    hand(served(whole(noCard))),
			fails: backend.NotFound,
		},
		{
			name:   "a share of a name that CDI does not take",
			do:     hand(gpu.ShareSpec{Name: "team a", Devices: whole(h100A)}),
			fails:  backend.InvalidParameter,
			saying: []string{"team a"},
		},
		{
			name:  "a share of a name that is a path",
			do:    hand(gpu.ShareSpec{Name: "../nvidia", Devices: whole(h100A)}),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a share of two GPU instances",
			first: []migAction{create(h100B, mig3g, 0), create(h100B, mig3g, 4)},
			do:    hand(served(append(part(h100B, mig3g, 0), part(h100B, mig3g, 4)...))),
			fails: backend.InvalidParameter,
		},
	}
	for _, call := range []struct {
		what string
		do   migAction
	}{
		{"a compute mode is not set", setComputeMode(h100A, gpu.ComputeExclusiveProcess)},
		{"a time slice is not set", setTimeSlice(h100A, gpu.TimeSliceLong)},
		{"a daemon is not started", ensure(daemon(daemonB, whole(h100A)))},
		{"a daemon is not configured", ensure(daemon(daemonA, whole(l40s), withLimits(25, 0)))},
		{"a daemon is not removed", removeDaemon(daemonA)},
		{"a share is not handed over", hand(gpu.ShareSpec{Name: shareB, Devices: whole(l40s)})},
		{"a share is not taken back", takeBack(shareA)},
	} {
		scenarios = append(scenarios, migScenario{
			name:  call.what + " when the caller has gone",
			first: []migAction{ensure(daemon(daemonA, whole(l40s))), hand(served(whole(l40s)))},
			do:    stopped(call.do),
			fails: backend.Timeout,
		})
	}
	return scenarios
}
