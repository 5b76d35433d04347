package conformance

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Which GPU an adapter without a pin gets is Hyper-V's business and documented
// nowhere, so these scenarios ask only for what must be true of any placement.
func placementScenarios() []scenario {
	one := []given{hasOnly(gpuA), startsWithCount(gpuA, 1)}
	return []scenario{
		{
			name:  "an adapter gets a partition when the VM starts",
			first: []action{addAdapter(alpha)},
			do:    start(alpha),
			again: true,
			then:  []check{isNow(alpha, gpu.VMRunning), hasSeats(alpha, 1)},
		},
		{
			name:  "several adapters get several partitions",
			first: []action{addAdapter(alpha), addAdapter(alpha), addAdapter(alpha)},
			do:    start(alpha),
			then:  []check{hasSeats(alpha, 3)},
		},
		{
			name:  "a pinned adapter gets its GPU",
			first: []action{addPinnedAdapter(alpha, gpuB)},
			do:    start(alpha),
			then:  []check{sitsOn(alpha, gpuB, 1), sitsOn(alpha, gpuA, 0)},
		},
		{
			name:  "VMs get different partitions of one GPU",
			given: []given{hasOnly(gpuA)},
			first: []action{withPartition(alpha), withPartition(beta)},
			do:    withPartition(gamma),
			then:  []check{inUse(gpuA, 3), sitsOn(alpha, gpuA, 1), sitsOn(beta, gpuA, 1), sitsOn(gamma, gpuA, 1)},
		},
		{
			name:  "a partition in use is missing from what is available",
			given: []given{hasOnly(gpuA)},
			do:    withPartition(alpha),
			then:  []check{availableVRAM(gpuA, wholeVRAM/4*3)},
		},
		{
			name:  "a partition that is given back is available again",
			given: []given{hasOnly(gpuA)},
			first: []action{withPartition(alpha)},
			do:    turnOff(alpha),
			then:  []check{availableVRAM(gpuA, wholeVRAM), inUse(gpuA, 0)},
		},
		{
			name:  "the partition of a VM that went off is the next one's",
			given: []given{hasOnly(gpuA)},
			first: []action{withPartition(alpha), withPartition(beta), turnOff(alpha)},
			do:    withPartition(gamma),
			then:  []check{hasSeats(gamma, 1), hasSeats(alpha, 0), hasSeats(beta, 1)},
		},
		{
			name:  "a full GPU keeps a pinned VM off while another GPU is empty",
			given: []given{startsWithCount(gpuA, 1)},
			first: []action{addPinnedAdapter(alpha, gpuA), start(alpha), addPinnedAdapter(beta, gpuA)},
			do:    start(beta),
			fails: backend.Insufficient,
			then:  []check{isNow(beta, gpu.VMOff), hasSeats(beta, 0), hasSeats(alpha, 1)},
		},
		{
			name:  "a full GPU sends an adapter without a pin to the other one",
			given: []given{startsWithCount(gpuA, 1), startsWithCount(gpuB, 1)},
			first: []action{addPinnedAdapter(alpha, gpuA), start(alpha)},
			do:    withPartition(beta),
			then:  []check{sitsOn(beta, gpuB, 1)},
		},
		{
			name:   "a VM stays off when no partition is free",
			given:  one,
			first:  []action{withPartition(alpha), addAdapter(beta)},
			do:     start(beta),
			fails:  backend.Insufficient,
			saying: []string{"0x800705AA"},
			then:   []check{isNow(beta, gpu.VMOff), hasAdapters(beta, 1), isNow(alpha, gpu.VMRunning)},
		},
		{
			name:  "a VM that wants two partitions does not start with one",
			given: one,
			first: []action{addAdapter(alpha), addAdapter(alpha)},
			do:    start(alpha),
			fails: backend.Insufficient,
			then:  []check{isNow(alpha, gpu.VMOff), inUse(gpuA, 0), availableVRAM(gpuA, wholeVRAM)},
		},
		{
			name:  "a VM without an adapter starts on a full host",
			given: one,
			first: []action{withPartition(alpha)},
			do:    start(beta),
			then:  []check{isNow(beta, gpu.VMRunning), hasSeats(beta, 0)},
		},
		{
			name:  "a host whose GPUs are all dismounted starts no VM with an adapter",
			given: []given{hasOnly(gpuC)},
			first: []action{addAdapter(alpha)},
			do:    start(alpha),
			fails: backend.Insufficient,
			then:  []check{isNow(alpha, gpu.VMOff)},
		},
		{
			name:  "a GPU that does not work gives no partitions",
			given: []given{hasOnly(gpuA), onGPU(gpuA, func(g *gpu.GPU) { g.Problem = "CM_PROB_FAILED_POST_START (43)" })},
			first: []action{addAdapter(alpha)},
			do:    start(alpha),
			fails: backend.Insufficient,
			then:  []check{hasSeats(alpha, 0)},
		},
		{
			name:  "a pinned GPU that was dismounted keeps the VM off",
			first: []action{addPinnedAdapter(alpha, gpuA), dismountByForce(gpuA)},
			do:    start(alpha),
			fails: backend.Insufficient,
			then:  []check{isNow(alpha, gpu.VMOff), isPinned(alpha, gpuA)},
		},
		{
			name:  "a virtual function has another identity than its neighbour's",
			given: []given{hasOnly(gpuA)},
			first: []action{withPartition(alpha)},
			do:    withPartition(beta),
			then: []check{onTheGPU(gpuA, func(t *testing.T, g *gpu.GPU) {
				parts := g.Partitionable.Partitions
				if len(parts) != 2 || parts[0].VFLUID == parts[1].VFLUID {
					t.Errorf("the partitions are %+v", parts)
				}
			})},
		},
	}
}
