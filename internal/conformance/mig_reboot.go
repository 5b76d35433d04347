package conformance

// What is lost with the driver: instances everywhere, and from Hopper on the mode too.
func migRebootScenarios() []migScenario {
	return []migScenario{
		{
			name:  "Ampere keeps its mode and loses its instances",
			given: []given{inMIG(a100)},
			first: []migAction{create(a100, mig3g, 0), create(a100, mig2g, 4)},
			do:    reboot,
			then:  []migCheck{isInMIG(a100, true), hasInstances(a100)},
		},
		{
			name:  "Hopper loses both",
			given: []given{inMIG(h100A, h100B)},
			first: []migAction{create(h100A, mig3g, 0), create(h100A, mig2g, 4)},
			do:    reboot,
			then:  []migCheck{isInMIG(h100A, false), isInMIG(h100B, false), hasInstances(h100A)},
		},
		{
			name: "without MIG mode nothing is lost",
			do:   reboot,
			then: []migCheck{isInMIG(a100, false), isInMIG(h100A, false), offers(h100A, profiles80GB()), isTheCard(h100A)},
		},
		{
			name:  "a mode that waited for a reset is there after it",
			given: []given{waitsForReset(a100)},
			do:    reboot,
			then:  []migCheck{isInMIG(a100, true)},
		},
		{
			name:  "the end of a mode that waited for a reset as well",
			given: []given{inMIG(a100), waitsForReset(a100)},
			do:    reboot,
			then:  []migCheck{isInMIG(a100, false)},
		},
		{
			name:  "processes ended",
			given: []given{inMIG(h100A)},
			first: []migAction{create(h100A, mig3g, 0), startsIn("trainer", h100A, mig3g, 0), starts("server", l40s)},
			do:    reboot,
			then:  []migCheck{runsNot("trainer"), runsNot("server")},
		},
		{
			name:  "what was lost is made again, as another",
			given: []given{inMIG(h100A, a100)},
			first: []migAction{create(h100A, mig3g, 0), create(a100, mig2g, 4)},
			do:    each(reboot, setMode(h100A, true), create(h100A, mig3g, 0), create(a100, mig2g, 4)),
			then:  []migCheck{isAnother(h100A, mig3g, 0), isAnother(a100, mig2g, 4)},
		},
	}
}
