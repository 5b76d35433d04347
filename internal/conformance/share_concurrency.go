package conformance

import "github.com/gpufleet/terraform-provider-gpu/internal/gpu"

func shareConcurrencyScenarios() []migScenario {
	return []migScenario{
		{
			name:  "daemons that are started at the same time all run",
			first: []migAction{create(h100B, mig3g, 4)},
			do: together(ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, part(h100B, mig3g, 4))),
				ensure(daemon("third", whole(l40s))), ensure(daemon("fourth", whole(a100)))),
			again: true,
			then: []migCheck{
				serves(daemon(daemonA, whole(h100A))), serves(daemon(daemonB, part(h100B, mig3g, 4))),
				serves(daemon("third", whole(l40s))), serves(daemon("fourth", whole(a100))),
			},
		},
		{
			name:  "the same one three times at the same time is one",
			do:    together(ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonA, whole(h100A)))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A))), onlyDaemons(daemonA)},
		},
		{
			name:  "one is started while another ends",
			first: []migAction{ensure(daemon(daemonA, whole(h100A)))},
			do:    together(removeDaemon(daemonA), ensure(daemon(daemonB, whole(l40s)))),
			again: true,
			then:  []migCheck{hasDaemons(daemonB), serves(daemon(daemonB, whole(l40s)))},
		},
		{
			name:  "shares that are handed over at the same time are all there",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), hand(gpu.ShareSpec{Name: "old", Devices: whole(a100)})},
			do: together(hand(fraction(50)), hand(fraction(50)), hand(gpu.ShareSpec{Name: shareB, Devices: whole(h100A), Daemon: daemonA}),
				hand(gpu.ShareSpec{Name: "third", Devices: whole(l40s)}), takeBack("old")),
			again: true,
			then:  []migCheck{hasShares(shareA, shareB, "third"), onlyShares},
		},
		{
			name: "modes of different GPUs are all set",
			do: together(setComputeMode(h100A, gpu.ComputeExclusiveProcess), setComputeMode(l40s, gpu.ComputeProhibited),
				setTimeSlice(h100A, gpu.TimeSliceLong), setTimeSlice(a100, gpu.TimeSliceShort)),
			again: true,
			then: []migCheck{
				hasComputeMode(h100A, gpu.ComputeExclusiveProcess), hasComputeMode(l40s, gpu.ComputeProhibited),
				hasTimeSlice(h100A, gpu.TimeSliceLong), hasTimeSlice(a100, gpu.TimeSliceShort), onlyChanged(h100A, l40s, a100),
			},
		},
	}
}
