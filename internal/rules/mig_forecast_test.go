package rules_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

func on(list ...gpu.MIGPlacement) gpu.MIGState { return gpu.MIGState{Enabled: true, Placements: list} }

func TestForecastMIG(t *testing.T) {
	half := h100(migGPU1, at("3g.40gb", 4))
	half.MIG.Instances[0].Compute = nil
	used := migOff(ampere(h100(migGPU1)))
	runsIn(&used, 0, 4711)
	tests := map[string]struct {
		second     gpu.GPU // the first has what is wanted
		want       *placement.MIGChange
		disruption gpu.Disruption
	}{
		"as wanted, wherever it is": {second: h100(migGPU1, at("3g.40gb", 0))},
		"another instance": {second: h100(migGPU1, at("3g.40gb", 0), at("1g.10gb", 4)), want: &placement.MIGChange{
			From: on(at("3g.40gb", 0), at("1g.10gb", 4)), To: on(at("3g.40gb", 0)),
			Keeps: []gpu.MIGPlacement{at("3g.40gb", 0)}, Removes: []gpu.MIGPlacement{at("1g.10gb", 4)},
		}},
		"without a compute instance": {second: half, want: &placement.MIGChange{
			From: on(at("3g.40gb", 4)), To: on(at("3g.40gb", 4)), Keeps: []gpu.MIGPlacement{at("3g.40gb", 4)}, Completes: []gpu.MIGPlacement{at("3g.40gb", 4)},
		}},
		"the mode": {second: migOff(h100(migGPU1)), want: &placement.MIGChange{
			To: on(at("3g.40gb", 4)), Creates: []gpu.MIGPlacement{at("3g.40gb", 4)},
		}},
		"the mode of a GPU in use, with a reset": {second: used, disruption: gpu.DisruptGPUReset, want: &placement.MIGChange{
			To: on(at("3g.40gb", 4)), Creates: []gpu.MIGPlacement{at("3g.40gb", 4)}, Resets: true, InTheWay: []string{"process 4711 (python, container 3f2a)"},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := gpuServer("hgx01", h100(migGPU0, at("3g.40gb", 4)), tt.second)
			got := rules.NewForecast(h, "hgx01", "vdi", create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01")), nil)
			want := rules.Forecast{Host: "hgx01", Disruption: gpu.DisruptNone}
			if tt.disruption != "" {
				want.Disruption = tt.disruption
			}
			if tt.want != nil {
				want.GPUs = []rules.GPUChange{{GPU: migGPU1, Model: tt.second.Model, MIG: tt.want}}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("forecast (-want +got):\n%s", d)
			}
		})
	}
}

func TestForecastMIGRestore(t *testing.T) {
	watched := h100(migGPU1, at("3g.40gb", 4))
	runsIn(&watched, 1, 4711)
	watched.Processes[0].Holder = "unit nvidia-dcgm.service"
	h := gpuServer("hgx01", h100(migGPU0, at("3g.40gb", 4)), watched)
	h.Claims = []gpu.Claim{{
		Kind: gpu.ClaimConfig, ID: "ml", Token: "t", GPUs: []string{migGPU0, migGPU1},
		MIGBefore: map[string]gpu.MIGState{migGPU0: on(at("3g.40gb", 4)), migGPU1: {}},
	}}
	prior := migConfig("ml", profiles("3g.40gb", 1), "hgx01")
	prior.Config.Restore = true
	diff := &placement.MIGChange{From: on(at("3g.40gb", 4)), InTheWay: []string{"process 4711 (python, unit nvidia-dcgm.service)"}}
	check := func(t *testing.T) {
		t.Helper()
		got := rules.NewForecast(h, "hgx01", "vdi", change.Change{Token: "t", Prior: prior}, nil)
		want := rules.Forecast{Host: "hgx01", Disruption: gpu.DisruptNone, GPUs: []rules.GPUChange{{GPU: migGPU1, Model: watched.Model, MIG: diff, Restore: true}}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("forecast (-want +got):\n%s", d)
		}
	}
	t.Run("a watcher", check)
	prior.Config.QuiesceUnits = []string{"nvidia-dcgm"}
	diff = &placement.MIGChange{From: on(at("3g.40gb", 4)), Removes: []gpu.MIGPlacement{at("3g.40gb", 4)}}
	t.Run("a watcher that is stopped", check)
}

func TestMIGTexts(t *testing.T) {
	for want, s := range map[string]gpu.MIGState{"off": {}, "none": on(), "1g.10gb@0+3g.40gb@4": on(at("1g.10gb", 0), at("3g.40gb", 4))} {
		if got := placement.MIGText(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, l := range map[string]gpu.MIGLayout{
		"MIG mode without instances": {},
		"2 × 1g.10gb, 1 × 3g.40gb":   {Profiles: map[string]int{"3g.40gb": 1, "1g.10gb": 2}},
		"1g.10gb@0+3g.40gb@4":        {Placements: []gpu.MIGPlacement{at("3g.40gb", 4), at("1g.10gb", 0)}},
	} {
		if got := placement.MIGLayoutText(&l); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
