package conformance

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

func migModeScenarios() []migScenario {
	return append(migModeAtOnceScenarios(), migModeByResetScenarios()...)
}

// From Hopper on a mode changes at once.
func migModeAtOnceScenarios() []migScenario {
	return []migScenario{
		{
			name:  "MIG mode is turned on",
			do:    setMode(h100A, true),
			again: true,
			then:  []migCheck{isInMIG(h100A, true), hasInstances(h100A), onlyChanged(h100A)},
		},
		{
			name:  "MIG mode is turned off",
			given: []given{inMIG(h100A, h100B)},
			do:    setMode(h100A, false),
			again: true,
			then:  []migCheck{isInMIG(h100A, false), onlyChanged(h100A)},
		},
		{
			name:  "ids are compared without case",
			do:    setMode(strings.ToUpper(h100A), true),
			again: true,
			then:  []migCheck{isInMIG(h100A, true), onlyChanged(h100A)},
		},
		{
			name:  "leave to reset is not needed, and does no harm",
			do:    setModeByReset(h100A, true),
			again: true,
			then:  []migCheck{isInMIG(h100A, true), onlyChanged(h100A)},
		},
		{
			name:  "the mode that it has is no change, even in use",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig3g, 0), startsIn("trainer", h100A, mig3g, 0)},
			do:    setMode(h100A, true),
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:   "a process keeps the mode off, and the refusal names it",
			first:  []migAction{starts("trainer", h100A)},
			do:     setMode(h100A, true),
			fails:  backend.InUse,
			naming: []string{"trainer"},
			then:   []migCheck{isInMIG(h100A, false), runsOn("trainer", h100A)},
		},
		{
			name:   "the refusal names every process",
			first:  []migAction{starts("trainer", h100A), starts("notebook", h100A), starts("server", h100B)},
			do:     setMode(h100A, true),
			fails:  backend.InUse,
			naming: []string{"trainer", "notebook"},
		},
		{
			name:  "leave to reset does not stop a process",
			first: []migAction{starts("trainer", h100A)},
			do:    setModeByReset(h100A, true),
			fails: backend.InUse,
			then:  []migCheck{runsOn("trainer", h100A)},
		},
		{
			name:  "the mode can be changed once the process ended",
			first: []migAction{starts("trainer", h100A), ends("trainer")},
			do:    setMode(h100A, true),
			then:  []migCheck{isInMIG(h100A, true)},
		},
		{
			name:   "instances keep the mode on, and the refusal names them",
			given:  []given{inMIG(h100A)},
			first:  []migAction{create(h100A, mig3g, 0), create(h100A, mig2g, 4)},
			do:     setMode(h100A, false),
			fails:  backend.InUse,
			saying: []string{mig3g, mig2g},
			then:   []migCheck{isInMIG(h100A, true), hasInstances(h100A, at(mig3g, 0), at(mig2g, 4))},
		},
		{
			name:   "so does an instance that is half made",
			given:  []given{inMIG(h100A)},
			first:  []migAction{somebodyHalfMakes(h100A, mig2g, 4)},
			do:     setMode(h100A, false),
			fails:  backend.InUse,
			saying: []string{mig2g},
		},
		{
			name:   "processes in instances are named too",
			given:  []given{inMIG(h100A)},
			first:  []migAction{create(h100A, mig3g, 0), startsIn("trainer", h100A, mig3g, 0)},
			do:     setMode(h100A, false),
			fails:  backend.InUse,
			naming: []string{"trainer"},
		},
		{
			name:  "the mode can be turned off once the instances are gone",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig3g, 0), destroy(h100A, mig3g, 0)},
			do:    setMode(h100A, false),
			then:  []migCheck{isInMIG(h100A, false)},
		},
		{
			name:  "a unit that watches GPUs is no obstacle where no reset is needed",
			with:  []migArrangement{holdsGPUs(dcgm)},
			do:    setMode(h100A, true),
			again: true,
			then:  []migCheck{isInMIG(h100A, true), unitRuns(dcgm, true)},
		},
		{
			name:  "a GPU without MIG has no mode",
			do:    setMode(l40s, true),
			fails: backend.NotSupported,
		},
		{
			name:  "a GPU that is not there is not found",
			do:    setMode(noCard, true),
			fails: backend.NotFound,
		},
	}
}

// Ampere changes its mode with a reset.
func migModeByResetScenarios() []migScenario {
	return []migScenario{
		{
			name:   "without leave to reset nothing is left pending",
			do:     setMode(a100, true),
			fails:  backend.InvalidState,
			saying: []string{"reset"},
			then:   []migCheck{isInMIG(a100, false)},
		},
		{
			name:   "nor when it is turned off",
			given:  []given{inMIG(a100)},
			do:     setMode(a100, false),
			fails:  backend.InvalidState,
			saying: []string{"reset"},
			then:   []migCheck{isInMIG(a100, true)},
		},
		{
			name:  "a reset turns MIG mode on",
			do:    setModeByReset(a100, true),
			again: true,
			then:  []migCheck{isInMIG(a100, true), hasInstances(a100), onlyChanged(a100)},
		},
		{
			name:  "a reset turns MIG mode off",
			given: []given{inMIG(a100)},
			do:    setModeByReset(a100, false),
			again: true,
			then:  []migCheck{isInMIG(a100, false), onlyChanged(a100)},
		},
		{
			name:  "only the one GPU is reset",
			given: []given{inMIG(h100A)},
			first: []migAction{
				create(h100A, mig3g, 0), create(h100A, mig1g, 4), startsIn("trainer", h100A, mig3g, 0),
				starts("server", h100B), starts("notebook", l40s),
			},
			do: setModeByReset(a100, true),
			then: []migCheck{
				isInMIG(a100, true), onlyChanged(a100), keeps(h100A, at(mig3g, 0), at(mig1g, 4)),
				runsIn("trainer", h100A, mig3g, 0), runsOn("server", h100B), runsOn("notebook", l40s),
			},
		},
		{
			name:  "the mode that it has takes no reset, even in use",
			given: []given{inMIG(a100)},
			first: []migAction{create(a100, mig3g, 0), startsIn("trainer", a100, mig3g, 0)},
			do:    setMode(a100, true),
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:  "nor where a reset would be allowed",
			given: []given{inMIG(a100)},
			first: []migAction{create(a100, mig3g, 0), startsIn("trainer", a100, mig3g, 0)},
			do:    setModeByReset(a100, true),
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:   "a GPU in use is not reset, and the refusal names the process",
			first:  []migAction{starts("trainer", a100)},
			do:     setModeByReset(a100, true),
			fails:  backend.InUse,
			naming: []string{"trainer"},
			then:   []migCheck{isInMIG(a100, false), runsOn("trainer", a100)},
		},
		{
			name:   "a GPU with instances is not reset",
			given:  []given{inMIG(a100)},
			first:  []migAction{create(a100, mig3g, 4)},
			do:     setModeByReset(a100, false),
			fails:  backend.InUse,
			saying: []string{mig3g},
			then:   []migCheck{isInMIG(a100, true), hasInstances(a100, at(mig3g, 4))},
		},
		{
			name:  "a GPU that a unit keeps open is not reset",
			with:  []migArrangement{holdsGPUs(dcgm)},
			do:    setModeByReset(a100, true),
			fails: backend.InUse,
			then:  []migCheck{isInMIG(a100, false), unitRuns(dcgm, true)},
		},
		{
			name:  "it is once the unit is stopped",
			with:  []migArrangement{holdsGPUs(dcgm)},
			first: []migAction{stopUnit(dcgm)},
			do:    setModeByReset(a100, true),
			again: true,
			then:  []migCheck{isInMIG(a100, true), unitRuns(dcgm, false)},
		},
		{
			name:  "a mode that waits for a reset gets it",
			given: []given{waitsForReset(a100)},
			do:    setModeByReset(a100, true),
			again: true,
			then:  []migCheck{isInMIG(a100, true)},
		},
		{
			name:  "a mode that waits for a reset is taken back without one",
			given: []given{waitsForReset(a100)},
			do:    setMode(a100, false),
			again: true,
			then:  []migCheck{isInMIG(a100, false)},
		},
		{
			name:  "so is its end",
			given: []given{inMIG(a100), waitsForReset(a100)},
			do:    setMode(a100, true),
			again: true,
			then:  []migCheck{isInMIG(a100, true)},
		},
	}
}
