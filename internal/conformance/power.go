package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// brief is less than a slow guest needs.
const (
	brief     = 100 * time.Millisecond
	slowGuest = 300 * time.Millisecond
)

func powerScenarios() []scenario {
	scenarios := append(startScenarios(), shutdownScenarios()...)
	return append(scenarios, []scenario{
		{
			name:  "power is cut",
			first: []action{withPartition(alpha)},
			do:    turnOff(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMOff), hasSeats(alpha, 0), hasAdapters(alpha, 1)},
		},
		{
			name:  "power is cut under a locked guest",
			with:  []arrangement{guestOf(alpha, Guest{Locked: true})},
			first: []action{start(alpha)},
			do:    turnOff(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:  "power is cut under a paused VM",
			given: []given{isInState(alpha, gpu.VMPaused)},
			do:    turnOff(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:  "a saved VM has no power to cut",
			given: []given{isInState(alpha, gpu.VMSaved)},
			do:    turnOff(alpha),
			fails: backend.InvalidState,
			then:  []check{isNow(alpha, gpu.VMSaved)},
		},
		{
			name:  "a VM that is not there cannot be turned off",
			do:    turnOff(noVM),
			fails: backend.NotFound,
		},
	}...)
}

func startScenarios() []scenario {
	return []scenario{
		{
			name:  "a VM starts",
			do:    start(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMRunning), isNow(beta, gpu.VMOff)},
		},
		{
			name:  "a saved VM is restored",
			given: []given{isInState(alpha, gpu.VMSaved)},
			do:    start(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMRunning)},
		},
		{
			name:  "a paused VM goes on",
			given: []given{isInState(alpha, gpu.VMPaused)},
			do:    start(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMRunning)},
		},
		{
			name:  "a VM in a state of its own does not start",
			given: []given{isInState(alpha, gpu.VMOther)},
			do:    start(alpha),
			fails: backend.InvalidState,
			then:  []check{isNow(alpha, gpu.VMOther)},
		},
		{
			name:  "a VM that does not start holds nothing",
			with:  []arrangement{guestOf(alpha, Guest{StartFails: true})},
			first: []action{addAdapter(alpha)},
			do:    start(alpha),
			fails: backend.Failed,
			then:  []check{isNow(alpha, gpu.VMOff), hasSeats(alpha, 0), hasAdapters(alpha, 1)},
		},
		{
			name:  "a VM that is not there cannot be started",
			do:    start(noVM),
			fails: backend.NotFound,
		},
		{
			name:  "a clustered VM starts on its node",
			given: []given{isClustered(alpha)},
			do:    start(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMRunning)},
		},
		{
			name:   "a paused node starts no clustered VM",
			given:  []given{isClustered(alpha), nodeIs(gpu.NodePaused)},
			do:     start(alpha),
			fails:  backend.Unavailable,
			saying: []string{"hv01", "paused"},
			then:   []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:  "a draining node starts no clustered VM",
			given: []given{isClustered(alpha), nodeIs(gpu.NodeDraining)},
			do:    start(alpha),
			fails: backend.Unavailable,
			then:  []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:  "a paused node starts a VM that is not clustered",
			given: []given{isClustered(beta), nodeIs(gpu.NodePaused)},
			do:    start(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMRunning)},
		},
	}
}

func shutdownScenarios() []scenario {
	return []scenario{
		{
			name:  "a guest shuts down",
			first: []action{withPartition(alpha)},
			do:    shutDown(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMOff), hasSeats(alpha, 0), hasAdapters(alpha, 1)},
		},
		{
			name:  "the call returns when a slow guest is off",
			with:  []arrangement{guestOf(alpha, Guest{Shutdown: slowGuest})},
			first: []action{start(alpha)},
			do:    shutDown(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:   "time runs out on a slow guest",
			with:   []arrangement{guestOf(alpha, Guest{Shutdown: time.Hour})},
			first:  []action{withPartition(alpha)},
			do:     within(brief, shutDown(alpha)),
			fails:  backend.Timeout,
			leaves: true,
			then:   []check{isNow(alpha, gpu.VMStopping), hasSeats(alpha, 1)},
		},
		{
			name: "a slow guest shuts down though nobody waits for it",
			with: []arrangement{guestOf(alpha, Guest{Shutdown: slowGuest})},
			first: []action{start(alpha), func(ctx context.Context, b *bench) error {
				err := within(brief, shutDown(alpha))(ctx, b)
				if refusal, ok := errors.AsType[*backend.Error](err); !ok || refusal.Code != backend.Timeout {
					return err
				}
				for { // a busy machine takes its time
					host, err := b.Inventory(ctx)
					if vm, ok := host.VM(alpha); err != nil || !ok || vm.State == gpu.VMOff {
						return err
					}
					select {
					case <-time.After(slowGuest / 10):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}},
			do:   nothing,
			then: []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:   "a locked guest is not shut down",
			with:   []arrangement{guestOf(alpha, Guest{Locked: true})},
			first:  []action{withPartition(alpha)},
			do:     shutDown(alpha),
			fails:  backend.Locked,
			saying: []string{"32781"},
			then:   []check{isNow(alpha, gpu.VMRunning), hasSeats(alpha, 1)},
		},
		{
			name:  "a locked guest is shut down by force",
			with:  []arrangement{guestOf(alpha, Guest{Locked: true})},
			first: []action{start(alpha)},
			do:    forceDown(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:  "a guest without integration services does not hear the request",
			with:  []arrangement{guestOf(alpha, Guest{NoIntegration: true})},
			first: []action{start(alpha)},
			do:    within(brief, shutDown(alpha)),
			fails: backend.Timeout,
			then:  []check{isNow(alpha, gpu.VMRunning)},
		},
		{
			name:  "a saved VM has no guest to ask",
			given: []given{isInState(alpha, gpu.VMSaved)},
			do:    shutDown(alpha),
			fails: backend.InvalidState,
			then:  []check{isNow(alpha, gpu.VMSaved)},
		},
		{
			name:  "a paused VM has no guest to ask",
			given: []given{isInState(alpha, gpu.VMPaused)},
			do:    shutDown(alpha),
			fails: backend.InvalidState,
			then:  []check{isNow(alpha, gpu.VMPaused)},
		},
		{
			name:  "a VM that is off is shut down already",
			do:    shutDown(alpha),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "a VM that is not there cannot be shut down",
			do:    shutDown(noVM),
			fails: backend.NotFound,
		},
	}
}
