package vgpu_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu/vgputest"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestCheck(t *testing.T) {
	plain := l40s()
	plain.Heterogeneous = false
	tests := map[string]struct {
		card  vgputest.Card
		alter func(*vgpu.GPU)
		want  vgpu.Layout
		rules []string
		says  []string
	}{
		"nothing":  {card: l40s()},
		"all fits": {card: l40s(), want: vgpu.Layout{Type: "L40S-12Q"}},
		"no vGPU Manager": {
			card: vgputest.Card{Address: address, Shape: vgpu.ShapeNone}, want: vgpu.Layout{Type: "L40S-12Q"},
			rules: []string{vgpu.RuleSupported}, says: []string{"host driver"},
		},
		"a type of another card": {
			card: l40s(), want: vgpu.Layout{Types: map[string]int{"A40-1Q": 1, "A40-2Q": 1}},
			rules: []string{vgpu.RuleTypeOffered}, says: []string{"A40-1Q, A40-2Q", "offers L40S-2B, L40S-2Q, L40S-12Q, L40S-24Q, L40S-48Q"},
		},
		"types cannot be told": {
			card: l40s(), alter: func(g *vgpu.GPU) { g.Types = nil }, want: vgpu.Layout{Type: "L40S-12Q"},
			rules: []string{vgpu.RuleTypeOffered}, says: []string{"L40S-12Q", "NVML", "virtual functions"},
		},
		"sizes differ, mode refused": {
			card: l40s(), want: vgpu.Layout{Types: map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}, Heterogeneous: flag(false)},
			rules: []string{vgpu.RuleSameFrameBuffer}, says: []string{"1 L40S-24Q, 1 L40S-12Q", "heterogeneous = false"},
		},
		"sizes differ, mode not supported": {
			card: plain, want: vgpu.Layout{Types: map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}},
			rules: []string{vgpu.RuleSameFrameBuffer}, says: []string{"does not support"},
		},
		"sizes differ, mode on": {card: l40s(), want: vgpu.Layout{Types: map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}}},
		"series differ":         {card: plain, want: vgpu.Layout{Types: map[string]int{"L40S-2B": 3, "L40S-2Q": 4}}},
		"mode not supported": {
			card: plain, want: vgpu.Layout{Type: "L40S-12Q", Count: number(1), Heterogeneous: flag(true)},
			rules: []string{vgpu.RuleHeterogeneous},
		},
		"mode with MIG": {
			card: h200(), want: vgpu.Layout{Type: "H200X-3-71C", Count: number(1), Heterogeneous: flag(true)},
			rules: []string{vgpu.RuleHeterogeneous}, says: []string{"MIG-backed"},
		},
		"too many": {
			card: l40s(), want: vgpu.Layout{Type: "L40S-12Q", Count: number(5)},
			rules: []string{vgpu.RuleCapacity}, says: []string{"at most 4 L40S-12Q, wanted 5"},
		},
		"too many of one size": {
			card: plain, alter: func(g *vgpu.GPU) { g.SRIOV.Total = 64 }, want: vgpu.Layout{Types: map[string]int{"L40S-2B": 12, "L40S-2Q": 13}},
			rules: []string{vgpu.RuleCapacity}, says: []string{"at most 24 vGPUs of that size"},
		},
		"too much memory": {
			card: l40s(), want: vgpu.Layout{Types: map[string]int{"L40S-12Q": 3, "L40S-24Q": 1}},
			rules: []string{vgpu.RuleCapacity}, says: []string{"48.0 GiB", "60.0 GiB"},
		},
		"too few functions": {
			card: l40s(), want: vgpu.Layout{Type: "L40S-2Q", Count: number(17)},
			rules: []string{vgpu.RuleCapacity}, says: []string{"there are 16"},
		},
		"as many as fit in mixed sizes": {
			card: l40s(), want: vgpu.Layout{Type: "L40S-2Q", Heterogeneous: flag(true)},
			rules: []string{vgpu.RuleCapacity}, says: []string{"say count"},
		},
		"as many as nobody knows": {
			card: l40s(), alter: func(g *vgpu.GPU) {
				for i := range g.Types {
					g.Types[i].Max = 0
				}
			}, want: vgpu.Layout{Type: "L40S-2Q"},
			rules: []string{vgpu.RuleCapacity}, says: []string{"say count"},
		},
		"MIG-backed and time-sliced": {
			card: h200(), want: vgpu.Layout{Types: map[string]int{"H200X-3-71C": 1, "H200X-35C": 1}},
			rules: []string{vgpu.RuleMIG}, says: []string{"1 H200X-3-71C, 1 H200X-35C"},
		},
		"MIG-backed without MIG": {
			card: h200(), alter: func(g *vgpu.GPU) { g.MIG = nil }, want: vgpu.Layout{Type: "H200X-3-71C"},
			rules: []string{vgpu.RuleMIG}, says: []string{"H200X-3-71C"},
		},
		"MIG-backed by its name alone": {
			card: h200(), alter: func(g *vgpu.GPU) {
				for i := range g.Types {
					g.Types[i].Instance = ""
				}
			}, want: vgpu.Layout{Type: "H200X-3-71C"},
			rules: []string{vgpu.RuleMIG}, says: []string{"which MIG profile"},
		},
		"somebody's MIG instances": {
			card: h200(), alter: func(g *vgpu.GPU) {
				g.MIG = &gpu.MIG{Enabled: true, Instances: []gpu.GPUInstance{{Profile: "3g.71gb"}}}
			}, want: vgpu.Layout{Type: "H200X-3-71C"},
			rules: []string{vgpu.RuleMIG}, says: []string{"1 3g.71gb", "would destroy them"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := read(t, vgputest.New(t, tt.card).Host())
			if tt.alter != nil {
				tt.alter(&g)
			}
			var rules []string
			for _, f := range vgpu.Check(g, tt.want) {
				rules = append(rules, f.Rule)
				for _, s := range append(tt.says, address) {
					if !strings.Contains(f.Message, s) {
						t.Errorf("the message does not say %q: %s", s, f.Message)
					}
				}
			}
			if d := cmp.Diff(tt.rules, rules); d != "" {
				t.Error(d)
			}
			if _, err := vgpu.Plan(g, tt.want); (err != nil) != (len(tt.rules) > 0) {
				t.Errorf("the plan says %v", err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		layout vgpu.Layout
		says   string
	}{
		"nothing":             {vgpu.Layout{}, ""},
		"a type":              {vgpu.Layout{Type: "L40S-2Q", Count: number(1)}, ""},
		"types":               {vgpu.Layout{Types: map[string]int{"L40S-2Q": 1}}, ""},
		"both":                {vgpu.Layout{Type: "L40S-2Q", Types: map[string]int{"L40S-2Q": 1}}, "exclude"},
		"count without type":  {vgpu.Layout{Count: number(1)}, "count belongs"},
		"count of none":       {vgpu.Layout{Type: "L40S-2Q", Count: number(0)}, "count is 0"},
		"a type without many": {vgpu.Layout{Types: map[string]int{"L40S-2Q": 0}}, "0 of L40S-2Q"},
	}
	for name, tt := range tests {
		err := tt.layout.Validate()
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, wanted %q", name, err, tt.says)
		}
	}
}

func TestNamesOfTypes(t *testing.T) {
	g := vgpu.GPU{Types: []vgpu.Type{
		{ID: 1, Name: "NVIDIA RTX Pro 6000 Blackwell DC-1-24Q"},
		{ID: 2, Name: "GRID M60-0Q"},
		{ID: 3, Name: "GRID P100-2B4"},
		{ID: 4, Name: "NVIDIA A100D-1-10CME"},
		{ID: 5},
	}}
	for name, want := range map[string]int{
		"DC-1-24Q": 1, "RTX Pro 6000 Blackwell DC-1-24Q": 1, "NVIDIA RTX Pro 6000 Blackwell DC-1-24Q": 1,
		"m60-0q": 2, "GRID P100-2B4": 3, "A100D-1-10CME": 4, "A100D-1-10C": 0, "5": 0, "": 0,
	} {
		if got, ok := g.Find(name); got.ID != want || ok != (want > 0) {
			t.Errorf("%q is type %d, wanted %d", name, got.ID, want)
		}
	}
	for i, want := range []bool{true, false, false, true, false} {
		if g.Types[i].MIGBacked() != want {
			t.Errorf("%s: MIG-backed is %t", g.Types[i].Name, !want)
		}
	}
}
