package conformance

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

// A reboot takes all of it: what is in /run, and what the driver forgets.
func shareRebootScenarios() []migScenario {
	history := each(
		setMode(h100B, true), create(h100B, mig3g, 4),
		setComputeMode(h100A, gpu.ComputeExclusiveProcess), setTimeSlice(l40s, gpu.TimeSliceLong),
		ensure(daemon(daemonA, whole(h100A), withLimits(50, 8*gib))), ensure(daemon(daemonB, part(h100B, mig3g, 4))),
		hand(fraction(50)), hand(gpu.ShareSpec{Name: shareB, Devices: part(h100B, mig3g, 4), Daemon: daemonB}),
	)
	return []migScenario{
		{
			name:  "daemons, shares, modes and time slices are lost",
			first: []migAction{history, somebodyStartsDaemon(a100), connects("trainer", daemonA), startsInShare("server", shareB)},
			do:    reboot,
			then: []migCheck{
				hasDaemons(), hasShares(), hasComputeMode(h100A, gpu.ComputeDefault), hasTimeSlice(l40s, gpu.TimeSliceDefault),
				hasInstances(h100B), runsNot("trainer"), runsNot("server"),
			},
		},
		{
			name:  "what was lost is made again",
			first: []migAction{history, reboot},
			do:    history,
			again: true,
			then: []migCheck{
				hasDaemons(daemonA, daemonB), hasShares(shareA, shareB),
				serves(daemon(daemonA, whole(h100A), withLimits(50, 8*gib))), serves(daemon(daemonB, part(h100B, mig3g, 4))),
				hasComputeMode(h100A, gpu.ComputeExclusiveProcess), hasTimeSlice(l40s, gpu.TimeSliceLong), seesInstance(shareB, h100B, mig3g, 4),
			},
		},
	}
}
