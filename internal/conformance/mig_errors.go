package conformance

import "github.com/gpufleet/terraform-provider-gpu/internal/backend"

// A refusal says what was tried on what, in words that a person finds again. One who
// has gone changes nothing.
func migErrorScenarios() []migScenario {
	return []migScenario{
		{
			name:   "a refusal about a GPU names it",
			do:     setMode(noCard, true),
			fails:  backend.NotFound,
			saying: []string{noCard},
		},
		{
			name:   "a refusal about an instance names the GPU and the place",
			given:  []given{inMIG(h100A)},
			first:  []migAction{create(h100A, mig7g, 0)},
			do:     create(h100A, mig3g, 4),
			fails:  backend.Insufficient,
			saying: []string{h100A, mig3g, "4", mig7g},
		},
		{
			name:  "a mode is not set when the caller has gone",
			do:    stopped(setMode(h100A, true)),
			fails: backend.Timeout,
		},
		{
			name:  "an instance is not made when the caller has gone",
			given: []given{inMIG(h100A)},
			do:    stopped(create(h100A, mig1g, 0)),
			fails: backend.Timeout,
		},
		{
			name:  "an instance is not removed when the caller has gone",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig1g, 0)},
			do:    stopped(destroy(h100A, mig1g, 0)),
			fails: backend.Timeout,
		},
		{
			name:  "a unit is not stopped when the caller has gone",
			do:    stopped(stopUnit(dcgm)),
			fails: backend.Timeout,
		},
	}
}
