package conformance

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

func migUnitScenarios() []migScenario {
	short := strings.TrimSuffix(dcgm, ".service")
	return []migScenario{
		{
			name:  "a unit is stopped",
			do:    stopUnit(dcgm),
			again: true,
			then:  []migCheck{unitRuns(dcgm, false), onlyUnits},
		},
		{
			name:  "a unit is started",
			first: []migAction{stopUnit(dcgm)},
			do:    startUnit(dcgm),
			again: true,
			then:  []migCheck{unitRuns(dcgm, true), onlyUnits},
		},
		{
			name:  "a unit that runs is started already",
			do:    startUnit(dcgm),
			again: true,
			then:  []migCheck{nothingChanged},
		},
		{
			name:  "a name without a suffix is that of a service, as to systemctl",
			do:    stopUnit(short),
			again: true,
			then:  []migCheck{unitRuns(dcgm, false)},
		},
		{
			name:  "it is started by that name as well",
			first: []migAction{stopUnit(dcgm)},
			do:    startUnit(short),
			again: true,
			then:  []migCheck{unitRuns(dcgm, true)},
		},
		{
			name:   "a unit that is not there cannot be stopped",
			do:     stopUnit(noUnit),
			fails:  backend.NotFound,
			saying: []string{noUnit},
		},
		{
			name:   "a unit that is not there cannot be started",
			do:     startUnit(noUnit),
			fails:  backend.NotFound,
			saying: []string{noUnit},
		},
		{
			name:  "device nodes follow the instances",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig3g, 0), startsIn("trainer", h100A, mig3g, 0)},
			do:    refreshDevices,
			again: true,
			then:  []migCheck{nothingChanged},
		},
	}
}
