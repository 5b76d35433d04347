package conformance

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

func vgpuInventoryScenarios() []vgpuScenario {
	return []vgpuScenario{
		{
			name: "the types of each GPU are told, those of MIG with their profile",
			do:   lookAtVGPU,
			then: []vgpuCheck{offersVGPUs(l40sV), offersVGPUs(a40), offersVGPUs(p40), offersVGPUs(h100V), hasNoVGPUFace(plain)},
		},
		{
			name:  "types do not depend on what is in use, nor on the functions",
			first: []vgpuAction{setFunctions(l40sV, true), makeVGPU(l40sV, onVF(l40s48Q, 0))},
			do:    lookAtVGPU,
			then:  []vgpuCheck{offersVGPUs(l40sV), hasVGPUs(l40sV, true, false, onVF(l40s48Q, 0))},
		},
		{
			name:  "a VM that holds a vGPU is named",
			first: []vgpuAction{setFunctions(l40sV, true), makeVGPU(l40sV, onVF(l40s12Q, 1)), makeVGPU(l40sV, onVF(l40s12Q, 2))},
			do:    holds("web-01", l40sV, onVF(l40s12Q, 1)),
			then:  []vgpuCheck{isHeldBy("web-01", l40sV, onVF(l40s12Q, 1)), isHeldBy("", l40sV, onVF(l40s12Q, 2))},
		},
		{
			name:  "a VM that holds a mediated device as well",
			first: []vgpuAction{makeVGPU(p40, mdev(p40x4Q, itself, mdevA)), makeVGPU(p40, mdev(p40x4Q, itself, mdevB))},
			do:    holds("web-01", p40, mdev(p40x4Q, itself, mdevB)),
			then:  []vgpuCheck{isHeldBy("web-01", p40, mdev(p40x4Q, itself, mdevB)), isHeldBy("", p40, mdev(p40x4Q, itself, mdevA))},
		},
	}
}

func vgpuFunctionScenarios() []vgpuScenario {
	return []vgpuScenario{
		{
			name:  "functions are turned on",
			do:    setFunctions(l40sV, true),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false), offersVGPUs(l40sV), onlyVGPUsOf(l40sV)},
		},
		{
			name:  "functions are turned off",
			first: []vgpuAction{setFunctions(a40, true)},
			do:    setFunctions(a40, false),
			again: true,
			then:  []vgpuCheck{hasVGPUs(a40, false, false), onlyVGPUsOf(a40)},
		},
		{
			name:  "they end the mode of mixed sizes",
			first: []vgpuAction{setFunctions(l40sV, true), setMixed(l40sV, true)},
			do:    setFunctions(l40sV, false),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, false, false)},
		},
		{
			name:   "a GPU without SR-IOV has none",
			do:     setFunctions(p40, true),
			fails:  backend.NotSupported,
			saying: []string{p40},
		},
		{
			name:  "a GPU without the vGPU driver has none",
			do:    setFunctions(plain, true),
			fails: backend.NotSupported,
		},
		{
			name:   "they stay off while a process uses the GPU",
			first:  []vgpuAction{computes("trainer", l40sV)},
			do:     setFunctions(l40sV, true),
			fails:  backend.InUse,
			saying: []string{l40sV, "trainer"},
		},
		{
			name:   "they stay on while there are vGPUs",
			first:  []vgpuAction{setFunctions(l40sV, true), makeVGPU(l40sV, onVF(l40s12Q, 0))},
			do:     setFunctions(l40sV, false),
			fails:  backend.InUse,
			saying: []string{l40s12Q},
		},
	}
}

func vgpuModeScenarios() []vgpuScenario {
	return []vgpuScenario{
		{
			name:  "the mode of mixed sizes is turned on",
			first: []vgpuAction{setFunctions(l40sV, true)},
			do:    setMixed(l40sV, true),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, true), onlyVGPUsOf(l40sV)},
		},
		{
			name:  "and off",
			first: []vgpuAction{setFunctions(l40sV, true), setMixed(l40sV, true)},
			do:    setMixed(l40sV, false),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false)},
		},
		{
			name:   "not while the GPU has vGPUs",
			first:  []vgpuAction{setFunctions(l40sV, true), makeVGPU(l40sV, onVF(l40s12Q, 0))},
			do:     setMixed(l40sV, true),
			fails:  backend.InUse,
			saying: []string{l40s12Q},
		},
		{
			name:  "not on a GPU that does not have it",
			first: []vgpuAction{setFunctions(a40, true)},
			do:    setMixed(a40, true),
			fails: backend.NotSupported,
		},
		{
			name:  "not in MIG mode",
			given: []given{inMIG(h100V)},
			do:    setMixed(h100V, true),
			fails: backend.NotSupported,
		},
	}
}

// A refusal says what was tried on what, in words that a person finds again. One who has
// gone changes nothing.
func vgpuErrorScenarios() []vgpuScenario {
	return []vgpuScenario{
		{
			name:   "a refusal names a GPU that is not there",
			do:     setFunctions(noCard, true),
			fails:  backend.NotFound,
			saying: []string{noCard},
		},
		{
			name:  "no vGPU is made on a GPU without the vGPU driver",
			do:    makeVGPU(plain, onVF("T4-4Q", 0)),
			fails: backend.NotSupported,
		},
		{
			name:  "functions are not turned on when the caller has gone",
			do:    stopped(setFunctions(l40sV, true)),
			fails: backend.Timeout,
		},
		{
			name:  "a vGPU is not removed when the caller has gone",
			first: []vgpuAction{setFunctions(l40sV, true), makeVGPU(l40sV, onVF(l40s12Q, 0))},
			do:    stopped(removeVGPU(l40sV, onVF(l40s12Q, 0))),
			fails: backend.Timeout,
		},
		{
			name:  "ids are compared without case",
			do:    setFunctions(strings.ToUpper(l40sV), true),
			again: true,
			then:  []vgpuCheck{hasVGPUs(l40sV, true, false)},
		},
	}
}
