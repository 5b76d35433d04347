package conformance

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func quotaScenarios() []scenario {
	fitting := vramQuota(wholeVRAM/8, wholeVRAM/8, wholeVRAM/4)
	tooLarge := vramQuota(wholeVRAM/2, wholeVRAM/2, wholeVRAM/2)
	limit := noLimit
	unlimited := gpu.Quotas{Encode: gpu.Quota{Max: &limit, Optimal: &limit}}

	return []scenario{
		{
			name: "an adapter is added with quotas",
			do:   addAdapterWithQuotas(alpha, fitting),
			then: []check{hasQuotas(alpha, fitting)},
		},
		{
			name:  "quotas are set later",
			first: []action{addAdapter(alpha)},
			do:    setQuotas(alpha, fitting),
			again: true,
			then:  []check{hasQuotas(alpha, fitting)},
		},
		{
			name:  "new quotas replace the old ones as a whole",
			first: []action{addAdapterWithQuotas(alpha, fitting)},
			do:    setQuotas(alpha, unlimited),
			again: true,
			then:  []check{hasQuotas(alpha, unlimited)},
		},
		{
			name:  "quotas are taken away",
			first: []action{addAdapterWithQuotas(alpha, fitting)},
			do:    setQuotas(alpha, gpu.Quotas{}),
			again: true,
			then:  []check{hasQuotas(alpha, gpu.Quotas{})},
		},
		{
			name:  "a minimum above the optimum is refused",
			first: []action{addAdapter(alpha)},
			do:    setQuotas(alpha, vramQuota(3, 2, 4)),
			fails: backend.InvalidParameter,
			then:  []check{hasQuotas(alpha, gpu.Quotas{})},
		},
		{
			name:  "an optimum above the maximum is refused",
			first: []action{addAdapter(alpha)},
			do:    setQuotas(alpha, vramQuota(1, 5, 4)),
			fails: backend.InvalidParameter,
			then:  []check{hasQuotas(alpha, gpu.Quotas{})},
		},
		{
			name:  "a VRAM quota has a limit",
			do:    addAdapterWithQuotas(alpha, vramQuota(0, 0, noLimit)),
			fails: backend.InvalidParameter,
			then:  []check{hasAdapters(alpha, 0)},
		},
		{
			name:  "a running VM keeps its quotas",
			first: []action{addAdapterWithQuotas(alpha, fitting), start(alpha)},
			do:    setQuotas(alpha, unlimited),
			fails: backend.InvalidState,
			then:  []check{hasQuotas(alpha, fitting), hasSeats(alpha, 1)},
		},
		{
			name:  "the quotas that a running VM has are no change",
			first: []action{addAdapterWithQuotas(alpha, fitting), start(alpha)},
			do:    setQuotas(alpha, fitting),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "the quotas of an adapter that is not there cannot be set",
			do:    setQuotasOf(alpha, "00000000-0000-0000-0000-000000000000", fitting),
			fails: backend.NotFound,
		},
		{
			name:  "a VM with fitting quotas starts",
			first: []action{addAdapterWithQuotas(alpha, fitting)},
			do:    start(alpha),
			then:  []check{isNow(alpha, gpu.VMRunning), hasSeats(alpha, 1)},
		},
		{
			name: "quotas above every partition can be stored",
			do:   addAdapterWithQuotas(alpha, tooLarge),
			then: []check{hasQuotas(alpha, tooLarge)},
		},
		{
			name:   "a VM whose quotas are above every partition does not start",
			first:  []action{addAdapterWithQuotas(alpha, tooLarge)},
			do:     start(alpha),
			fails:  backend.Insufficient,
			saying: []string{"0x800705AA"},
			then:   []check{isNow(alpha, gpu.VMOff), hasSeats(alpha, 0)},
		},
		{
			name:  "quotas that became too large keep the VM off after a count change",
			given: []given{hasOnly(gpuA)},
			first: []action{addAdapterWithQuotas(alpha, vramQuota(wholeVRAM/4, wholeVRAM/4, wholeVRAM/4)), setCount(gpuA, 8)},
			do:    start(alpha),
			fails: backend.Insufficient,
			then:  []check{isNow(alpha, gpu.VMOff), hasCount(gpuA, 8)},
		},
		{
			name:  "a VM with large quotas gets the GPU with large partitions",
			given: []given{startsWithCount(gpuB, 2)},
			first: []action{addAdapterWithQuotas(alpha, tooLarge)},
			do:    start(alpha),
			then:  []check{sitsOn(alpha, gpuB, 1)},
		},
		{
			name:  "no limit is no demand",
			first: []action{addAdapterWithQuotas(alpha, unlimited)},
			do:    start(alpha),
			then:  []check{isNow(alpha, gpu.VMRunning), hasSeats(alpha, 1)},
		},
	}
}
