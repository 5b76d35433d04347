package rules_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

func TestForecastSharing(t *testing.T) {
	client := []string{"process 4711 (python, container 3f2a)"}
	both := func(c rules.SharingChange, restore bool) []rules.GPUChange {
		return []rules.GPUChange{
			{GPU: migGPU0, Model: "NVIDIA H100 80GB HBM3", Sharing: &c, Restore: restore},
			{GPU: migGPU1, Model: "NVIDIA H100 80GB HBM3", Sharing: &c, Restore: restore},
		}
	}
	limited := mpsConfig("ml", "gpu01")
	limited.Config.MPS.ActiveThreadPercentage = 25
	restored := mpsConfig("ml", "gpu01")
	restored.Config.Restore = true
	before := func(h *gpu.Host) *gpu.Host {
		laidOut(h, restored)
		h.Claims[0].ComputeBefore = map[string]gpu.ComputeMode{migGPU0: gpu.ComputeDefault, migGPU1: gpu.ComputeDefault}
		return h
	}
	long := slicesConfig("ml", 4, "gpu01")
	long.Config.TimeSlicing.Interval = gpu.TimeSliceLong
	busy := shareServer()
	runsIn(&busy.GPUs[0], 0, 4711)
	changedSince := before(served(shareServer(), "ml"))
	changedSince.GPUs[0].ComputeMode, changedSince.GPUs[1].ComputeMode = gpu.ComputeProhibited, gpu.ComputeProhibited
	restart := rules.DaemonChange{Name: "ml", Action: rules.DaemonRestarts, Clients: client}
	remove := rules.DaemonChange{Name: "ml", Action: rules.DaemonEnds, Clients: client}
	tests := map[string]struct {
		host *gpu.Host
		plan change.Change
		want rules.Forecast
	}{
		"nothing": {host: served(shareServer(), "ml"), plan: create("t", mpsConfig("ml", "gpu01"))},
		"a daemon starts": {host: shareServer(), plan: create("t", mpsConfig("ml", "gpu01")), want: rules.Forecast{GPUs: both(rules.SharingChange{
			ComputeFrom: gpu.ComputeDefault, ComputeTo: gpu.ComputeExclusiveProcess, Daemons: []rules.DaemonChange{{Name: "ml", Action: rules.DaemonStarts}},
		}, false)}},
		"a daemon starts beside a process": {host: busy, plan: create("t", covering(mpsConfig("ml", "gpu01"), migGPU0)), want: rules.Forecast{GPUs: both(rules.SharingChange{
			ComputeFrom: gpu.ComputeDefault, ComputeTo: gpu.ComputeExclusiveProcess, Daemons: []rules.DaemonChange{{Name: "ml", Action: rules.DaemonStarts}}, InTheWay: client,
		}, false)[:1]}},
		"a daemon restarts": {host: served(shareServer(), "ml"), plan: create("t", limited), want: rules.Forecast{
			Disruption: gpu.DisruptProcessRestart, GPUs: both(rules.SharingChange{Daemons: []rules.DaemonChange{restart}}, false),
		}},
		"a daemon goes, and the modes with it": {host: before(served(shareServer(), "ml")), plan: change.Change{Token: "claim-ml", Prior: restored}, want: rules.Forecast{
			Disruption: gpu.DisruptProcessRestart,
			GPUs:       both(rules.SharingChange{ComputeFrom: gpu.ComputeExclusiveProcess, ComputeTo: gpu.ComputeDefault, Daemons: []rules.DaemonChange{remove}}, true),
		}},
		"a mode that somebody changed stays": {host: changedSince, plan: change.Change{Token: "claim-ml", Prior: restored}, want: rules.Forecast{
			Disruption: gpu.DisruptProcessRestart, GPUs: both(rules.SharingChange{Daemons: []rules.DaemonChange{remove}}, true),
		}},
		"all of it is kept": {host: before(served(shareServer(), "ml")), plan: change.Change{Token: "claim-ml", Prior: mpsConfig("ml", "gpu01")}},
		"turns": {host: shareServer(), plan: create("t", long), want: rules.Forecast{GPUs: both(rules.SharingChange{
			SliceFrom: gpu.TimeSliceDefault, SliceTo: gpu.TimeSliceLong,
		}, false)}},
		"turns in place of MPS": {host: before(served(shareServer(), "ml")), plan: change.Change{Token: "claim-ml", Want: long, Prior: restored}, want: rules.Forecast{
			Disruption: gpu.DisruptProcessRestart, GPUs: both(rules.SharingChange{
				ComputeFrom: gpu.ComputeExclusiveProcess, ComputeTo: gpu.ComputeDefault, SliceFrom: gpu.TimeSliceDefault, SliceTo: gpu.TimeSliceLong,
				Daemons: []rules.DaemonChange{remove},
			}, false),
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.want.Host = "gpu01"
			if tt.want.Disruption == "" {
				tt.want.Disruption = gpu.DisruptNone
			}
			if diff := cmp.Diff(tt.want, rules.NewForecast(tt.host, "gpu01", "vdi", tt.plan, tt.host.Claims)); diff != "" {
				t.Errorf("forecast (-want +got):\n%s", diff)
			}
		})
	}
}

// A daemon of an instance that is made is told of with the instance.
func TestForecastMPSInsideOfInstances(t *testing.T) {
	w := covering(migConfig("ml", profiles("3g.40gb", 2), "gpu01"), migGPU0)
	w.Config.MPS = mps()
	h := shareServer()
	got := rules.NewForecast(h, "gpu01", "vdi", create("t", w), nil)
	if len(got.GPUs) != 1 || got.GPUs[0].MIG == nil || got.GPUs[0].Sharing == nil || len(got.GPUs[0].Sharing.Daemons) != 2 {
		t.Fatalf("got %+v", got)
	}
	for _, d := range got.GPUs[0].Sharing.Daemons {
		if d.Action != rules.DaemonStarts {
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
	got := rules.NewForecast(shareServer(g), "gpu01", "vdi", create("t", w), nil)
	if len(got.GPUs) != 1 || got.GPUs[0].MIG == nil || !got.GPUs[0].MIG.CallsOff || got.GPUs[0].MIG.Resets {
		t.Errorf("a layout: got %+v", got)
	}
	off := ampere(migOff(h100(migGPU0)))
	off.MIG.Pending = true
	h := laidOut(shareServer(off), w)
	h.Claims[0].MIGBefore = map[string]gpu.MIGState{migGPU0: {}}
	w.Config.Restore = true
	got = rules.NewForecast(h, "gpu01", "vdi", change.Change{Token: "claim-ml", Prior: w}, nil)
	if len(got.GPUs) != 1 || got.GPUs[0].MIG == nil || !got.GPUs[0].MIG.CallsOff || !got.GPUs[0].Restore {
		t.Errorf("what was before: got %+v", got)
	}
}
