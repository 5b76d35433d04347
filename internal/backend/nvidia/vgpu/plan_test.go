package vgpu_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu/vgputest"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Each plan is applied to the host, after which the GPU has the layout and a second plan
// is empty.
func TestPlan(t *testing.T) {
	tests := map[string]struct {
		card   vgputest.Card
		before []vgpu.Layout
		held   map[int]string // function → VM
		want   vgpu.Layout
		steps  []string
		types  map[int]string
	}{
		"time-sliced from nothing": {
			card: l40s(), want: vgpu.Layout{Type: "L40S-24Q"},
			steps: []string{"turn the virtual functions on", "make vGPU L40S-24Q on virtual function 0", "make vGPU L40S-24Q on virtual function 1"},
			types: map[int]string{0: "L40S-24Q", 1: "L40S-24Q"},
		},
		"a count": {
			card: l40s(), want: vgpu.Layout{Type: "NVIDIA L40S-12Q", Count: number(1)},
			steps: []string{"turn the virtual functions on", "make vGPU L40S-12Q on virtual function 0"},
			types: map[int]string{0: "L40S-12Q"},
		},
		"mixed sizes, the largest first": {
			card: l40s(), want: vgpu.Layout{Types: map[string]int{"L40S-12Q": 1, "l40s-24q": 1}},
			steps: []string{
				"turn the virtual functions on", "turn heterogeneous vGPU mode on",
				"make vGPU L40S-24Q on virtual function 0", "make vGPU L40S-12Q on virtual function 1",
			},
			types: map[int]string{0: "L40S-24Q", 1: "L40S-12Q"},
		},
		"series of one size need no mode": {
			card: l40s(), want: vgpu.Layout{Types: map[string]int{"L40S-2B": 1, "L40S-2Q": 1}},
			steps: []string{"turn the virtual functions on", "make vGPU L40S-2B on virtual function 0", "make vGPU L40S-2Q on virtual function 1"},
			types: map[int]string{0: "L40S-2B", 1: "L40S-2Q"},
		},
		"MIG-backed from nothing": {
			card: h200(), want: vgpu.Layout{Types: map[string]int{"H200X-1-18C": 1, "H200X-3-71C": 1}},
			steps: []string{
				"turn MIG mode on", "turn the virtual functions on", "make 1 1g.18gb, 1 3g.71gb the MIG instances",
				"make vGPU H200X-3-71C on virtual function 0", "make vGPU H200X-1-18C on virtual function 1",
			},
			types: map[int]string{0: "H200X-3-71C", 1: "H200X-1-18C"},
		},
		"more of the same": {
			card: l40s(), before: []vgpu.Layout{{Type: "L40S-12Q", Count: number(2)}}, held: map[int]string{1: "web"},
			want: vgpu.Layout{Type: "L40S-12Q", Count: number(3)}, steps: []string{"make vGPU L40S-12Q on virtual function 2"},
			types: map[int]string{0: "L40S-12Q", 1: "L40S-12Q", 2: "L40S-12Q"},
		},
		"fewer, the held one stays": {
			card: l40s(), before: []vgpu.Layout{{Type: "L40S-12Q", Count: number(3)}}, held: map[int]string{2: "web"},
			want: vgpu.Layout{Type: "L40S-12Q", Count: number(1)},
			steps: []string{
				"remove vGPU L40S-12Q from virtual function 1", "remove vGPU L40S-12Q from virtual function 0",
			},
			types: map[int]string{2: "L40S-12Q"},
		},
		"another size": {
			card: l40s(), before: []vgpu.Layout{{Type: "L40S-12Q", Count: number(1)}},
			want:  vgpu.Layout{Type: "L40S-24Q", Count: number(1)},
			steps: []string{"remove vGPU L40S-12Q from virtual function 0", "make vGPU L40S-24Q on virtual function 0"},
			types: map[int]string{0: "L40S-24Q"},
		},
		"a second size ends the first for the mode": {
			card: l40s(), before: []vgpu.Layout{{Type: "L40S-12Q", Count: number(1)}},
			want: vgpu.Layout{Types: map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}},
			steps: []string{
				"remove vGPU L40S-12Q from virtual function 0", "turn heterogeneous vGPU mode on",
				"make vGPU L40S-24Q on virtual function 1", "make vGPU L40S-12Q on virtual function 0",
			},
			types: map[int]string{0: "L40S-12Q", 1: "L40S-24Q"},
		},
		"the mode that nobody asks to end stays": {
			card: l40s(), before: []vgpu.Layout{{Types: map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}}}, held: map[int]string{1: "web"},
			want:  vgpu.Layout{Type: "L40S-12Q", Count: number(1)},
			steps: []string{"remove vGPU L40S-24Q from virtual function 0"},
			types: map[int]string{1: "L40S-12Q"},
		},
		"the mode ends": {
			card: l40s(), before: []vgpu.Layout{{Type: "L40S-12Q", Count: number(1), Heterogeneous: flag(true)}},
			want: vgpu.Layout{Type: "L40S-12Q", Count: number(1), Heterogeneous: flag(false)},
			steps: []string{
				"remove vGPU L40S-12Q from virtual function 0", "turn heterogeneous vGPU mode off", "make vGPU L40S-12Q on virtual function 0",
			},
			types: map[int]string{0: "L40S-12Q"},
		},
		"another MIG instance": {
			card: h200(), before: []vgpu.Layout{{Type: "H200X-3-71C", Count: number(1)}}, held: map[int]string{0: "web"},
			want:  vgpu.Layout{Types: map[string]int{"H200X-3-71C": 1, "H200X-1-18C": 2}},
			steps: []string{"make 2 1g.18gb, 1 3g.71gb the MIG instances", "make vGPU H200X-1-18C on virtual function 1", "make vGPU H200X-1-18C on virtual function 2"},
			types: map[int]string{0: "H200X-3-71C", 1: "H200X-1-18C", 2: "H200X-1-18C"},
		},
		"from MIG-backed to time-sliced": {
			card: h200(), before: []vgpu.Layout{{Type: "H200X-3-71C", Count: number(1)}},
			want: vgpu.Layout{Type: "H200X-35C", Count: number(1)},
			steps: []string{
				"remove vGPU H200X-3-71C from virtual function 0", "destroy the MIG instances", "turn the virtual functions off",
				"turn MIG mode off", "turn the virtual functions on", "make vGPU H200X-35C on virtual function 0",
			},
			types: map[int]string{0: "H200X-35C"},
		},
		"from time-sliced to MIG-backed": {
			card: h200(), before: []vgpu.Layout{{Types: map[string]int{"H200X-35C": 1}, Heterogeneous: flag(true)}},
			want: vgpu.Layout{Type: "H200X-3-71C", Count: number(1)},
			steps: []string{
				"remove vGPU H200X-35C from virtual function 0", "turn heterogeneous vGPU mode off", "turn the virtual functions off",
				"turn MIG mode on", "turn the virtual functions on", "make 1 3g.71gb the MIG instances", "make vGPU H200X-3-71C on virtual function 0",
			},
			types: map[int]string{0: "H200X-3-71C"},
		},
		"teardown of MIG-backed": {
			card: h200(), before: []vgpu.Layout{{Type: "H200X-3-71C", Count: number(2)}},
			steps: []string{
				"remove vGPU H200X-3-71C from virtual function 1", "remove vGPU H200X-3-71C from virtual function 0",
				"destroy the MIG instances", "turn the virtual functions off", "turn MIG mode off",
			},
		},
		"teardown of mixed sizes": {
			card: l40s(), before: []vgpu.Layout{{Types: map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}}},
			steps: []string{
				"remove vGPU L40S-12Q from virtual function 1", "remove vGPU L40S-24Q from virtual function 0",
				"turn heterogeneous vGPU mode off", "turn the virtual functions off",
			},
		},
		"teardown of nothing": {card: h200()},
		"mdev on functions": {
			card: a40(), want: vgpu.Layout{Type: "A40-24Q"},
			steps: []string{"turn the virtual functions on", "make vGPU A40-24Q on virtual function 0", "make vGPU A40-24Q on virtual function 1"},
			types: map[int]string{0: "A40-24Q", 1: "A40-24Q"},
		},
		"legacy mdev": {
			card: p40(), before: []vgpu.Layout{{Type: "P40-4Q", Count: number(5)}}, want: vgpu.Layout{Type: "P40-4Q"},
			steps: []string{"make vGPU P40-4Q on device 3434"},
			types: map[int]string{vgpu.Itself: "P40-4Q P40-4Q P40-4Q P40-4Q P40-4Q P40-4Q"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := vgputest.New(t, tt.card)
			h := k.Host()
			for _, l := range tt.before {
				apply(t, k, h, l)
			}
			g := read(t, h)
			for index, vm := range tt.held {
				f, _ := g.Function(index)
				k.HoldVM(1000+index, f.Address, vm)
			}
			steps, err := vgpu.Plan(read(t, h), tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.steps, firstWords(tt.steps, texts(steps))); d != "" {
				t.Error(d)
			}
			if err := k.Apply(h, steps); err != nil {
				t.Fatal(err)
			}
			g = read(t, h)
			if d := cmp.Diff(tt.types, types(g), emptyIsNil); d != "" {
				t.Error(d)
			}
			again, err := vgpu.Plan(g, tt.want)
			if err != nil || len(again) > 0 {
				t.Errorf("a second plan: %v, %v", texts(again), err)
			}
			if strings.Contains(strings.Join(k.Events(), "\n"), "torn") {
				t.Errorf("a vGPU was taken from a VM: %v", k.Events())
			}
		})
	}
}

// A GPU whose MIG instances serve containers has nothing of ours.
func TestTeardownLeavesMIGAlone(t *testing.T) {
	k := vgputest.New(t, h200())
	if err := k.SetMIGMode(address, true); err != nil {
		t.Fatal(err)
	}
	if err := k.SetInstances(address, map[string]int{"1g.18gb": 2}); err != nil {
		t.Fatal(err)
	}
	if steps, err := vgpu.Plan(read(t, k.Host()), vgpu.Layout{}); err != nil || len(steps) > 0 {
		t.Errorf("%v, %v", texts(steps), err)
	}
}

func TestFunctionsHeldWithoutAVGPU(t *testing.T) {
	k, h := ready(t, l40s())
	k.HoldVM(11, "0000:41:00.7", "db")
	_, err := vgpu.Plan(read(t, h), vgpu.Layout{})
	refused(t, err, backend.InUse, "0000:41:00.7", "VM db")
}

// sriov-manage ends heterogeneous mode, so what was set before it does not count.
func TestModeIsSetAfterTheFunctions(t *testing.T) {
	k := vgputest.New(t, l40s())
	h := k.Host()
	if err := h.SetHeterogeneous(t.Context(), address, true); err != nil {
		t.Fatal(err)
	}
	apply(t, k, h, vgpu.Layout{Types: map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}})
	g := read(t, h)
	if d := cmp.Diff(map[int]string{0: "L40S-24Q", 1: "L40S-12Q"}, types(g)); d != "" || !g.Heterogeneous.Enabled {
		t.Errorf("the mode is %t: %s", g.Heterogeneous.Enabled, d)
	}
}

// firstWords cuts a UUID, of which nobody knows more than that it stays the same.
func firstWords(want, got []string) []string {
	for i := range got {
		if before, _, cut := strings.Cut(got[i], " on device "); cut && i < len(want) && strings.HasPrefix(want[i], before) {
			got[i] = want[i]
		}
	}
	return got
}

var emptyIsNil = cmp.FilterValues(func(a, b map[int]string) bool { return len(a)+len(b) == 0 }, cmp.Ignore())

func TestPlanRefusesToDisturb(t *testing.T) {
	vf0 := "0000:41:00.4"
	tests := map[string]struct {
		card   vgputest.Card
		before vgpu.Layout
		vm     string
		use    gpu.Process
		want   vgpu.Layout
		says   []string
	}{
		"a held vGPU of another type": {
			card: l40s(), before: vgpu.Layout{Type: "L40S-12Q", Count: number(1)}, vm: "web-01",
			want: vgpu.Layout{Type: "L40S-24Q"},
			says: []string{"L40S-12Q on virtual function " + vf0, "VM web-01 (qemu-system-x86_64, PID 4242)"},
		},
		"fewer than are held": {
			card: l40s(), before: vgpu.Layout{Type: "L40S-12Q", Count: number(1)}, vm: "web-01",
			says: []string{"VM web-01"},
		},
		"heterogeneous mode under a held vGPU": {
			card: l40s(), before: vgpu.Layout{Type: "L40S-12Q", Count: number(1)}, vm: "web-01",
			want: vgpu.Layout{Types: map[string]int{"L40S-12Q": 1, "L40S-24Q": 1}}, says: []string{"VM web-01"},
		},
		"MIG mode under a held vGPU": {
			card: h200(), before: vgpu.Layout{Type: "H200X-35C", Count: number(1)}, vm: "web-01",
			want: vgpu.Layout{Type: "H200X-3-71C"}, says: []string{"VM web-01"},
		},
		"functions on a GPU in use": {
			card: l40s(), use: gpu.Process{PID: 7, Name: "python", Holder: "unit train.service"},
			want: vgpu.Layout{Type: "L40S-24Q"}, says: []string{"PID 7 unit train.service"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := vgputest.New(t, tt.card)
			h := k.Host()
			apply(t, k, h, tt.before)
			if tt.vm != "" {
				k.HoldVM(4242, vf0, tt.vm)
			}
			if tt.use.PID != 0 {
				k.Use(address, tt.use)
			}
			_, err := vgpu.Plan(read(t, h), tt.want)
			refused(t, err, backend.InUse, tt.says...)
		})
	}
}

func TestPlanRefusesToGuess(t *testing.T) {
	_, h := ready(t, l40s())
	create(t, h, vgpu.Spec{Type: 1153})
	g := read(t, h)
	g.HoldersHidden = true
	_, err := vgpu.Plan(g, vgpu.Layout{Type: "L40S-24Q"})
	refused(t, err, backend.AccessDenied, "run as root")
	if _, err := vgpu.Plan(g, vgpu.Layout{Type: "L40S-12Q"}); err != nil {
		t.Errorf("more of the same takes nothing away: %v", err)
	}
	_, err = vgpu.Plan(g, vgpu.Layout{Type: "L40S-13Q", Types: map[string]int{"L40S-2Q": 1}})
	refused(t, err, backend.InvalidParameter, "exclude")
	_, err = vgpu.Plan(g, vgpu.Layout{Type: "L40S-13Q"})
	refused(t, err, backend.InvalidParameter, vgpu.RuleTypeOffered, "L40S-2B, L40S-2Q, L40S-12Q, L40S-24Q, L40S-48Q")
}

// The journal is JSON.
func TestStepsSurviveTheJournal(t *testing.T) {
	k := vgputest.New(t, h200())
	h := k.Host()
	for _, l := range []vgpu.Layout{{Type: "H200X-3-71C"}, {}} {
		steps, err := vgpu.Plan(read(t, h), l)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(steps)
		if err != nil {
			t.Fatal(err)
		}
		var back []vgpu.Step
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(steps, back, cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
		if slices.ContainsFunc(back, func(s vgpu.Step) bool { return s.Inverse == nil || s.Inverse.GPU != address }) {
			t.Errorf("a step has no inverse: %s", text)
		}
		if err := k.Apply(h, back); err != nil {
			t.Fatal(err)
		}
	}
}
