package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

func TestForecastOfCounts(t *testing.T) {
	h := host("hv01", vm("a", gpu.VMRunning), vm("b", gpu.VMRunning), vm("c", gpu.VMOff))
	holds(h, "b", 0)
	holds(h, "a", 0)
	holds(h, "c", 1)
	h.GPUs[1].Partitionable.Count = 16
	h.GPUs[1].Partitionable.VRAM.Min = uint64(950 * gpu.MiB)
	claimVM(h, "vdi", "a", gpu.Assignment{Power: gpu.Power{AllowShutdown: true}})
	claimVM(h, "platform", "b", gpu.Assignment{Power: gpu.Power{AllowShutdown: true}})

	tests := map[string]struct {
		count int
		class gpu.Disruption
		gpus  []change.GPUEffect
		stops []string
		kept  map[string]string
	}{
		"nothing changes on one GPU and the other is idle": {count: 4, class: gpu.DisruptNone, gpus: []change.GPUEffect{
			{GPU: gpu1, Model: "NVIDIA A2", Partitions: &change.PartitionsEffect{From: 16, To: 4, VRAM: 3800 * gpu.MiB}},
		}},
		"held": {
			count: 8, class: gpu.DisruptVMRestart, stops: []string{"a", "b"},
			kept: map[string]string{"ID-b": `its assignment belongs to owner "platform"`},
			gpus: []change.GPUEffect{
				{
					GPU: gpu0, Model: "NVIDIA A2", Partitions: &change.PartitionsEffect{From: 4, To: 8, VRAM: 1900 * gpu.MiB, Holders: []string{"a", "b"}},
				},
				{GPU: gpu1, Model: "NVIDIA A2", Partitions: &change.PartitionsEffect{From: 16, To: 8, VRAM: 1900 * gpu.MiB}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := create("t", config("vdi", tt.count, "hv01"))
			p.Want.Config.MaxDisruption = gpu.DisruptVMRestart
			got := foresee(h, p)
			if diff := cmp.Diff(tt.gpus, got.GPUs); diff != "" || got.Class != tt.class {
				t.Errorf("class %s, GPUs (-want +got):\n%s", got.Class, diff)
			}
			var stops []string
			for _, s := range got.Stops {
				stops = append(stops, s.Name)
				if why, want := got.KeptOn(s.VM), tt.kept[s.VM]; (why == nil) != (want == "") || why != nil && why.Found() != want {
					t.Errorf("%s is kept on by %v, want %q", s.Name, why, want)
				}
			}
			if !slices.Equal(stops, tt.stops) {
				t.Errorf("stops %v, want %v", stops, tt.stops)
			}
		})
	}
}

// foresee is what a plan does to the only host that it concerns.
func foresee(h *gpu.Host, p change.Change) change.Forecast {
	p.Owner = "vdi"
	return change.Simulate(*h, h.Name, p)
}

func TestForecastRestore(t *testing.T) {
	h := host("hv01")
	claimConfig(h, "vdi", "vdi", 4, gpu0, gpu1)
	h.Claims[0].OriginalLayouts = gpu.Layouts{strings.ToLower(gpu0): {Partitions: 16}, gpu1: {Partitions: 4}}
	prior := config("vdi", 4, "hv01")
	prior.Config.Restore = true
	got := foresee(h, change.Change{Token: "claim-vdi", Prior: prior})
	want := []change.GPUEffect{{GPU: gpu0, Model: "NVIDIA A2", Partitions: &change.PartitionsEffect{From: 4, To: 16, VRAM: 950 * gpu.MiB}}}
	if diff := cmp.Diff(want, got.GPUs); diff != "" || len(got.Refused) > 0 {
		t.Errorf("refused %v, GPUs (-want +got):\n%s", got.Refused, diff)
	}
}

func TestEveryRuleSaysWhatMustHoldAndForWhat(t *testing.T) {
	for _, r := range rules.All() {
		if !strings.HasSuffix(r.Sentence, ".") || len(r.Subjects) == 0 {
			t.Errorf("rule %s: sentence %q, subjects %v", r.ID, r.Sentence, r.Subjects)
		}
	}
}

func TestAllIsACopy(t *testing.T) {
	rules.All()[0].ID = "changed"
	if known("changed") || !known("gpu-exists") {
		t.Error("the registry can be changed from outside")
	}
}

func TestStopsTellsOfRunningVMsOnly(t *testing.T) {
	for _, test := range []struct {
		name  string
		state gpu.VMState
		edit  func(*change.Change)
		want  string
	}{
		{name: "a running VM gets a partition", state: gpu.VMRunning, want: "a"},
		{name: "a VM that is off", state: gpu.VMOff},
		{
			name: "a VM that may keep running until it is off", state: gpu.VMRunning,
			edit: func(p *change.Change) { p.Want.Assignment.Power.NextOff = true },
		},
		{name: "a plan that changes nothing", state: gpu.VMRunning, edit: func(p *change.Change) { p.Unchanged = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, p := world(host("hv01", vm("a", test.state))), create("t", partition("a", "hv01"))
			if test.edit != nil {
				test.edit(&p)
			}
			name := ""
			for _, f := range whatif.Simulate(w.World, p) {
				for _, s := range f.Stops {
					if name = s.Name; f.Host != "hv01" || len(s.Why) == 0 {
						t.Errorf("got host %q, why %v", f.Host, s.Why)
					}
				}
			}
			if name != test.want {
				t.Errorf("got VM %q, want %q", name, test.want)
			}
		})
	}
}
