package conformance

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A refusal says what was tried on what, in words that a person finds again.
func errorScenarios() []scenario {
	return []scenario{
		{
			name:   "a refusal about a GPU names it",
			do:     setCount(noGPU, 4),
			fails:  backend.NotFound,
			saying: []string{noGPU},
		},
		{
			name:   "a refusal about a VM names it as people do",
			first:  []action{start(alpha)},
			do:     addAdapter(alpha),
			fails:  backend.InvalidState,
			saying: []string{"alpha", "running", "off"},
		},
		{
			name:   "a VM that is not there is named by its id",
			do:     start(noVM),
			fails:  backend.NotFound,
			saying: []string{noVM},
		},
		{
			name:   "a refusal about a pool names it",
			do:     setMembers("nowhere", gpuC),
			fails:  backend.NotFound,
			saying: []string{"nowhere"},
		},
		{
			name:  "a count is not set when the caller has gone",
			do:    stopped(setCount(gpuA, 8)),
			fails: backend.Timeout,
			then:  []check{hasCount(gpuA, 4)},
		},
		{
			name:  "a VM is not started when the caller has gone",
			do:    stopped(start(alpha)),
			fails: backend.Timeout,
			then:  []check{isNow(alpha, gpu.VMOff)},
		},
	}
}

// stopped is an action whose caller has gone.
func stopped[A ~func(context.Context, B) error, B any](a A) A {
	return func(ctx context.Context, b B) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return a(ctx, b)
	}
}
