package rules_test

import (
	stdcmp "cmp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestForecastSharing(t *testing.T) {
	client := []string{"process 4711 (python, container 3f2a)"}
	both := func(c change.SharingEffect) []change.GPUEffect {
		return []change.GPUEffect{
			{GPU: migGPU0, Model: "NVIDIA H100 80GB HBM3", Sharing: &c},
			{GPU: migGPU1, Model: "NVIDIA H100 80GB HBM3", Sharing: &c},
		}
	}
	blocked := both(change.SharingEffect{
		ComputeFrom: gpu.ComputeDefault, ComputeTo: gpu.ComputeExclusiveProcess,
		Daemons: []change.DaemonEffect{{Name: "ml", Action: change.DaemonStarts}},
	})[:1]
	blocked[0].InTheWay = client
	limited := mpsConfig("ml", "gpu01")
	limited.Config.MPS.ActiveThreadPercentage = 25
	others := mpsConfig("ml", "gpu01")
	others.Config.MPS.User, others.Config.MPS.MultiUser = ptr(2000), false
	restored := mpsConfig("ml", "gpu01")
	restored.Config.Restore = true
	before := func(h *gpu.Host) *gpu.Host {
		laidOut(h, restored)
		h.Claims[0].OriginalLayouts = gpu.Layouts{migGPU0: {ComputeMode: gpu.ComputeDefault}, migGPU1: {ComputeMode: gpu.ComputeDefault}}
		return h
	}
	long := slicesConfig("ml", 4, "gpu01")
	long.Config.TimeSlicing.Interval = gpu.TimeSliceLong
	busy := shareServer()
	runsIn(&busy.GPUs[0], 0, 4711)
	changedSince := before(served(shareServer(), "ml"))
	changedSince.GPUs[0].ComputeMode, changedSince.GPUs[1].ComputeMode = gpu.ComputeProhibited, gpu.ComputeProhibited
	restart := change.DaemonEffect{Name: "ml", Action: change.DaemonRestarts, Clients: client}
	remove := change.DaemonEffect{Name: "ml", Action: change.DaemonEnds, Clients: client}
	tests := map[string]struct {
		host *gpu.Host
		plan change.Change
		want change.Effects
	}{
		"nothing": {host: served(shareServer(), "ml"), plan: create("t", mpsConfig("ml", "gpu01"))},
		"a daemon starts": {
			host: shareServer(), plan: create("t", mpsConfig("ml", "gpu01")),
			want: change.Effects{GPUs: both(change.SharingEffect{
				ComputeFrom: gpu.ComputeDefault, ComputeTo: gpu.ComputeExclusiveProcess,
				Daemons: []change.DaemonEffect{{Name: "ml", Action: change.DaemonStarts}},
			})},
		},
		"a daemon starts beside a process": {
			host: busy, plan: create("t", covering(mpsConfig("ml", "gpu01"), migGPU0)), want: change.Effects{GPUs: blocked},
		},
		"limits that a daemon takes as it runs": {host: served(shareServer(), "ml"), plan: create("t", limited), want: change.Effects{
			GPUs: both(change.SharingEffect{Daemons: []change.DaemonEffect{{Name: "ml", Action: change.DaemonLimits}}}),
		}},
		"a daemon restarts": {host: served(shareServer(), "ml"), plan: create("t", others), want: change.Effects{
			Class: gpu.DisruptProcessRestart, GPUs: both(change.SharingEffect{Daemons: []change.DaemonEffect{restart}}),
		}},
		"a daemon goes, and the modes with it": {
			host: before(served(shareServer(), "ml")),
			plan: change.Change{Token: "claim-ml", Prior: restored}, want: change.Effects{
				Class: gpu.DisruptProcessRestart,
				GPUs: both(change.SharingEffect{
					ComputeFrom: gpu.ComputeExclusiveProcess, ComputeTo: gpu.ComputeDefault, Daemons: []change.DaemonEffect{remove},
				}),
			},
		},
		"a mode that somebody changed stays": {host: changedSince, plan: change.Change{Token: "claim-ml", Prior: restored}, want: change.Effects{
			Class: gpu.DisruptProcessRestart, GPUs: both(change.SharingEffect{Daemons: []change.DaemonEffect{remove}}),
		}},
		"all of it is kept": {host: before(served(shareServer(), "ml")), plan: change.Change{Token: "claim-ml", Prior: mpsConfig("ml", "gpu01")}},
		"turns": {host: shareServer(), plan: create("t", long), want: change.Effects{GPUs: both(change.SharingEffect{
			SliceFrom: gpu.TimeSliceDefault, SliceTo: gpu.TimeSliceLong,
		})}},
		"turns in place of MPS": {
			host: before(served(shareServer(), "ml")), plan: change.Change{Token: "claim-ml", Want: long, Prior: restored},
			want: change.Effects{
				Class: gpu.DisruptProcessRestart, GPUs: both(change.SharingEffect{
					ComputeFrom: gpu.ComputeExclusiveProcess, ComputeTo: gpu.ComputeDefault, SliceFrom: gpu.TimeSliceDefault, SliceTo: gpu.TimeSliceLong,
					Daemons: []change.DaemonEffect{remove},
				}),
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := foresee(tt.host, tt.plan)
			if diff := cmp.Diff(tt.want.GPUs, got.GPUs); diff != "" || got.Class != stdcmp.Or(tt.want.Class, gpu.DisruptNone) {
				t.Errorf("class %s, GPUs (-want +got):\n%s", got.Class, diff)
			}
		})
	}
}

// A daemon of an instance that is made is told of with the instance.
func TestForecastMPSInsideOfInstances(t *testing.T) {
	w := covering(migConfig("ml", profiles("3g.40gb", 2), "gpu01"), migGPU0)
	w.Config.MPS = mps()
	h := shareServer()
	got := foresee(h, create("t", w))
	if len(got.GPUs) != 1 || got.GPUs[0].MIG == nil || got.GPUs[0].Sharing == nil || len(got.GPUs[0].Sharing.Daemons) != 2 {
		t.Fatalf("got %+v", got)
	}
	for _, d := range got.GPUs[0].Sharing.Daemons {
		if d.Action != change.DaemonStarts {
			t.Errorf("got %+v", d)
		}
	}
	if got.GPUs[0].Sharing.ComputeTo != "" {
		t.Errorf("a GPU in MIG mode has no compute mode, got %s", got.GPUs[0].Sharing.ComputeTo)
	}
}

// Only a pending mode is called off.
func TestForecastMIGCallsOffAPendingMode(t *testing.T) {
	g := ampere(h100(migGPU0, at("3g.40gb", 0)))
	g.MIG.Pending = false
	w := covering(migConfig("ml", gpu.MIGLayout{Placements: []gpu.MIGPlacement{at("3g.40gb", 0)}}, "gpu01"), migGPU0)
	got := foresee(shareServer(g), create("t", w))
	if len(got.GPUs) != 1 || got.GPUs[0].MIG == nil || !got.GPUs[0].MIG.CallsOff || got.GPUs[0].MIG.Resets {
		t.Errorf("a layout: got %+v", got)
	}
	off := ampere(migOff(h100(migGPU0)))
	off.MIG.Pending = true
	h := laidOut(shareServer(off), w)
	h.Claims[0].OriginalLayouts = gpu.Layouts{migGPU0: {MIG: &gpu.MIGState{}}}
	w.Config.Restore = true
	got = foresee(h, change.Change{Token: "claim-ml", Prior: w})
	if len(got.GPUs) != 1 || got.GPUs[0].MIG == nil || !got.GPUs[0].MIG.CallsOff {
		t.Errorf("what was before: got %+v", got)
	}
}
