package conformance

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// together runs actions at the same time and returns the first error.
func together[A ~func(context.Context, B) error, B any](actions ...A) A {
	return func(ctx context.Context, b B) error {
		var group errgroup.Group
		for _, a := range actions {
			group.Go(func() error { return a(ctx, b) })
		}
		return group.Wait()
	}
}

// oneOf runs actions at the same time, of which one must succeed and the others be
// refused with a code.
func oneOf[A ~func(context.Context, B) error, B any](code backend.Code, actions ...A) A {
	return func(ctx context.Context, b B) error {
		results := make(chan error, len(actions))
		for _, a := range actions {
			go func() { results <- a(ctx, b) }()
		}
		succeeded := 0
		for range actions {
			err := <-results
			if err == nil {
				succeeded++
				continue
			}
			if refusal, ok := errors.AsType[*backend.Error](err); !ok || refusal.Code != code {
				return err
			}
		}
		if succeeded != 1 {
			return errors.New("not exactly one succeeded")
		}
		return nil
	}
}

func concurrencyScenarios() []scenario {
	count := func(s *backend.State) error {
		s.Fence++
		return nil
	}
	return []scenario{
		{
			name: "changes of different GPUs both happen",
			do:   together(setCount(gpuA, 8), setCount(gpuB, 2)),
			then: []check{hasCount(gpuA, 8), hasCount(gpuB, 2)},
		},
		{
			name: "adapters that are added at the same time are all there",
			do:   together(addAdapter(alpha), addAdapter(beta), addAdapter(gamma), addAdapter(alpha)),
			then: []check{hasAdapters(alpha, 2), hasAdapters(beta, 1), hasAdapters(gamma, 1)},
		},
		{
			name:  "VMs that start at the same time share the partitions",
			given: []given{hasOnly(gpuA)},
			first: []action{addAdapter(alpha), addAdapter(beta), addAdapter(gamma)},
			do:    together(start(alpha), start(beta), start(gamma)),
			then:  []check{inUse(gpuA, 3), hasSeats(alpha, 1), hasSeats(beta, 1), hasSeats(gamma, 1)},
		},
		{
			name:  "the last partition goes to one VM",
			given: []given{hasOnly(gpuA), startsWithCount(gpuA, 1)},
			first: []action{addAdapter(alpha), addAdapter(beta), addAdapter(gamma)},
			do:    oneOf(backend.Insufficient, start(alpha), start(beta), start(gamma)),
			then:  []check{inUse(gpuA, 1)},
		},
		{
			name:  "the last device of a pool goes to one VM",
			first: []action{withPool(pool, gpuC), addFromPool(alpha, pool), addFromPool(beta, pool)},
			do:    oneOf(backend.Insufficient, start(alpha), start(beta)),
			then:  []check{hasStatus(gpuC, gpu.Assigned)},
		},
		{
			name:  "the same call twice at the same time is one change",
			do:    together(setCount(gpuA, 8), setCount(gpuA, 8), start(alpha), start(alpha)),
			again: true,
			then:  []check{hasCount(gpuA, 8), isNow(alpha, gpu.VMRunning)},
		},
		{
			name: "no update of the records is lost",
			do:   together(update(count), update(count), update(count), update(count), update(count)),
			then: []check{func(t *testing.T, b *bench) { remembers(backend.State{Fence: 5})(t, b) }},
		},
		{
			name: "records and host change side by side",
			do:   together(update(count), setCount(gpuA, 8), update(count), start(alpha)),
			then: []check{remembers(backend.State{Fence: 2}), hasCount(gpuA, 8), isNow(alpha, gpu.VMRunning)},
		},
	}
}
