package conformance

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func countScenarios() []scenario {
	return []scenario{
		{
			name:  "a valid count is set",
			do:    setCount(gpuA, 8),
			again: true,
			then:  []check{hasCount(gpuA, 8), hasCount(gpuB, 4)},
		},
		{
			name: "more partitions are smaller",
			do:   setCount(gpuA, 16),
			then: []check{eachPartitionHas(gpuA, wholeVRAM/16)},
		},
		{
			name: "fewer partitions are larger",
			do:   setCount(gpuA, 2),
			then: []check{eachPartitionHas(gpuA, wholeVRAM/2)},
		},
		{
			name: "a single partition has everything",
			do:   setCount(gpuA, 1),
			then: []check{eachPartitionHas(gpuA, wholeVRAM), availableVRAM(gpuA, wholeVRAM)},
		},
		{
			name: "a resource without a limit has none at any count",
			do:   setCount(gpuA, 8),
			then: []check{onTheGPU(gpuA, func(t *testing.T, g *gpu.GPU) {
				if e := g.Partitionable.Encode; e.Min != noLimit || e.Total != noLimit || e.Available != noLimit {
					t.Errorf("encode is %+v", e)
				}
			})},
		},
		{
			name:  "rounding does not add up over changes",
			first: []action{setCount(gpuA, 16), setCount(gpuA, 8), setCount(gpuA, 16)},
			do:    setCount(gpuA, 4),
			then: []check{onTheGPU(gpuA, func(t *testing.T, g *gpu.GPU) {
				if c := g.Partitionable.Compute; c.Min != 25 || c.Max != 25 {
					t.Errorf("compute is %+v, want 25 for each of 4 as it was", c)
				}
			}), eachPartitionHas(gpuA, wholeVRAM/4)},
		},
		{
			name:  "the same count again is no change",
			do:    setCount(gpuA, 4),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "ids are compared without case",
			do:    setCount(strings.ToLower(gpuA), 8),
			again: true,
			then:  []check{hasCount(gpuA, 8)},
		},
		{
			name:   "a count that the driver does not offer is refused with those that it does",
			do:     setCount(gpuA, 3),
			fails:  backend.InvalidParameter,
			saying: []string{"1, 2, 4, 8, 16"},
			then:   []check{hasCount(gpuA, 4)},
		},
		{
			name:  "zero is no count",
			do:    setCount(gpuA, 0),
			fails: backend.InvalidParameter,
			then:  []check{hasCount(gpuA, 4)},
		},
		{
			name:  "a negative count is refused",
			do:    setCount(gpuA, -4),
			fails: backend.InvalidParameter,
		},
		{
			name:   "a partition in use keeps the count, and the refusal names the VM",
			given:  []given{hasOnly(gpuA)},
			first:  []action{withPartition(alpha)},
			do:     setCount(gpuA, 8),
			fails:  backend.InUse,
			saying: []string{"alpha"},
			then:   []check{hasCount(gpuA, 4), sitsOn(alpha, gpuA, 1)},
		},
		{
			name:   "the refusal names every VM that is in the way",
			given:  []given{hasOnly(gpuA)},
			first:  []action{withPartition(alpha), withPartition(beta)},
			do:     setCount(gpuA, 2),
			fails:  backend.InUse,
			saying: []string{"alpha", "beta"},
		},
		{
			name:  "the count that it has is no change even under a partition in use",
			given: []given{hasOnly(gpuA)},
			first: []action{withPartition(alpha)},
			do:    setCount(gpuA, 4),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "a partition in use on another GPU is no obstacle",
			first: []action{addPinnedAdapter(alpha, gpuA), start(alpha)},
			do:    setCount(gpuB, 8),
			then:  []check{hasCount(gpuB, 8), hasCount(gpuA, 4), sitsOn(alpha, gpuA, 1)},
		},
		{
			name:  "an adapter of a VM that is off is no obstacle",
			first: []action{addPinnedAdapter(alpha, gpuA)},
			do:    setCount(gpuA, 8),
			then:  []check{hasCount(gpuA, 8), hasAdapters(alpha, 1)},
		},
		{
			name:  "the count can be changed once the VM is off again",
			given: []given{hasOnly(gpuA)},
			first: []action{withPartition(alpha), shutDown(alpha)},
			do:    setCount(gpuA, 8),
			then:  []check{hasCount(gpuA, 8), eachPartitionHas(gpuA, wholeVRAM/8)},
		},
		{
			name:  "a VM that starts after the change has a partition of the new size",
			given: []given{hasOnly(gpuA)},
			first: []action{addAdapter(alpha), setCount(gpuA, 8)},
			do:    start(alpha),
			then: []check{onTheGPU(gpuA, func(t *testing.T, g *gpu.GPU) {
				if got := g.Partitionable.Partitions[0].VRAM; got != gpu.Bytes(wholeVRAM/8) {
					t.Errorf("the partition has %d bytes", got)
				}
			})},
		},
		{
			name:  "a paravirtual GPU has one count only",
			given: []given{isParavirtual(gpuA)},
			do:    setCount(gpuA, 4),
			fails: backend.InvalidParameter,
			then:  []check{hasCount(gpuA, 32), hasStatus(gpuA, gpu.Paravirtualization)},
		},
		{
			name:  "a dismounted GPU has no partitions to count",
			do:    setCount(gpuC, 4),
			fails: backend.NotSupported,
		},
		{
			name:  "a GPU that is not there is not found",
			do:    setCount(noGPU, 4),
			fails: backend.NotFound,
		},
	}
}
