package conformance

import (
	"context"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What is not named in a call stays as it is: the same ids, the same UUIDs, at work.
func migNeighbourScenarios() []migScenario {
	scenarios := []migScenario{
		{
			name:  "one that is made leaves the others",
			first: []migAction{create(h100A, mig3g, 0), create(h100A, mig1g, 4), startsIn("trainer", h100A, mig3g, 0)},
			do:    create(h100A, mig1g, 5),
			again: true,
			then: []migCheck{
				keeps(h100A, at(mig3g, 0), at(mig1g, 4)), hasInstances(h100A, at(mig3g, 0), at(mig1g, 4), at(mig1g, 5)),
				runsIn("trainer", h100A, mig3g, 0), onlyChanged(h100A),
			},
		},
		{
			name:  "one that is removed leaves the others",
			first: []migAction{sevenSmall(h100A), startsIn("trainer", h100A, mig1g, 2), startsIn("notebook", h100A, mig1g, 4)},
			do:    destroy(h100A, mig1g, 3),
			again: true,
			then: []migCheck{
				keeps(h100A, at(mig1g, 0), at(mig1g, 1), at(mig1g, 2), at(mig1g, 4), at(mig1g, 5), at(mig1g, 6)),
				runsIn("trainer", h100A, mig1g, 2), runsIn("notebook", h100A, mig1g, 4), onlyChanged(h100A),
			},
		},
		{
			name:  "small ones give way to a large one beside one at work",
			first: []migAction{sevenSmall(h100A), startsIn("trainer", h100A, mig1g, 0)},
			do: each(destroy(h100A, mig1g, 4), destroy(h100A, mig1g, 5), destroy(h100A, mig1g, 6),
				create(h100A, mig3g, 4), destroy(h100A, mig1g, 2), destroy(h100A, mig1g, 3), create(h100A, mig2g, 2)),
			then: []migCheck{
				keeps(h100A, at(mig1g, 0), at(mig1g, 1)), runsIn("trainer", h100A, mig1g, 0),
				hasInstances(h100A, at(mig1g, 0), at(mig1g, 1), at(mig2g, 2), at(mig3g, 4)), onlyChanged(h100A),
			},
		},
		{
			name:  "one that is half made is not completed by the way",
			first: []migAction{somebodyHalfMakes(h100A, mig2g, 0)},
			do:    create(h100A, mig3g, 4),
			then:  []migCheck{isHalf(h100A, mig2g, 0), keeps(h100A, at(mig2g, 0)), isWhole(h100A, mig3g, 4)},
		},
		{
			name:  "a process of the neighbour is no obstacle",
			first: []migAction{create(h100A, mig3g, 0), create(h100A, mig3g, 4), startsIn("trainer", h100A, mig3g, 0)},
			do:    destroy(h100A, mig3g, 4),
			again: true,
			then:  []migCheck{keeps(h100A, at(mig3g, 0)), hasInstances(h100A, at(mig3g, 0))},
		},
		{
			name:  "one that is refused leaves the others",
			first: []migAction{create(h100A, mig3g, 0), create(h100A, mig1g, 4)},
			do:    create(h100A, mig7g, 0),
			fails: backend.Insufficient,
			then:  []migCheck{keeps(h100A, at(mig3g, 0), at(mig1g, 4))},
		},
		{
			name:  "other GPUs with the same instances are others",
			first: []migAction{create(h100A, mig3g, 0), create(h100B, mig3g, 0), create(a100, mig3g, 0)},
			do:    destroy(h100B, mig3g, 0),
			then:  []migCheck{hasInstances(h100B), keeps(h100A, at(mig3g, 0)), keeps(a100, at(mig3g, 0)), onlyChanged(h100B)},
		},
		{
			name:  "one that is made again is another",
			first: []migAction{create(h100A, mig3g, 0)},
			do:    each(destroy(h100A, mig3g, 0), create(h100A, mig3g, 0)),
			then:  []migCheck{isAnother(h100A, mig3g, 0)},
		},
		{
			name:  "one that others made again is another",
			first: []migAction{create(h100A, mig3g, 0)},
			do:    each(somebodyDestroys(h100A, mig3g, 0), somebodyCreates(h100A, mig3g, 0)),
			then:  []migCheck{isAnother(h100A, mig3g, 0)},
		},
		{
			name: "ids come back, UUIDs do not",
			do:   makeAgain(h100A, at(mig2g, 2)),
			then: []migCheck{nothingChanged},
		},
	}
	for i := range scenarios {
		scenarios[i].given = append([]given{inMIG(h100A, h100B, a100)}, scenarios[i].given...)
	}
	return scenarios
}

// instanceIDs is how many ids of GPU instances a GPU has: 0 to 14.
const instanceIDs = 15

// makeAgain makes and removes an instance more often than there are ids.
func makeAgain(gpuID string, p gpu.MIGPlacement) migAction {
	return func(ctx context.Context, b *migBench) error {
		ids, uuids := map[int]bool{}, map[string]bool{}
		for range instanceIDs + 1 {
			if err := b.MIG().CreateInstance(ctx, gpuID, p); err != nil {
				return err
			}
			host, err := b.MIG().Inventory(ctx)
			if err != nil {
				return err
			}
			uuid, err := uuidOf(&host, gpuID, p)
			if err != nil {
				return err
			}
			if uuids[uuid] {
				return fmt.Errorf("the UUID %s came back", uuid)
			}
			i, _ := instanceAt(&host, gpuID, p)
			ids[i.ID], uuids[uuid] = true, true
			if err := b.MIG().DestroyInstance(ctx, gpuID, p); err != nil {
				return err
			}
		}
		if len(ids) > instanceIDs {
			return fmt.Errorf("there were %d ids, of which a GPU has %d", len(ids), instanceIDs)
		}
		return nil
	}
}
