package conformance

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

func migDestroyScenarios() []migScenario {
	scenarios := []migScenario{
		{
			name:  "an instance is removed with its compute instance",
			first: []migAction{create(h100A, mig3g, 4)},
			do:    destroy(h100A, mig3g, 4),
			again: true,
			then:  []migCheck{hasInstances(h100A), isInMIG(h100A, true), onlyChanged(h100A)},
		},
		{
			name:  "one that others made is removed as well",
			first: []migAction{somebodyCreates(h100A, mig2g, 4)},
			do:    destroy(h100A, mig2g, 4),
			again: true,
			then:  []migCheck{hasInstances(h100A)},
		},
		{
			name:  "one that is half made is removed",
			first: []migAction{somebodyHalfMakes(h100A, mig2g, 4)},
			do:    destroy(h100A, mig2g, 4),
			again: true,
			then:  []migCheck{hasInstances(h100A)},
		},
		{
			name:  "one that is not there is removed already",
			first: []migAction{create(h100A, mig1g, 0)},
			do:    destroy(h100A, mig1g, 1),
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:  "one that somebody removed in between is removed already",
			first: []migAction{create(h100A, mig1g, 0), somebodyDestroys(h100A, mig1g, 0)},
			do:    destroy(h100A, mig1g, 0),
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:  "another profile at the same start is not meant",
			first: []migAction{create(h100A, mig1gm, 0), create(h100A, mig3g, 4)},
			do:    each(destroy(h100A, mig1g, 0), destroy(h100A, mig2g, 4)),
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:   "one in use is kept, and the refusal names the process",
			first:  []migAction{create(h100A, mig3g, 4), startsIn("trainer", h100A, mig3g, 4)},
			do:     destroy(h100A, mig3g, 4),
			fails:  backend.InUse,
			naming: []string{"trainer"},
			then:   []migCheck{isWhole(h100A, mig3g, 4), keeps(h100A, at(mig3g, 4)), runsIn("trainer", h100A, mig3g, 4)},
		},
		{
			name:   "the refusal names every process in it",
			first:  []migAction{create(h100A, mig3g, 4), startsIn("trainer", h100A, mig3g, 4), startsIn("notebook", h100A, mig3g, 4)},
			do:     destroy(h100A, mig3g, 4),
			fails:  backend.InUse,
			naming: []string{"trainer", "notebook"},
		},
		{
			name:  "it goes once the process ended",
			first: []migAction{create(h100A, mig3g, 4), startsIn("trainer", h100A, mig3g, 4), ends("trainer")},
			do:    destroy(h100A, mig3g, 4),
			again: true,
			then:  []migCheck{hasInstances(h100A)},
		},
		{
			name:  "its place is free for others",
			first: []migAction{create(h100A, mig7g, 0), destroy(h100A, mig7g, 0)},
			do:    each(create(h100A, mig4g, 0), create(h100A, mig1gm, 6)),
			then:  []migCheck{hasInstances(h100A, at(mig4g, 0), at(mig1gm, 6))},
		},
		{
			name:  "ids are compared without case",
			first: []migAction{create(h100A, mig2g, 2)},
			do:    destroy(strings.ToUpper(h100A), mig2g, 2),
			then:  []migCheck{hasInstances(h100A)},
		},
		{
			name:  "a GPU that is not there is not found",
			do:    destroy(noCard, mig1g, 0),
			fails: backend.NotFound,
		},
	}
	for i := range scenarios {
		scenarios[i].given = append([]given{inMIG(h100A)}, scenarios[i].given...)
	}
	return append(scenarios, migScenario{
		name:  "without MIG mode every instance is removed already",
		do:    destroy(h100A, mig1g, 0),
		again: true,
		then:  []migCheck{nothingChanged},
	})
}
