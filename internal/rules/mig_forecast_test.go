package rules_test

import (
	stdcmp "cmp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

func on(list ...gpu.MIGPlacement) gpu.MIGState { return gpu.MIGState{Enabled: true, Placements: list} }

func TestForecastMIG(t *testing.T) {
	half := h100(migGPU1, at("3g.40gb", 4))
	half.MIG.Instances[0].Compute = nil
	used := migOff(ampere(h100(migGPU1)))
	runsIn(&used, 0, 4711)
	tests := map[string]struct {
		second     gpu.GPU // the first has what is wanted
		want       *change.MIGEffect
		inTheWay   []string
		disruption gpu.Disruption
	}{
		"as wanted, wherever it is": {second: h100(migGPU1, at("3g.40gb", 0))},
		"another instance": {second: h100(migGPU1, at("3g.40gb", 0), at("1g.10gb", 4)), want: &change.MIGEffect{
			From: on(at("3g.40gb", 0), at("1g.10gb", 4)), To: on(at("3g.40gb", 0)),
			Keeps: []gpu.MIGPlacement{at("3g.40gb", 0)}, Removes: []gpu.MIGPlacement{at("1g.10gb", 4)},
		}},
		"without a compute instance": {second: half, want: &change.MIGEffect{
			From: on(at("3g.40gb", 4)), To: on(at("3g.40gb", 4)), Keeps: []gpu.MIGPlacement{at("3g.40gb", 4)},
			Completes: []gpu.MIGPlacement{at("3g.40gb", 4)},
		}},
		"the mode": {second: migOff(h100(migGPU1)), want: &change.MIGEffect{
			To: on(at("3g.40gb", 4)), Creates: []gpu.MIGPlacement{at("3g.40gb", 4)},
		}},
		"the mode of a GPU in use, with a reset": {second: used, disruption: gpu.DisruptGPUReset, want: &change.MIGEffect{
			To: on(at("3g.40gb", 4)), Creates: []gpu.MIGPlacement{at("3g.40gb", 4)}, Resets: true,
		}, inTheWay: []string{"process 4711 (python, container 3f2a)"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := gpuServer("hgx01", h100(migGPU0, at("3g.40gb", 4)), tt.second)
			got := foresee(h, create("t", migConfig("ml", profiles("3g.40gb", 1), "hgx01")))
			var want []change.GPUEffect
			if tt.want != nil {
				want = []change.GPUEffect{{GPU: migGPU1, Model: tt.second.Model, MIG: tt.want, InTheWay: tt.inTheWay}}
			}
			if d := cmp.Diff(want, got.GPUs); d != "" || got.Class != stdcmp.Or(tt.disruption, gpu.DisruptNone) {
				t.Errorf("class %s, GPUs (-want +got):\n%s", got.Class, d)
			}
		})
	}
}

// What is completed is not said to be kept as well.
func TestMIGEffectInWords(t *testing.T) {
	e := change.GPUEffect{MIG: &change.MIGEffect{
		From: on(at("3g.40gb", 4), at("1g.10gb", 0)), To: on(at("3g.40gb", 4), at("1g.10gb", 0)),
		Keeps: []gpu.MIGPlacement{at("1g.10gb", 0), at("3g.40gb", 4)}, Completes: []gpu.MIGPlacement{at("3g.40gb", 4)},
	}}
	if got, want := e.String(), "completes 3g.40gb@4; keeps 1g.10gb@0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestForecastMIGRestore(t *testing.T) {
	watched := h100(migGPU1, at("3g.40gb", 4))
	runsIn(&watched, 1, 4711)
	watched.Processes[0].Holder = "unit nvidia-dcgm.service"
	h := gpuServer("hgx01", h100(migGPU0, at("3g.40gb", 4)), watched)
	h.Claims = []gpu.Claim{{
		Kind: gpu.ClaimConfig, ID: "ml", Token: "t", GPUs: []string{migGPU0, migGPU1},
		OriginalLayouts: gpu.Layouts{migGPU0: {MIG: new(on(at("3g.40gb", 4)))}, migGPU1: {MIG: &gpu.MIGState{}}},
	}}
	prior := migConfig("ml", profiles("3g.40gb", 1), "hgx01")
	prior.Config.Restore = true
	got := foresee(h, change.Change{Token: "t", Prior: prior})
	if len(got.Refused) != 1 || got.Refused[0].Restores != "no MIG mode" ||
		!slices.Equal(got.Refused[0].By, []string{"process 4711 (python, unit nvidia-dcgm.service)"}) {
		t.Errorf("a watcher: refused %+v", got.Refused)
	}
	prior.Config.QuiesceUnits = []string{"nvidia-dcgm"}
	got = foresee(h, change.Change{Token: "t", Prior: prior})
	want := []change.GPUEffect{
		{GPU: migGPU1, Model: watched.Model, MIG: &change.MIGEffect{From: on(at("3g.40gb", 4)), Removes: []gpu.MIGPlacement{at("3g.40gb", 4)}}},
	}
	if d := cmp.Diff(want, got.GPUs); d != "" || len(got.Refused) > 0 {
		t.Errorf("a watcher that is stopped: refused %v, GPUs (-want +got):\n%s", got.Refused, d)
	}
}

func TestMIGTexts(t *testing.T) {
	for want, s := range map[string]gpu.MIGState{"off": {}, "none": on(), "1g.10gb@0+3g.40gb@4": on(at("1g.10gb", 0), at("3g.40gb", 4))} {
		if got := s.String(); got != want {
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
