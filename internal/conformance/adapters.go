package conformance

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func adapterScenarios() []scenario {
	scenarios := []scenario{
		{
			name: "an adapter is added to a VM that is off",
			do:   addAdapter(alpha),
			then: []check{hasAdapters(alpha, 1), hasAdapters(beta, 0), hasSeats(alpha, 0), isPinned(alpha, "")},
		},
		{
			name:  "Hyper-V takes a second adapter, each with its own id",
			first: []action{addAdapter(alpha)},
			do:    addAdapter(alpha),
			then: []check{hasAdapters(alpha, 2), onTheVM(alpha, func(t *testing.T, vm *gpu.VM) {
				if gpu.SameID(vm.PartitionAdapters[0].ID, vm.PartitionAdapters[1].ID) {
					t.Errorf("both adapters are called %s", vm.PartitionAdapters[0].ID)
				}
			})},
		},
		{
			name: "an adapter is pinned to a GPU",
			do:   addPinnedAdapter(alpha, gpuB),
			then: []check{isPinned(alpha, gpuB)},
		},
		{
			name: "a pin is found without case and shown as the host spells it",
			do:   addPinnedAdapter(alpha, strings.ToLower(gpuB)),
			then: []check{isPinned(alpha, gpuB)},
		},
		{
			name:   "a pin to a GPU that is not there is refused",
			do:     addPinnedAdapter(alpha, noGPU),
			fails:  backend.InvalidParameter,
			saying: []string{noGPU},
			then:   []check{hasAdapters(alpha, 0)},
		},
		{
			name:  "a pin to a dismounted GPU is refused",
			do:    addPinnedAdapter(alpha, gpuC),
			fails: backend.InvalidParameter,
			then:  []check{hasAdapters(alpha, 0)},
		},
		{
			name:  "more adapters than partitions can be configured",
			given: []given{hasOnly(gpuA), startsWithCount(gpuA, 1)},
			first: []action{addAdapter(alpha)},
			do:    addAdapter(beta),
			then:  []check{hasAdapters(alpha, 1), hasAdapters(beta, 1)},
		},
		{
			name:  "a generation 1 VM takes no adapter",
			given: []given{isGeneration1(alpha)},
			do:    addAdapter(alpha),
			fails: backend.InvalidParameter,
			then:  []check{hasAdapters(alpha, 0)},
		},
		{
			name:   "a policy that asks for secure devices refuses an adapter",
			given:  []given{policyRequires(yes(), nil)},
			do:     addAdapter(alpha),
			fails:  backend.AccessDenied,
			saying: []string{"not compliant with currently set group policy"},
			then:   []check{hasAdapters(alpha, 0)},
		},
		{
			name:  "a policy that asks for supported devices refuses an adapter",
			given: []given{policyRequires(nil, yes())},
			do:    addAdapter(alpha),
			fails: backend.AccessDenied,
			then:  []check{hasAdapters(alpha, 0)},
		},
		{
			name:  "a policy that is switched off refuses nothing",
			given: []given{policyRequires(no(), no())},
			do:    addAdapter(alpha),
			then:  []check{hasAdapters(alpha, 1)},
		},
		{
			name:  "a VM that is not there is not found",
			do:    addAdapter(noVM),
			fails: backend.NotFound,
		},
		{
			name:  "an adapter is removed",
			first: []action{addAdapter(alpha)},
			do:    removeAdapter(alpha, 0),
			then:  []check{hasAdapters(alpha, 0)},
		},
		{
			name:  "only the named adapter is removed",
			first: []action{addPinnedAdapter(alpha, gpuA), addPinnedAdapter(alpha, gpuB)},
			do:    removeAdapter(alpha, 0),
			then:  []check{isPinned(alpha, gpuB)},
		},
		{
			name:  "an adapter that is not there is removed already",
			first: []action{addAdapter(alpha)},
			do:    removeAdapterNamed(alpha, "00000000-0000-0000-0000-000000000000"),
			again: true,
			then:  []check{unchanged, hasAdapters(alpha, 1)},
		},
		{
			name:  "an adapter that is not there is removed already even from a VM that runs",
			first: []action{start(alpha)},
			do:    removeAdapterNamed(alpha, "00000000-0000-0000-0000-000000000000"),
			again: true,
			then:  []check{unchanged},
		},
		{
			name:  "a running VM keeps its adapter",
			first: []action{withPartition(alpha)},
			do:    removeAdapter(alpha, 0),
			fails: backend.InvalidState,
			then:  []check{hasAdapters(alpha, 1), hasSeats(alpha, 1)},
		},
		{
			name:  "a removed adapter asks for no partition at the next start",
			first: []action{withPartition(alpha), shutDown(alpha), removeAdapter(alpha, 0)},
			do:    start(alpha),
			then:  []check{isNow(alpha, gpu.VMRunning), hasSeats(alpha, 0)},
		},
	}
	for _, state := range []gpu.VMState{gpu.VMRunning, gpu.VMSaved, gpu.VMPaused, gpu.VMOther} {
		scenarios = append(scenarios, scenario{
			name:  "a VM that is " + string(state) + " takes no adapter",
			given: []given{isInState(alpha, state)},
			do:    addAdapter(alpha),
			fails: backend.InvalidState,
			then:  []check{hasAdapters(alpha, 0), isNow(alpha, state)},
		})
	}
	return scenarios
}
