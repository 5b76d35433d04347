package conformance

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

func migCreateScenarios() []migScenario {
	scenarios := []migScenario{
		{
			name:  "an instance is made at its start, with a compute instance that fills it",
			do:    create(h100A, mig3g, 4),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig3g, 4)), isWhole(h100A, mig3g, 4), onlyChanged(h100A)},
		},
		{
			name: "every profile is made at every start",
			do:   createEverywhere(h100A),
			then: []migCheck{nothingChanged},
		},
		{
			name:  "ids are compared without case",
			do:    create(strings.ToUpper(h100A), mig2g, 2),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig2g, 2))},
		},
		{
			name:  "Ampere makes them as well",
			do:    create(a100, mig2g, 2),
			again: true,
			then:  []migCheck{hasInstances(a100, at(mig2g, 2)), isWhole(a100, mig2g, 2)},
		},
		{
			name:  "one that is there is left alone, even in use",
			first: []migAction{somebodyCreates(h100A, mig3g, 4), startsIn("trainer", h100A, mig3g, 4)},
			do:    create(h100A, mig3g, 4),
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:  "one that is half made is completed",
			first: []migAction{somebodyHalfMakes(h100A, mig3g, 4)},
			do:    create(h100A, mig3g, 4),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig3g, 4)), isWhole(h100A, mig3g, 4)},
		},
		{
			name:  "one of which somebody took a part is filled",
			first: []migAction{somebodyDivides(h100A, mig3g, 4, 1)},
			do:    create(h100A, mig3g, 4),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig3g, 4)), isWhole(h100A, mig3g, 4), onlyChanged(h100A)},
		},
		{
			name:   "but not under a process",
			first:  []migAction{somebodyDivides(h100A, mig3g, 4, 1), startsIn("trainer", h100A, mig3g, 4)},
			do:     create(h100A, mig3g, 4),
			fails:  backend.InUse,
			saying: []string{"trainer"},
			then:   []migCheck{nothingChanged},
		},
		{
			name:  "so is one with media extensions",
			first: []migAction{somebodyHalfMakes(h100A, mig1gm, 6)},
			do:    create(h100A, mig1gm, 6),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig1gm, 6)), isWhole(h100A, mig1gm, 6)},
		},
		{
			name: "a large and two small ones leave room for a fourth when each has its start",
			// Left to the driver, the 3g takes 0, the 2g 4 and the first 1g 6, and there is
			// no place for the second 1g: nothing but halves and quarters reaches slice 7.
			do:    each(create(h100A, mig1g, 2), create(h100A, mig1g, 3), create(h100A, mig2g, 0), create(h100A, mig3g, 4)),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig2g, 0), at(mig1g, 2), at(mig1g, 3), at(mig3g, 4))},
		},
		{
			name:  "seven small ones are made",
			do:    sevenSmall(h100A),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig1g, 0), at(mig1g, 1), at(mig1g, 2), at(mig1g, 3), at(mig1g, 4), at(mig1g, 5), at(mig1g, 6))},
		},
		{
			name:  "two halves of unlike compute are made",
			do:    each(create(h100A, mig3g, 4), create(h100A, mig4g, 0)),
			again: true,
			then:  []migCheck{hasInstances(h100A, at(mig4g, 0), at(mig3g, 4))},
		},
		{
			name:  "media extensions go with plain instances",
			first: []migAction{create(h100A, mig1gm, 0)},
			do:    each(create(h100A, mig1g, 1), create(h100A, mig2g, 2), create(h100A, mig3g, 4)),
			again: true,
			then:  []migCheck{keeps(h100A, at(mig1gm, 0)), hasInstances(h100A, at(mig1gm, 0), at(mig1g, 1), at(mig2g, 2), at(mig3g, 4))},
		},
	}
	scenarios = append(scenarios, migCreateRefusals()...)
	for i := range scenarios {
		scenarios[i].given = append([]given{inMIG(h100A, a100)}, scenarios[i].given...)
	}
	return append(scenarios, migCreateOutsideOfMode()...)
}

func migCreateRefusals() []migScenario {
	return []migScenario{
		{
			name:   "a place that is taken is refused, saying by what",
			first:  []migAction{create(h100A, mig2g, 4)},
			do:     create(h100A, mig1g, 4),
			fails:  backend.Insufficient,
			saying: []string{mig2g},
		},
		{
			name:   "a place of which a part is taken is refused",
			first:  []migAction{create(h100A, mig1g, 0), somebodyCreates(h100A, mig1gd, 6)},
			do:     create(h100A, mig3g, 4),
			fails:  backend.Insufficient,
			saying: []string{mig1gd},
		},
		{
			name:  "a place inside a larger one is refused",
			first: []migAction{create(h100A, mig7g, 0)},
			do:    create(h100A, mig1g, 6),
			fails: backend.Insufficient,
		},
		{
			name:  "another profile of the same size is another instance",
			first: []migAction{create(h100A, mig3g, 0)},
			do:    create(h100A, mig4g, 0),
			fails: backend.Insufficient,
		},
		{
			name:  "media extensions are there once",
			first: []migAction{create(h100A, mig1gm, 0)},
			do:    create(h100A, mig1gm, 1),
			fails: backend.Insufficient,
		},
		{
			name:   "a profile that the GPU does not offer is refused with those that it does",
			do:     create(h100A, "1g.5gb", 0),
			fails:  backend.InvalidParameter,
			saying: []string{"1g.5gb", mig1g, mig7g},
		},
		{
			name:   "a start that the profile does not have is refused with those that it has",
			do:     create(h100A, mig3g, 2),
			fails:  backend.InvalidParameter,
			saying: []string{"0, 4"},
		},
		{
			name:  "the last slice is no start of a small one",
			do:    create(h100A, mig1g, 7),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a negative start is refused",
			do:    create(h100A, mig1g, -1),
			fails: backend.InvalidParameter,
		},
		{
			name:  "a GPU that is not there is not found",
			do:    create(noCard, mig1g, 0),
			fails: backend.NotFound,
		},
	}
}

func migCreateOutsideOfMode() []migScenario {
	return []migScenario{
		{
			name:   "without MIG mode there are no instances",
			do:     create(h100A, mig1g, 0),
			fails:  backend.InvalidState,
			saying: []string{"MIG mode"},
		},
		{
			name:   "nor with one that waits for a reset",
			given:  []given{waitsForReset(a100)},
			do:     create(a100, mig1g, 0),
			fails:  backend.InvalidState,
			saying: []string{"reset"},
		},
		{
			name:  "a GPU without MIG has no instances",
			do:    create(l40s, mig1g, 0),
			fails: backend.NotSupported,
		},
		{
			name: "instances are made in a mode that was just turned on",
			do:   each(setMode(h100A, true), create(h100A, mig4g, 0), create(h100A, mig2g, 4)),
			then: []migCheck{hasInstances(h100A, at(mig4g, 0), at(mig2g, 4)), isWhole(h100A, mig4g, 0), isWhole(h100A, mig2g, 4)},
		},
		{
			name: "and on Ampere after its reset",
			do:   each(setModeByReset(a100, true), create(a100, mig4g, 0), create(a100, mig1gm, 6)),
			then: []migCheck{hasInstances(a100, at(mig4g, 0), at(mig1gm, 6))},
		},
	}
}

// createEverywhere makes each possible instance of a GPU, looks at it and removes it.
func createEverywhere(gpuID string) migAction {
	return func(ctx context.Context, b *migBench) error {
		for _, p := range profiles80GB() {
			for _, start := range p.Starts {
				if err := create(gpuID, p.Name, start)(ctx, b); err != nil {
					return err
				}
				host, err := b.MIG().Inventory(ctx)
				if err != nil {
					return err
				}
				saneMIG(b.t, host)
				if _, err := uuidOf(&host, gpuID, at(p.Name, start)); err != nil {
					return fmt.Errorf("made at another place: %w", err)
				}
				if err := destroy(gpuID, p.Name, start)(ctx, b); err != nil {
					return err
				}
			}
		}
		return nil
	}
}
