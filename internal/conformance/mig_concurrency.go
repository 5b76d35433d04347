package conformance

import "github.com/gpufleet/terraform-provider-gpu/internal/backend"

func migConcurrencyScenarios() []migScenario {
	scenarios := []migScenario{
		{
			name: "instances that are made at the same time are all there",
			do:   together(create(h100A, mig1g, 0), create(h100A, mig1g, 1), create(h100A, mig2g, 2), create(h100A, mig3g, 4)),
			then: []migCheck{
				hasInstances(h100A, at(mig1g, 0), at(mig1g, 1), at(mig2g, 2), at(mig3g, 4)),
				isWhole(h100A, mig1g, 0), isWhole(h100A, mig1g, 1), isWhole(h100A, mig2g, 2), isWhole(h100A, mig3g, 4),
			},
		},
		{
			name:  "the same one twice at the same time is one",
			do:    together(create(h100A, mig3g, 4), create(h100A, mig3g, 4), create(h100A, mig3g, 4)),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig3g, 4)), isWhole(h100A, mig3g, 4)},
		},
		{
			name: "a place goes to one of those who want it",
			do:   oneOf(backend.Insufficient, create(h100A, mig7g, 0), create(h100A, mig4g, 0), create(h100A, mig3g, 0), create(h100A, mig1gm, 2)),
		},
		{
			name:  "one is made while another is removed",
			first: []migAction{create(h100A, mig3g, 0), create(h100A, mig2g, 4)},
			do:    together(create(h100A, mig1g, 6), destroy(h100A, mig2g, 4)),
			then:  []migCheck{keeps(h100A, at(mig3g, 0)), hasInstances(h100A, at(mig3g, 0), at(mig1g, 6)), isWhole(h100A, mig1g, 6)},
		},
		{
			name:  "the same one is removed twice at the same time",
			first: []migAction{create(h100A, mig3g, 0), create(h100A, mig2g, 4)},
			do:    together(destroy(h100A, mig2g, 4), destroy(h100A, mig2g, 4)),
			again: true,
			then:  []migCheck{keeps(h100A, at(mig3g, 0)), hasInstances(h100A, at(mig3g, 0))},
		},
		{
			name: "changes of different GPUs all happen",
			do:   together(create(h100A, mig4g, 0), setMode(h100B, true), setModeByReset(a100, true)),
			then: []migCheck{hasInstances(h100A, at(mig4g, 0)), isInMIG(h100B, true), isInMIG(a100, true)},
		},
	}
	for i := range scenarios {
		scenarios[i].given = append([]given{inMIG(h100A)}, scenarios[i].given...)
	}
	return scenarios
}
