package conformance

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const itself = gpu.Itself

func vgpuCreateScenarios() []vgpuScenario {
	on := []vgpuAction{setFunctions(l40sV, true)}
	with := func(more ...vgpuAction) []vgpuAction { return append(append([]vgpuAction{}, on...), more...) }
	return []vgpuScenario{
		{
			name:  "a vGPU is made on a function",
			first: on,
			do:    makeVGPU(l40sV, onVF(l40s12Q, 3)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false, onVF(l40s12Q, 3)), isHeldBy("", l40sV, onVF(l40s12Q, 3)), onlyVGPUsOf(l40sV)},
		},
		{
			name:  "vendor-specific VFIO has no use for a UUID",
			first: on,
			do:    makeVGPU(l40sV, mdev(l40s12Q, 3, mdevA)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false, onVF(l40s12Q, 3))},
		},
		{
			name:  "a mediated device on a function keeps its UUID",
			first: []vgpuAction{setFunctions(a40, true)},
			do:    makeVGPU(a40, mdev(a40x4Q, 2, mdevA)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(a40, true, false, mdev(a40x4Q, 2, mdevA)), onlyVGPUsOf(a40)},
		},
		{
			name:  "mediated devices on the GPU itself as well",
			do:    each(makeVGPU(p40, mdev(p40x4Q, itself, mdevA)), makeVGPU(p40, mdev(p40x4Q, itself, mdevB))),
			again: true,
			then:  []vgpuCheck{hasVGPUs(p40, false, false, mdev(p40x4Q, itself, mdevA), mdev(p40x4Q, itself, mdevB))},
		},
		{
			name:  "one that is there is left alone, even held",
			first: with(somebodyMakesVGPU(l40sV, onVF(l40s12Q, 3)), holds("web-01", l40sV, onVF(l40s12Q, 3))),
			do:    makeVGPU(l40sV, onVF(l40s12Q, 3)),
			again: true,
			then:  []vgpuCheck{noVGPUChanged},
		},
		{
			name:  "a GPU is filled",
			first: on,
			do: each(makeVGPU(l40sV, onVF(l40s12Q, 0)), makeVGPU(l40sV, onVF(l40s12Q, 1)), makeVGPU(l40sV, onVF(l40s12Q, 2)),
				makeVGPU(l40sV, onVF(l40s12Q, 3))),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false, onVF(l40s12Q, 0), onVF(l40s12Q, 1), onVF(l40s12Q, 2), onVF(l40s12Q, 3))},
		},
		{
			name:   "and takes no more then",
			first:  with(makeVGPU(l40sV, onVF(l40s24Q, 0)), makeVGPU(l40sV, onVF(l40s24Q, 1))),
			do:     makeVGPU(l40sV, onVF(l40s24Q, 2)),
			fails:  backend.Insufficient,
			saying: []string{l40sV, l40s24Q},
		},
		{
			name:  "series mix when the size is the same",
			first: with(makeVGPU(l40sV, onVF(l40s12Q, 0))),
			do:    makeVGPU(l40sV, onVF(l40s12C, 1)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false, onVF(l40s12Q, 0), onVF(l40s12C, 1))},
		},
		{
			name:  "sizes do not mix without the mode for it",
			first: with(makeVGPU(l40sV, onVF(l40s12Q, 0))),
			do:    makeVGPU(l40sV, onVF(l40s24Q, 1)),
			fails: backend.Insufficient,
		},
		{
			name:  "sizes mix with it",
			first: with(setMixed(l40sV, true), makeVGPU(l40sV, onVF(l40s24Q, 0))),
			do:    makeVGPU(l40sV, onVF(l40s12Q, 1)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, true, onVF(l40s24Q, 0), onVF(l40s12Q, 1))},
		},
		{
			name:   "a function takes one vGPU",
			first:  with(makeVGPU(l40sV, onVF(l40s12Q, 0))),
			do:     makeVGPU(l40sV, onVF(l40s12C, 0)),
			fails:  backend.InUse,
			saying: []string{l40s12Q},
		},
		{
			name:  "a UUID is that of one mediated device",
			first: []vgpuAction{makeVGPU(p40, mdev(p40x4Q, itself, mdevA)), setFunctions(a40, true)},
			do:    makeVGPU(a40, mdev(a40x4Q, 0, mdevA)),
			fails: backend.InUse,
		},
		{
			name:  "a mediated device needs a UUID",
			do:    makeVGPU(p40, mdev(p40x4Q, itself, "")),
			fails: backend.InvalidParameter,
		},
		{
			name:   "a type that the GPU does not offer is refused, with those that it does",
			first:  on,
			do:     makeVGPU(l40sV, onVF(a40x4Q, 0)),
			fails:  backend.InvalidParameter,
			saying: []string{a40x4Q, l40s2Q, l40s48Q},
		},
		{
			name:  "while the functions are off there is no place",
			do:    makeVGPU(l40sV, onVF(l40s12Q, 0)),
			fails: backend.InvalidState,
		},
		{
			name:  "a function that is not there is refused",
			first: on,
			do:    makeVGPU(l40sV, onVF(l40s12Q, functions)),
			fails: backend.NotFound,
		},
	}
}

func vgpuRemoveScenarios() []vgpuScenario {
	two := []vgpuAction{setFunctions(l40sV, true), makeVGPU(l40sV, onVF(l40s12Q, 0)), makeVGPU(l40sV, onVF(l40s12Q, 1))}
	with := func(more ...vgpuAction) []vgpuAction { return append(append([]vgpuAction{}, two...), more...) }
	return []vgpuScenario{
		{
			name:  "a vGPU is removed, and the others stay",
			first: with(holds("web-01", l40sV, onVF(l40s12Q, 1))),
			do:    removeVGPU(l40sV, onVF(l40s12Q, 0)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false, onVF(l40s12Q, 1)), isHeldBy("web-01", l40sV, onVF(l40s12Q, 1)), onlyVGPUsOf(l40sV)},
		},
		{
			name:  "a mediated device is removed by its UUID",
			first: []vgpuAction{makeVGPU(p40, mdev(p40x4Q, itself, mdevA)), makeVGPU(p40, mdev(p40x4Q, itself, mdevB))},
			do:    removeVGPU(p40, mdev(p40x4Q, itself, mdevA)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(p40, false, false, mdev(p40x4Q, itself, mdevB))},
		},
		{
			name:  "one that somebody removed is gone already",
			first: with(somebodyRemovesVGPU(l40sV, onVF(l40s12Q, 0))),
			do:    removeVGPU(l40sV, onVF(l40s12Q, 0)),
			again: true,
			then:  []vgpuCheck{noVGPUChanged},
		},
		{
			name:   "one that a VM holds stays, and the VM is named",
			first:  with(holds("web-01", l40sV, onVF(l40s12Q, 0))),
			do:     removeVGPU(l40sV, onVF(l40s12Q, 0)),
			fails:  backend.InUse,
			saying: []string{l40sV, "web-01"},
		},
		{
			name:   "a mediated device that a VM holds stays as well",
			first:  []vgpuAction{setFunctions(a40, true), makeVGPU(a40, mdev(a40x24Q, 0, mdevA)), holds("web-01", a40, mdev(a40x24Q, 0, mdevA))},
			do:     removeVGPU(a40, mdev(a40x24Q, 0, mdevA)),
			fails:  backend.InUse,
			saying: []string{a40, "web-01"},
		},
		{
			name:  "it is removed once the VM is off",
			first: with(holds("web-01", l40sV, onVF(l40s12Q, 0)), releases(l40sV, onVF(l40s12Q, 0))),
			do:    removeVGPU(l40sV, onVF(l40s12Q, 0)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false, onVF(l40s12Q, 1))},
		},
		{
			name:   "what somebody else put there stays",
			first:  with(somebodyRemovesVGPU(l40sV, onVF(l40s12Q, 0)), somebodyMakesVGPU(l40sV, onVF(l40s12C, 0))),
			do:     removeVGPU(l40sV, onVF(l40s12Q, 0)),
			fails:  backend.InUse,
			saying: []string{l40s12C},
		},
		{
			name: "where the functions are off there is nothing to remove",
			do:   removeVGPU(l40sV, onVF(l40s12Q, 0)),
			then: []vgpuCheck{noVGPUChanged},
		},
	}
}

// A VM that is off has nothing open. Who asks before a vGPU is removed is told of it, since neither the
// driver nor libvirt minds.
func vgpuDefinitionScenarios() []vgpuScenario {
	all := []vgpuAction{
		setFunctions(l40sV, true), makeVGPU(l40sV, onVF(l40s12Q, 0)), makeVGPU(l40sV, onVF(l40s12Q, 1)),
		setFunctions(a40, true), makeVGPU(a40, mdev(a40x4Q, 2, mdevA)), makeVGPU(p40, mdev(p40x4Q, itself, mdevB)),
	}
	with := func(more ...vgpuAction) []vgpuAction { return slices.Concat(all, more) }
	named := []vgpuAction{
		defines("web-01", gpu.VMOff, l40sV, onVF(l40s12Q, 0)), defines("web-02", gpu.VMSaved, a40, mdev(a40x4Q, 2, mdevA)),
		defines("web-03", gpu.VMOff, p40, mdev(p40x4Q, itself, mdevB)),
	}
	are := []vgpuCheck{
		isNamedBy(l40sV, onVF(l40s12Q, 0), "VM web-01 (off)"), isNamedBy(l40sV, onVF(l40s12Q, 1)),
		isNamedBy(a40, mdev(a40x4Q, 2, mdevA), "VM web-02 (saved)"), isNamedBy(p40, mdev(p40x4Q, itself, mdevB), "VM web-03 (off)"),
		isHeldBy("", l40sV, onVF(l40s12Q, 0)),
	}
	return []vgpuScenario{
		{name: "vGPUs that VMs which are off name", first: with(named...), do: lookAtVGPU, then: are},
		{
			name:  "they name them after a reboot as well",
			first: with(named...),
			do:    each(append([]vgpuAction{rebootVGPU}, all...)...),
			then:  append(are, noVGPUChanged),
		},
		{
			name:  "several VMs may name one, beside the one that runs with it",
			first: with(defines("web-02", gpu.VMOff, l40sV, onVF(l40s12Q, 0)), defines("web-01", gpu.VMOff, l40sV, onVF(l40s12Q, 0))),
			do:    holds("web-03", l40sV, onVF(l40s12Q, 0)),
			then: []vgpuCheck{
				isNamedBy(l40sV, onVF(l40s12Q, 0), "VM web-01 (off)", "VM web-02 (off)"), isHeldBy("web-03", l40sV, onVF(l40s12Q, 0)),
			},
		},
		{
			name:  "a VM that is no more names nothing",
			first: with(named...),
			do:    undefines("web-01"),
			then:  []vgpuCheck{isNamedBy(l40sV, onVF(l40s12Q, 0)), isNamedBy(a40, mdev(a40x4Q, 2, mdevA), "VM web-02 (saved)")},
		},
		{
			name:  "the driver removes a vGPU that is only named",
			first: with(named...),
			do:    each(removeVGPU(l40sV, onVF(l40s12Q, 0)), removeVGPU(a40, mdev(a40x4Q, 2, mdevA))),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false, onVF(l40s12Q, 1)), hasVGPUs(a40, true, false)},
		},
		{
			name:  "a function that a VM with managed='yes' took, and one without a driver",
			first: with(named...),
			do:    each(takes("vfio-pci", l40sV, onVF(l40s12Q, 0)), takes("", l40sV, onVF(l40s12Q, 1))),
			then: []vgpuCheck{
				hasVGPUs(l40sV, true, false), hasTaken(a40),
				hasTaken(l40sV, "virtual function 0 is bound to vfio-pci in place of NVIDIA's driver, by VM web-01 (off)",
					"virtual function 1 is without a driver"),
			},
		},
		{
			name:  "no vGPU is made there",
			first: with(takes("vfio-pci", l40sV, onVF(l40s12Q, 0))),
			do:    makeVGPU(l40sV, onVF(l40s12Q, 0)),
			fails: backend.InvalidState, saying: []string{l40sV, "virtual function", "vfio-pci"},
		},
		{
			name:  "a reboot gives it back",
			first: with(takes("vfio-pci", l40sV, onVF(l40s12Q, 0))),
			do:    each(append([]vgpuAction{rebootVGPU}, all...)...),
			then:  []vgpuCheck{hasTaken(l40sV), hasVGPUs(l40sV, true, false, onVF(l40s12Q, 0), onVF(l40s12Q, 1))},
		},
		{
			name:  "and makes another one there, which is the VM's",
			first: with(append(named, removeVGPU(l40sV, onVF(l40s12Q, 0)))...),
			do:    makeVGPU(l40sV, onVF(l40s12C, 0)),
			then:  []vgpuCheck{isNamedBy(l40sV, onVF(l40s12C, 0), "VM web-01 (off)")},
		},
	}
}

// All of it ends with a reboot.
func vgpuRebootScenarios() []vgpuScenario {
	mixed := []vgpuAction{
		setFunctions(l40sV, true), setMixed(l40sV, true), makeVGPU(l40sV, onVF(l40s24Q, 0)), makeVGPU(l40sV, onVF(l40s12Q, 1)),
		setFunctions(a40, true), makeVGPU(a40, mdev(a40x4Q, 2, mdevA)), makeVGPU(p40, mdev(p40x4Q, itself, mdevB)),
	}
	return []vgpuScenario{
		{
			name:  "a reboot ends functions, mode and vGPUs",
			first: append(append([]vgpuAction{}, mixed...), holds("web-01", p40, mdev(p40x4Q, itself, mdevB))),
			do:    rebootVGPU,
			then:  []vgpuCheck{hasVGPUs(l40sV, false, false), hasVGPUs(a40, false, false), hasVGPUs(p40, false, false), offersVGPUs(l40sV)},
		},
		{
			name:  "what was lost is made again, at the same functions and under the same UUIDs",
			first: mixed,
			do:    each(append([]vgpuAction{rebootVGPU}, mixed...)...),
			then:  []vgpuCheck{noVGPUChanged},
		},
	}
}

func vgpuConcurrencyScenarios() []vgpuScenario {
	return []vgpuScenario{
		{
			name:  "vGPUs that are made at the same time are all there",
			first: []vgpuAction{setFunctions(l40sV, true)},
			do: together(makeVGPU(l40sV, onVF(l40s12Q, 0)), makeVGPU(l40sV, onVF(l40s12Q, 1)), makeVGPU(l40sV, onVF(l40s12Q, 2)),
				setFunctions(a40, true)),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false, onVF(l40s12Q, 0), onVF(l40s12Q, 1), onVF(l40s12Q, 2)), hasVGPUs(a40, true, false)},
		},
		{
			name:  "a function goes to one of those who want it",
			first: []vgpuAction{setFunctions(l40sV, true)},
			do:    oneOf(backend.InUse, makeVGPU(l40sV, onVF(l40s12Q, 0)), makeVGPU(l40sV, onVF(l40s12C, 0))),
		},
	}
}
