package rules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

func TestNewForecast(t *testing.T) {
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
		want  rules.Forecast
	}{
		"nothing changes on one GPU and the other is idle": {count: 4, want: rules.Forecast{
			Host: "hv01", Disruption: gpu.DisruptNone,
			GPUs: []rules.GPUChange{{GPU: gpu1, Model: "NVIDIA A2", From: 16, To: 4, PartitionVRAM: 3800 * gpu.MiB}},
		}},
		"held": {count: 8, want: rules.Forecast{
			Host: "hv01", Disruption: gpu.DisruptVMRestart,
			GPUs: []rules.GPUChange{
				{GPU: gpu0, Model: "NVIDIA A2", From: 4, To: 8, PartitionVRAM: 1900 * gpu.MiB, Holders: []string{"a", "b"}},
				{GPU: gpu1, Model: "NVIDIA A2", From: 16, To: 8, PartitionVRAM: 1900 * gpu.MiB},
			},
			StopsVMs: []rules.VMStop{
				{ID: "ID-a", Name: "a", Allowed: true},
				{ID: "ID-b", Name: "b", Reason: `its assignment belongs to the Terraform state "platform"`},
			},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := rules.NewForecast(h, "hv01", "vdi", create("t", config("vdi", tt.count, "hv01")), h.Claims)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("forecast (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForecastRestore(t *testing.T) {
	h := host("hv01")
	claimConfig(h, "vdi", "vdi", 4, gpu0, gpu1)
	h.Claims[0].LayoutBefore = map[string]int{strings.ToLower(gpu0): 16, gpu1: 4}
	prior := config("vdi", 4, "hv01")
	prior.Config.Restore = true
	got := rules.NewForecast(h, "hv01", "vdi", change.Change{Token: "claim-vdi", Prior: prior}, nil)
	want := rules.Forecast{Host: "hv01", Disruption: gpu.DisruptNone, GPUs: []rules.GPUChange{
		{GPU: gpu0, Model: "NVIDIA A2", From: 4, To: 16, PartitionVRAM: 950 * gpu.MiB, Restore: true},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("forecast (-want +got):\n%s", diff)
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
		{name: "a VM that may keep running until it is off", state: gpu.VMRunning, edit: func(p *change.Change) { p.Want.Assignment.Power.NextOff = true }},
		{name: "a plan that changes nothing", state: gpu.VMRunning, edit: func(p *change.Change) { p.Unchanged = true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, p := world(host("hv01", vm("a", test.state))), create("t", partition("a", "hv01"))
			if test.edit != nil {
				test.edit(&p)
			}
			h, name, why := rules.Stops(w, p)
			if name != test.want || (len(why) > 0) != (test.want != "") || (h == "hv01") != (test.want != "") {
				t.Errorf("got host %q, VM %q, why %v; want VM %q", h, name, why, test.want)
			}
		})
	}
}
