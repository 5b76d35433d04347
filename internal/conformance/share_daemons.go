package conformance

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func daemonScenarios() []migScenario {
	return []migScenario{
		{
			name:  "a daemon is started",
			do:    ensure(daemon(daemonA, whole(h100A))),
			again: true,
			then:  []migCheck{hasDaemons(daemonA), serves(daemon(daemonA, whole(h100A))), onlyDaemons(daemonA)},
		},
		{
			name:  "with limits",
			do:    ensure(daemon(daemonA, whole(h100A), withLimits(12.5, 10*gib))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A), withLimits(12.5, 10*gib))), onlyDaemons(daemonA)},
		},
		{
			name:  "for several GPUs, in their order",
			do:    ensure(daemon(daemonA, whole(l40s, a100, h100A), withLimits(0, 4*gib))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(l40s, a100, h100A), withLimits(0, 4*gib))), onlyDaemons(daemonA)},
		},
		{
			name:  "for a GPU instance",
			first: []migAction{create(h100B, mig3g, 4), create(h100B, mig1g, 0)},
			do:    ensure(daemon(daemonA, part(h100B, mig3g, 4), withLimits(50, 0))),
			again: true,
			then: []migCheck{
				serves(daemon(daemonA, part(h100B, mig3g, 4), withLimits(50, 0))), keeps(h100B, at(mig3g, 4), at(mig1g, 0)), onlyDaemons(daemonA),
			},
		},
		{
			name:  "for another user, and for several users",
			do:    each(ensure(daemon(daemonA, whole(h100A), forUser(1000))), ensure(daemon(daemonB, whole(l40s), forAllUsers))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A), forUser(1000))), serves(daemon(daemonB, whole(l40s), forAllUsers))},
		},
		{
			name: "one for each GPU, of which one ends under its clients and is started again",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, whole(l40s))), connects("trainer", daemonA),
				connects("server", daemonB), dies(daemonA),
			},
			do:   ensureByForce(daemon(daemonA, whole(h100A))),
			then: []migCheck{serves(daemon(daemonA, whole(h100A))), serves(daemon(daemonB, whole(l40s)), "server"), ranOn(daemonB)},
		},
		{
			name:  "ids are compared without case",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA)},
			do:    ensure(daemon(daemonA, whole(strings.ToUpper(h100A)))),
			again: true,
			then:  []migCheck{nothingChanged, serves(daemon(daemonA, whole(h100A)), "trainer")},
		},
		{
			name: "the compute mode is another matter",
			first: []migAction{
				setComputeMode(h100A, gpu.ComputeExclusiveProcess), ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA),
				connects("notebook", daemonA),
			},
			do: ensure(daemon(daemonA, whole(h100A), withLimits(25, 0))),
			then: []migCheck{
				hasComputeMode(h100A, gpu.ComputeExclusiveProcess), serves(daemon(daemonA, whole(h100A), withLimits(25, 0)), "trainer", "notebook"),
			},
		},
		{
			name: "clients stay while the limits change",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A), withLimits(50, 8*gib))), ensure(daemon(daemonB, whole(l40s))),
				connects("trainer", daemonA), connects("server", daemonB),
			},
			do:    ensure(daemon(daemonA, whole(h100A), withLimits(20, 4*gib))),
			again: true,
			then: []migCheck{
				serves(daemon(daemonA, whole(h100A), withLimits(20, 4*gib)), "trainer"), ranOn(daemonA),
				serves(daemon(daemonB, whole(l40s)), "server"), onlyDaemons(daemonA),
			},
		},
		{
			name:  "and while they are lifted",
			first: []migAction{ensure(daemon(daemonA, whole(h100A, l40s), withLimits(50, 8*gib))), connects("trainer", daemonA)},
			do:    ensure(daemon(daemonA, whole(h100A, l40s))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A, l40s)), "trainer"), ranOn(daemonA), onlyDaemons(daemonA)},
		},
		{
			name:  "leave to end clients is not needed for that, and does no harm",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA)},
			do:    ensureByForce(daemon(daemonA, whole(h100A), withLimits(25, gib))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A), withLimits(25, gib)), "trainer"), ranOn(daemonA)},
		},
	}
}

// What a daemon reads at its start alone takes a restart, with which its clients end.
func daemonRestartScenarios() []migScenario {
	return []migScenario{
		{
			name:  "one without clients is restarted for other devices",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, whole(a100))), connects("server", daemonB)},
			do:    ensure(daemon(daemonA, whole(h100A, l40s))),
			again: true,
			then: []migCheck{
				serves(daemon(daemonA, whole(h100A, l40s))), restarted(daemonA), serves(daemon(daemonB, whole(a100)), "server"), onlyDaemons(daemonA),
			},
		},
		{
			name:   "clients keep it from being restarted, and the refusal names them",
			first:  []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA), connects("notebook", daemonA)},
			do:     ensure(daemon(daemonA, whole(h100A, l40s))),
			fails:  backend.InUse,
			saying: []string{daemonA},
			naming: []string{"trainer", "notebook"},
			then:   []migCheck{serves(daemon(daemonA, whole(h100A)), "trainer", "notebook")},
		},
		{
			name:  "nor is it restarted for another order",
			first: []migAction{ensure(daemon(daemonA, whole(h100A, l40s))), connects("trainer", daemonA)},
			do:    ensure(daemon(daemonA, whole(l40s, h100A))),
			fails: backend.InUse,
		},
		{
			name:  "nor for another user",
			first: []migAction{ensure(daemon(daemonA, whole(h100A), forUser(0))), connects("trainer", daemonA)},
			do:    ensure(daemon(daemonA, whole(h100A), forUser(1000))),
			fails: backend.InUse,
		},
		{
			name:  "nor for several users",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA)},
			do:    ensure(daemon(daemonA, whole(h100A), forAllUsers)),
			fails: backend.InUse,
		},
		{
			name:  "it is once they ended",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA), ends("trainer")},
			do:    ensure(daemon(daemonA, whole(l40s))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(l40s))), restarted(daemonA)},
		},
		{
			name: "with leave its clients end, and nobody else",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, whole(a100))),
				connects("trainer", daemonA), connects("server", daemonB), starts("notebook", h100A), starts("viewer", l40s),
			},
			do:    ensureByForce(daemon(daemonA, whole(h100A, l40s), withLimits(25, 2*gib))),
			again: true,
			then: []migCheck{
				serves(daemon(daemonA, whole(h100A, l40s), withLimits(25, 2*gib))), restarted(daemonA), runsNot("trainer"),
				runsOn("notebook", h100A), runsOn("viewer", l40s), serves(daemon(daemonB, whole(a100)), "server"), onlyDaemons(daemonA),
			},
		},
		{
			name: "one whose GPU instance was made again is restarted",
			first: []migAction{
				create(h100B, mig3g, 4), create(h100B, mig1g, 0), ensure(daemon(daemonA, part(h100B, mig3g, 4))),
				ensure(daemon(daemonB, part(h100B, mig1g, 0))),
				connects("server", daemonB), somebodyDestroys(h100B, mig3g, 4), somebodyCreates(h100B, mig3g, 4),
			},
			do:    ensure(daemon(daemonA, part(h100B, mig3g, 4))),
			again: true,
			then: []migCheck{
				serves(daemon(daemonA, part(h100B, mig3g, 4))), restarted(daemonA), serves(daemon(daemonB, part(h100B, mig1g, 0)), "server"),
				onlyDaemons(daemonA),
			},
		},
	}
}

// A daemon that ended is started again, and one that does not start is said.
func daemonFailureScenarios() []migScenario {
	return []migScenario{
		{
			name: "one that died is shown as such",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, whole(l40s))), connects("trainer", daemonA), connects("server", daemonB),
			},
			do:   each(dies(daemonA), lookOnly),
			then: []migCheck{isDown(daemonA), runsNot("trainer"), serves(daemon(daemonB, whole(l40s)), "server"), onlyDaemons(daemonA)},
		},
		{
			name:  "one that died is started again",
			first: []migAction{ensure(daemon(daemonA, whole(h100A), withLimits(25, 2*gib))), connects("trainer", daemonA), dies(daemonA)},
			do:    ensure(daemon(daemonA, whole(h100A), withLimits(25, 2*gib))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A), withLimits(25, 2*gib))), onlyDaemons(daemonA)},
		},
		{
			name:  "and has new clients",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), dies(daemonA), ensure(daemon(daemonA, whole(h100A)))},
			do:    connects("trainer", daemonA),
			then:  []migCheck{serves(daemon(daemonA, whole(h100A)), "trainer")},
		},
		{
			name:  "one that died is started for what is wanted now",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), dies(daemonA)},
			do:    ensure(daemon(daemonA, whole(l40s), withLimits(10, 0), forAllUsers)),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(l40s), withLimits(10, 0), forAllUsers))},
		},
		{
			name:  "sockets at which nobody listens are no obstacle",
			first: []migAction{leavesSockets(daemonA)},
			do:    ensure(daemon(daemonA, whole(h100A))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A))), onlyDaemons(daemonA)},
		},
		{
			name:   "a first start that fails leaves nothing",
			first:  []migAction{ensure(daemon(daemonB, whole(l40s))), connects("server", daemonB), startsFail(true)},
			do:     ensure(daemon(daemonA, whole(h100A))),
			fails:  backend.Failed,
			saying: []string{daemonA},
			then:   []migCheck{hasDaemons(daemonB), serves(daemon(daemonB, whole(l40s)), "server")},
		},
		{
			name:  "the next one starts",
			first: []migAction{startsFail(true), failing(backend.Failed, ensure(daemon(daemonA, whole(h100A)))), startsFail(false)},
			do:    ensure(daemon(daemonA, whole(h100A))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A)))},
		},
		{
			name:   "a restart that fails leaves a daemon that is down",
			first:  []migAction{ensure(daemon(daemonA, whole(h100A))), startsFail(true)},
			do:     ensure(daemon(daemonA, whole(h100A, l40s))),
			fails:  backend.Failed,
			leaves: true,
			then:   []migCheck{isDown(daemonA), onlyDaemons(daemonA)},
		},
		{
			name: "which starts when it can",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), startsFail(true), failing(backend.Failed, ensure(daemon(daemonA, whole(l40s)))),
				startsFail(false),
			},
			do:    ensure(daemon(daemonA, whole(l40s))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(l40s)))},
		},
		{
			name:   "without the program there is none",
			given:  []given{withoutMPS},
			do:     ensure(daemon(daemonA, whole(h100A))),
			fails:  backend.NotSupported,
			saying: []string{daemonA, "nvidia-cuda-mps-control"},
		},
	}
}

// Servers outlive their daemon, and their clients with them. They have to end before another
// daemon starts.
func daemonOrphanScenarios() []migScenario {
	return []migScenario{
		{
			name: "clients of one that died alone are shown",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, whole(l40s))), connects("trainer", daemonA), connects("server", daemonB),
			},
			do: each(diesAlone(daemonA), lookOnly),
			then: []migCheck{
				outlived(daemonA, "trainer"), runsOn("trainer", h100A), serves(daemon(daemonB, whole(l40s)), "server"), onlyDaemons(daemonA),
			},
		},
		{
			name: "they keep it from being started, and the refusal names them",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA), connects("notebook", daemonA), diesAlone(daemonA),
			},
			do:     ensure(daemon(daemonA, whole(h100A))),
			fails:  backend.InUse,
			saying: []string{daemonA},
			naming: []string{"trainer", "notebook"},
			then:   []migCheck{outlived(daemonA, "trainer", "notebook"), runsOn("trainer", h100A)},
		},
		{
			name: "with leave they end, and nobody else",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, whole(l40s))),
				connects("trainer", daemonA), connects("server", daemonB), starts("notebook", h100A), diesAlone(daemonA),
			},
			do:    ensureByForce(daemon(daemonA, whole(h100A))),
			again: true,
			then: []migCheck{
				serves(daemon(daemonA, whole(h100A))), runsNot("trainer"), runsOn("notebook", h100A), serves(daemon(daemonB, whole(l40s)), "server"),
				onlyDaemons(daemonA),
			},
		},
		{
			name:  "once they ended it is started",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA), diesAlone(daemonA), ends("trainer")},
			do:    ensure(daemon(daemonA, whole(h100A))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A))), onlyDaemons(daemonA)},
		},
		{
			name: "in a GPU instance, beside the clients of another",
			first: []migAction{
				create(h100B, mig3g, 4), create(h100B, mig1g, 0), ensure(daemon(daemonA, part(h100B, mig3g, 4))),
				ensure(daemon(daemonB, part(h100B, mig1g, 0))),
				connects("trainer", daemonA), connects("server", daemonB), diesAlone(daemonA), ends("trainer"),
			},
			do:    ensure(daemon(daemonA, part(h100B, mig3g, 4))),
			again: true,
			then: []migCheck{
				serves(daemon(daemonA, part(h100B, mig3g, 4))), serves(daemon(daemonB, part(h100B, mig1g, 0)), "server"), onlyDaemons(daemonA),
			},
		},
		{
			name:   "they keep what is left of it from being removed",
			first:  []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA), diesAlone(daemonA)},
			do:     removeDaemon(daemonA),
			fails:  backend.InUse,
			saying: []string{daemonA},
			naming: []string{"trainer"},
			then:   []migCheck{outlived(daemonA, "trainer"), runsOn("trainer", h100A)},
		},
		{
			name:  "unless they may end",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA), diesAlone(daemonA)},
			do:    removeDaemonByForce(daemonA),
			again: true,
			then:  []migCheck{hasDaemons(), runsNot("trainer"), onlyDaemons(daemonA)},
		},
	}
}

func daemonRemovalScenarios() []migScenario {
	return []migScenario{
		{
			name:  "a daemon ends, and the others go on",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, whole(l40s))), connects("server", daemonB)},
			do:    removeDaemon(daemonA),
			again: true,
			then:  []migCheck{hasDaemons(daemonB), serves(daemon(daemonB, whole(l40s)), "server"), ranOn(daemonB), onlyDaemons(daemonA)},
		},
		{
			name:  "one that is not there",
			first: []migAction{ensure(daemon(daemonB, whole(l40s)))},
			do:    removeDaemon(daemonA),
			then:  []migCheck{nothingChanged},
		},
		{
			name:   "clients keep it, and the refusal names them",
			first:  []migAction{ensure(daemon(daemonA, whole(h100A))), connects("trainer", daemonA), connects("notebook", daemonA)},
			do:     removeDaemon(daemonA),
			fails:  backend.InUse,
			saying: []string{daemonA},
			naming: []string{"trainer", "notebook"},
			then:   []migCheck{serves(daemon(daemonA, whole(h100A)), "trainer", "notebook"), ranOn(daemonA)},
		},
		{
			name: "with leave its clients end, and nobody else",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), ensure(daemon(daemonB, whole(l40s))),
				connects("trainer", daemonA), connects("server", daemonB), starts("notebook", h100A),
			},
			do:    removeDaemonByForce(daemonA),
			again: true,
			then:  []migCheck{hasDaemons(daemonB), runsNot("trainer"), runsOn("notebook", h100A), serves(daemon(daemonB, whole(l40s)), "server")},
		},
		{
			name:  "one that died is cleared away",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), dies(daemonA)},
			do:    removeDaemon(daemonA),
			again: true,
			then:  []migCheck{hasDaemons(), onlyDaemons(daemonA)},
		},
		{
			name:  "so are sockets at which nobody listens",
			first: []migAction{leavesSockets(daemonA)},
			do:    removeDaemon(daemonA),
			again: true,
			then:  []migCheck{hasDaemons(), onlyDaemons(daemonA)},
		},
		{
			name: "the compute mode and the time slice stay",
			first: []migAction{
				setComputeMode(h100A, gpu.ComputeExclusiveProcess), setTimeSlice(h100A, gpu.TimeSliceLong), ensure(daemon(daemonA, whole(h100A))),
			},
			do: removeDaemon(daemonA),
			then: []migCheck{
				hasDaemons(), hasComputeMode(h100A, gpu.ComputeExclusiveProcess), hasTimeSlice(h100A, gpu.TimeSliceLong), onlyDaemons(daemonA),
			},
		},
		{
			name:  "a share that it served stays",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), hand(gpu.ShareSpec{Name: shareA, Devices: whole(h100A), Daemon: daemonA})},
			do:    removeDaemon(daemonA),
			then:  []migCheck{hasDaemons(), keepsShare(shareA)},
		},
		{
			name: "in a GPU instance, which can go then",
			first: []migAction{
				create(h100B, mig3g, 4), ensure(daemon(daemonA, part(h100B, mig3g, 4))), connects("trainer", daemonA), removeDaemonByForce(daemonA),
			},
			do:   destroy(h100B, mig3g, 4),
			then: []migCheck{hasInstances(h100B), hasDaemons()},
		},
	}
}
