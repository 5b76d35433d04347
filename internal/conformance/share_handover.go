package conformance

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// fraction is a share with all that holds its processes.
func fraction(threads float64) gpu.ShareSpec {
	priority := 1
	return gpu.ShareSpec{
		Name: shareA, Devices: whole(h100A), Daemon: daemonA,
		ActiveThreadPercentage: threads, PinnedMemoryLimit: 10 * gib, ClientPriority: &priority,
		MemoryRequest: 5 * gib, MemoryLimit: 10 * gib,
	}
}

func handoverScenarios() []migScenario {
	return []migScenario{
		{
			name:  "a share of a daemon's GPU",
			first: []migAction{ensure(daemon(daemonA, whole(h100A)))},
			do:    hand(fraction(12.5)),
			again: true,
			then: []migCheck{hasShares(shareA), onlyShares, hasEnvironment(shareA, variables{
				"CUDA_VISIBLE_DEVICES": h100A, "CUDA_MPS_PIPE_DIRECTORY": "@pipe:" + daemonA, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5",
				"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M", "CUDA_MPS_CLIENT_PRIORITY": "1",
			})},
		},
		{
			name:  "a share of several GPUs",
			first: []migAction{ensure(daemon(daemonA, whole(l40s, h100A)))},
			do:    hand(gpu.ShareSpec{Name: shareA, Devices: whole(l40s, h100A), Daemon: daemonA, PinnedMemoryLimit: 2 * gib}),
			again: true,
			then: []migCheck{onlyShares, hasEnvironment(shareA, variables{
				"CUDA_VISIBLE_DEVICES": l40s + "," + h100A, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2048M,1=2048M",
				"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "", "CUDA_MPS_CLIENT_PRIORITY": "",
			})},
		},
		{
			name:  "whole GPUs",
			do:    hand(gpu.ShareSpec{Name: shareB, Devices: whole(l40s, a100), MemoryLimit: 10 * gib}),
			again: true,
			then: []migCheck{hasShares(shareB), onlyShares, hasEnvironment(shareB, variables{
				"CUDA_VISIBLE_DEVICES": l40s + "," + a100, "CUDA_MPS_PIPE_DIRECTORY": "", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "",
			})},
		},
		{
			name:  "a GPU instance",
			first: []migAction{create(h100B, mig3g, 4), create(h100B, mig1g, 0)},
			do:    hand(gpu.ShareSpec{Name: shareA, Devices: part(h100B, mig3g, 4)}),
			again: true,
			then:  []migCheck{onlyShares, seesInstance(shareA, h100B, mig3g, 4), hasEnvironment(shareA, variables{"CUDA_MPS_PIPE_DIRECTORY": ""})},
		},
		{
			name:  "a share of a GPU instance",
			first: []migAction{create(h100B, mig3g, 4), ensure(daemon(daemonA, part(h100B, mig3g, 4)))},
			do:    hand(gpu.ShareSpec{Name: shareA, Devices: part(h100B, mig3g, 4), Daemon: daemonA, ActiveThreadPercentage: 40}),
			again: true,
			then: []migCheck{onlyShares, seesInstance(shareA, h100B, mig3g, 4), hasEnvironment(shareA, variables{
				"CUDA_MPS_PIPE_DIRECTORY": "@pipe:" + daemonA, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40",
			})},
		},
		{
			name:  "several shares of one daemon",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), hand(fraction(50))},
			do:    hand(gpu.ShareSpec{Name: shareB, Devices: whole(h100A), Daemon: daemonA, ActiveThreadPercentage: 20}),
			again: true,
			then: []migCheck{
				hasShares(shareA, shareB), keepsShare(shareA), onlyShares, hasEnvironment(shareB, variables{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "20"}),
			},
		},
		{
			name:  "one that changes",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), hand(fraction(50)), hand(gpu.ShareSpec{Name: shareB, Devices: whole(l40s)})},
			do:    hand(fraction(20)),
			again: true,
			then: []migCheck{
				hasShares(shareA, shareB), keepsShare(shareB), onlyShares, hasEnvironment(shareA, variables{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "20"}),
			},
		},
		{
			name:  "processes go on when it changes",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), hand(fraction(50)), startsInShare("trainer", shareA)},
			do:    hand(fraction(20)),
			then:  []migCheck{onlyShares, serves(daemon(daemonA, whole(h100A)), "trainer"), isIn("trainer", shareA)},
		},
		{
			name:  "each has a static partition of its own",
			given: []given{newDriver},
			first: []migAction{ensure(daemon(daemonA, whole(h100A), withPartitions)), hand(fraction(50))},
			do:    hand(gpu.ShareSpec{Name: shareB, Devices: whole(h100A), Daemon: daemonA, ActiveThreadPercentage: 25}),
			again: true,
			then: []migCheck{
				hasShares(shareA, shareB), keepsShare(shareA), onlyShares, serves(daemon(daemonA, whole(h100A), withPartitions)),
				inPartitions(shareA, shareB),
			},
		},
		{
			name:  "one whose static partition ended with its daemon gets another",
			given: []given{newDriver},
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A), withPartitions)), hand(fraction(50)), dies(daemonA),
				ensure(daemon(daemonA, whole(h100A), withPartitions)),
			},
			do:    hand(fraction(50)),
			again: true,
			then:  []migCheck{onlyShares, inPartitions(shareA), inAnotherPartition(shareA)},
		},
		{
			name:  "processes go on in a static partition when the share gets another",
			given: []given{newDriver},
			first: []migAction{ensure(daemon(daemonA, whole(h100A), withPartitions)), hand(fraction(50)), startsInShare("trainer", shareA)},
			do:    hand(fraction(20)),
			again: true,
			then: []migCheck{
				onlyShares, serves(daemon(daemonA, whole(h100A), withPartitions), "trainer"), inPartitions(shareA), inAnotherPartition(shareA),
			},
		},
		{
			name: "one whose GPU instance was made again is brought up to date",
			first: []migAction{
				create(h100B, mig3g, 4), hand(gpu.ShareSpec{Name: shareA, Devices: part(h100B, mig3g, 4)}),
				somebodyDestroys(h100B, mig3g, 4), somebodyCreates(h100B, mig3g, 4),
			},
			do:    hand(gpu.ShareSpec{Name: shareA, Devices: part(h100B, mig3g, 4)}),
			again: true,
			then:  []migCheck{onlyShares, seesInstance(shareA, h100B, mig3g, 4)},
		},
		{
			name: "nothing is lacking where the container toolkit is",
			do:   hand(gpu.ShareSpec{Name: shareA, Devices: whole(l40s)}),
			then: []migCheck{notes(shareA, false)},
		},
		{
			name:  "what is lacking without it is noted",
			given: []given{withoutToolkit},
			do:    hand(gpu.ShareSpec{Name: shareA, Devices: whole(l40s)}),
			again: true,
			then:  []migCheck{notes(shareA, true)},
		},
		{
			name: "one is taken back, and the others stay",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), hand(fraction(50)), hand(gpu.ShareSpec{Name: shareB, Devices: whole(h100A), Daemon: daemonA}),
			},
			do:    takeBack(shareA),
			again: true,
			then:  []migCheck{hasShares(shareB), keepsShare(shareB), onlyShares},
		},
		{
			name:  "processes go on when it is taken back",
			first: []migAction{ensure(daemon(daemonA, whole(h100A))), hand(fraction(50)), startsInShare("trainer", shareA)},
			do:    takeBack(shareA),
			again: true,
			then:  []migCheck{hasShares(), onlyShares, serves(daemon(daemonA, whole(h100A)), "trainer"), isIn("trainer", shareA)},
		},
		{
			name: "its clients end when that is allowed, and nobody else's",
			first: []migAction{
				ensure(daemon(daemonA, whole(h100A))), hand(fraction(50)), hand(gpu.ShareSpec{Name: shareB, Devices: whole(h100A), Daemon: daemonA}),
				hand(gpu.ShareSpec{Name: "third", Devices: whole(l40s)}), startsInShare("trainer", shareA),
				startsInShare("loader", shareA), startsInShare("other", shareB),
				startsInShare("apart", "third"),
			},
			do:    takeBackByForce(shareA),
			again: true,
			then: []migCheck{
				hasShares(shareB, "third"), serves(daemon(daemonA, whole(h100A)), "other"), isIn("other", shareB), isIn("apart", "third"),
			},
		},
		{
			name:  "a process that is no client goes on",
			first: []migAction{hand(gpu.ShareSpec{Name: shareB, Devices: whole(l40s)}), startsInShare("apart", shareB)},
			do:    takeBackByForce(shareB),
			then:  []migCheck{hasShares(), onlyShares, isIn("apart", shareB)},
		},
		{
			name:  "one that is not there",
			first: []migAction{hand(gpu.ShareSpec{Name: shareB, Devices: whole(l40s)})},
			do:    takeBack(shareA),
			then:  []migCheck{nothingChanged},
		},
	}
}

// notes is a share that has a note on what containers lack, or none.
func notes(share string, want bool) migCheck {
	return func(t *testing.T, b *migBench) {
		t.Helper()
		if s, ok := b.after.HandedShare(share); !ok || (s.Note != "") != want {
			t.Errorf("share %s is there: %t, as %+v; want a note: %t", share, ok, s, want)
		}
	}
}

// Daemons and specifications of somebody else stay as they are.
func shareForeignScenarios() []migScenario {
	return []migScenario{
		{
			name:  "a daemon of somebody else is not taken for ours",
			first: []migAction{somebodyStartsDaemon(h100A)},
			do:    ensure(daemon(daemonA, whole(h100A))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(h100A))), onlyDaemons(daemonA)},
		},
		{
			name:  "nor restarted with ours",
			first: []migAction{somebodyStartsDaemon(h100A), somebodyStartsDaemon(l40s), ensure(daemon(daemonA, whole(h100A)))},
			do:    ensureByForce(daemon(daemonA, whole(l40s))),
			again: true,
			then:  []migCheck{serves(daemon(daemonA, whole(l40s))), onlyDaemons(daemonA)},
		},
		{
			name:  "nor ended with it",
			first: []migAction{somebodyStartsDaemon(h100A), ensure(daemon(daemonA, whole(h100A)))},
			do:    removeDaemonByForce(daemonA),
			again: true,
			then:  []migCheck{hasDaemons(), onlyDaemons(daemonA)},
		},
		{
			name:   "a specification of somebody else keeps the place of a share",
			first:  []migAction{somebodyWritesSpec(shareA), hand(gpu.ShareSpec{Name: shareB, Devices: whole(l40s)})},
			do:     hand(gpu.ShareSpec{Name: shareA, Devices: whole(h100A)}),
			fails:  backend.InUse,
			saying: []string{shareA},
			then:   []migCheck{hasShares(shareB), foreignSpecIsThere(shareA)},
		},
		{
			name:   "and is not taken back",
			first:  []migAction{somebodyWritesSpec(shareA)},
			do:     takeBack(shareA),
			fails:  backend.InUse,
			saying: []string{shareA},
			then:   []migCheck{hasShares(), foreignSpecIsThere(shareA)},
		},
		{
			name:  "one beside ours stays",
			first: []migAction{somebodyWritesSpec(shareB), hand(gpu.ShareSpec{Name: shareA, Devices: whole(h100A)})},
			do:    takeBack(shareA),
			then:  []migCheck{hasShares(), foreignSpecIsThere(shareB)},
		},
	}
}
