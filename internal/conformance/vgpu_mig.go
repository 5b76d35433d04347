package conformance

import "github.com/gpufleet/terraform-provider-gpu/internal/backend"

// MIG-backed vGPUs need MIG mode, then virtual functions, then GPU instances, each of which
// takes one vGPU.
func vgpuMIGScenarios() []vgpuScenario {
	on := []vgpuAction{setMIG(h100V, true), setFunctions(h100V, true)}
	with := func(more ...vgpuAction) []vgpuAction { return append(append([]vgpuAction{}, on...), more...) }
	two := with(divide(h100V, mig1g, 0), divide(h100V, mig3g, 4), makeVGPU(h100V, onVF(h100half, 0)), makeVGPU(h100V, onVF(h100mig, 1)))
	return []vgpuScenario{
		{
			name:  "two sizes are beside each other, each in an instance of its own",
			first: with(divide(h100V, mig1g, 0), divide(h100V, mig1g, 1), divide(h100V, mig3g, 4)),
			do:    each(makeVGPU(h100V, onVF(h100half, 0)), makeVGPU(h100V, onVF(h100mig, 1)), makeVGPU(h100V, onVF(h100mig, 2))),
			again: true,
			then: []vgpuCheck{
				hasVGPUs(h100V, true, false, onVF(h100half, 0), onVF(h100mig, 1), onVF(h100mig, 2)),
				hasPlacements(h100V, true, at(mig1g, 0), at(mig1g, 1), at(mig3g, 4)), onlyVGPUsOf(h100V),
			},
		},
		{
			name:  "without an instance of the profile there is no room",
			first: with(divide(h100V, mig3g, 4)),
			do:    makeVGPU(h100V, onVF(h100mig, 0)),
			fails: backend.Insufficient,
		},
		{
			name:  "an instance takes one vGPU",
			first: two,
			do:    makeVGPU(h100V, onVF(h100mig, 2)),
			fails: backend.Insufficient,
		},
		{
			name:  "types that share the GPU by time slices are not in MIG mode",
			first: on,
			do:    makeVGPU(h100V, onVF(h100x40C, 0)),
			fails: backend.InvalidState,
		},
		{
			name:   "an instance stays while a vGPU lives in it",
			first:  two,
			do:     unite(h100V, mig3g, 4),
			fails:  backend.InUse,
			saying: []string{h100V},
		},
		{
			name:  "and goes with it",
			first: two,
			do:    each(removeVGPU(h100V, onVF(h100half, 0)), unite(h100V, mig3g, 4)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(h100V, true, false, onVF(h100mig, 1)), hasPlacements(h100V, true, at(mig1g, 0))},
		},
		{
			name:  "functions that are switched take the instances",
			first: with(divide(h100V, mig1g, 0)),
			do:    setFunctions(h100V, false),
			then:  []vgpuCheck{hasVGPUs(h100V, false, false), hasPlacements(h100V, true)},
		},
		{
			name: "all of it is taken back in the opposite order", first: two,
			do: each(removeVGPU(h100V, onVF(h100half, 0)), removeVGPU(h100V, onVF(h100mig, 1)), unite(h100V, mig1g, 0), unite(h100V, mig3g, 4),
				setFunctions(h100V, false), setMIG(h100V, false)),
			then: []vgpuCheck{hasVGPUs(h100V, false, false), hasPlacements(h100V, false), offersVGPUs(h100V), onlyVGPUsOf(h100V)},
		},
	}
}
