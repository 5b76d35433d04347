package conformance

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func computeModeScenarios() []migScenario {
	return []migScenario{
		{
			name:  "a GPU is for one process",
			do:    setComputeMode(h100A, gpu.ComputeExclusiveProcess),
			again: true,
			then:  []migCheck{hasComputeMode(h100A, gpu.ComputeExclusiveProcess), onlyChanged(h100A)},
		},
		{
			name:  "a GPU is for all processes again",
			first: []migAction{setComputeMode(h100A, gpu.ComputeExclusiveProcess), setComputeMode(l40s, gpu.ComputeExclusiveProcess)},
			do:    setComputeMode(h100A, gpu.ComputeDefault),
			again: true,
			then:  []migCheck{hasComputeMode(h100A, gpu.ComputeDefault), hasComputeMode(l40s, gpu.ComputeExclusiveProcess), onlyChanged(h100A)},
		},
		{
			name:  "a GPU is for no process",
			do:    setComputeMode(a100, gpu.ComputeProhibited),
			again: true,
			then:  []migCheck{hasComputeMode(a100, gpu.ComputeProhibited), onlyChanged(a100)},
		},
		{
			name:  "what somebody else set counts",
			first: []migAction{setComputeMode(h100A, gpu.ComputeExclusiveProcess), somebodySetsComputeMode(h100A, gpu.ComputeProhibited)},
			do:    setComputeMode(h100A, gpu.ComputeExclusiveProcess),
			again: true,
			then:  []migCheck{hasComputeMode(h100A, gpu.ComputeExclusiveProcess), onlyChanged(h100A)},
		},
		{
			name:  "ids are compared without case",
			do:    setComputeMode(strings.ToUpper(h100A), gpu.ComputeExclusiveProcess),
			again: true,
			then:  []migCheck{hasComputeMode(h100A, gpu.ComputeExclusiveProcess), onlyChanged(h100A)},
		},
		{
			name:  "a process at work goes on",
			first: []migAction{starts("trainer", h100A), starts("notebook", h100A)},
			do:    setComputeMode(h100A, gpu.ComputeExclusiveProcess),
			again: true,
			then:  []migCheck{hasComputeMode(h100A, gpu.ComputeExclusiveProcess), runsOn("trainer", h100A), runsOn("notebook", h100A)},
		},
		{
			name:   "a GPU in MIG mode has none",
			do:     setComputeMode(h100B, gpu.ComputeExclusiveProcess),
			fails:  backend.NotSupported,
			saying: []string{h100B, "MIG"},
		},
		{
			name:   "a GPU that is not there",
			do:     setComputeMode(noCard, gpu.ComputeDefault),
			fails:  backend.NotFound,
			saying: []string{noCard},
		},
		{
			name:   "a mode that is none",
			do:     setComputeMode(h100A, "sometimes"),
			fails:  backend.InvalidParameter,
			saying: []string{h100A, "sometimes"},
		},
	}
}

func timeSliceScenarios() []migScenario {
	return []migScenario{
		{
			name:  "turns become short",
			do:    setTimeSlice(h100A, gpu.TimeSliceShort),
			again: true,
			then:  []migCheck{hasTimeSlice(h100A, gpu.TimeSliceShort), onlyChanged(h100A)},
		},
		{
			name:  "turns become longer",
			first: []migAction{setTimeSlice(h100A, gpu.TimeSliceShort), setTimeSlice(l40s, gpu.TimeSliceMedium)},
			do:    setTimeSlice(h100A, gpu.TimeSliceLong),
			again: true,
			then:  []migCheck{hasTimeSlice(h100A, gpu.TimeSliceLong), hasTimeSlice(l40s, gpu.TimeSliceMedium), onlyChanged(h100A)},
		},
		{
			name:  "the driver chooses again",
			first: []migAction{setTimeSlice(h100A, gpu.TimeSliceMedium)},
			do:    setTimeSlice(h100A, gpu.TimeSliceDefault),
			again: true,
			then:  []migCheck{hasTimeSlice(h100A, gpu.TimeSliceDefault), onlyChanged(h100A)},
		},
		{
			name:  "ids are compared without case",
			do:    setTimeSlice(strings.ToUpper(h100A), gpu.TimeSliceLong),
			again: true,
			then:  []migCheck{hasTimeSlice(h100A, gpu.TimeSliceLong), onlyChanged(h100A)},
		},
		{
			name:  "a process at work goes on",
			first: []migAction{starts("trainer", h100A)},
			do:    setTimeSlice(h100A, gpu.TimeSliceLong),
			then:  []migCheck{hasTimeSlice(h100A, gpu.TimeSliceLong), runsOn("trainer", h100A)},
		},
		{
			name:   "a GPU in MIG mode has none",
			do:     setTimeSlice(h100B, gpu.TimeSliceLong),
			fails:  backend.NotSupported,
			saying: []string{h100B},
		},
		{
			name:   "a GPU that is not there",
			do:     setTimeSlice(noCard, gpu.TimeSliceLong),
			fails:  backend.NotFound,
			saying: []string{noCard},
		},
		{
			name:   "a length that is none",
			do:     setTimeSlice(h100A, "eternal"),
			fails:  backend.InvalidParameter,
			saying: []string{h100A, "eternal"},
		},
	}
}
