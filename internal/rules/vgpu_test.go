package rules_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

func vgpuAt(typ string, function int) gpu.VGPUPlace {
	return gpu.VGPUPlace{Type: typ, Function: function}
}

// anyUUID leaves out what is a function of the place.
var anyUUID = cmpopts.IgnoreFields(gpu.VGPUPlace{}, "UUID")

func TestLayOutVGPU(t *testing.T) {
	mixing := l40s(migGPU0, q12)
	mixing.VGPU.Heterogeneous = true
	tests := map[string]struct {
		gpu  gpu.GPU
		want gpu.VGPULayout
		plan placement.VGPUPlan
	}{
		"from nothing, as many as fit": {
			l40s(migGPU0),
			gpu.VGPULayout{Type: q24},
			placement.VGPUPlan{FunctionsOn: true, Create: []gpu.VGPUPlace{vgpuAt(q24, 0), vgpuAt(q24, 1)}},
		},
		"by the driver's name": {
			l40s(migGPU0),
			gpu.VGPULayout{Type: "nvidia l40s-24q", Count: ptr(1)},
			placement.VGPUPlan{FunctionsOn: true, Create: []gpu.VGPUPlace{vgpuAt(q24, 0)}},
		},
		"two sizes, the largest first": {
			l40s(migGPU0),
			gpu.VGPULayout{Types: map[string]int{q12: 2, q24: 1}},
			placement.VGPUPlan{FunctionsOn: true, Heterogeneous: true, Create: []gpu.VGPUPlace{vgpuAt(q24, 0), vgpuAt(q12, 1), vgpuAt(q12, 2)}},
		},
		"the held one stays": {
			heldBy(l40s(migGPU0, q12, q12, q12), 2, "VM web-01"), vgpuTypes(q12, 1),
			placement.VGPUPlan{FunctionsOn: true, Keep: []gpu.VGPUPlace{vgpuAt(q12, 2)}, Remove: []gpu.VGPUPlace{vgpuAt(q12, 1), vgpuAt(q12, 0)}},
		},
		"a second size ends the first for the mode": {
			l40s(migGPU0, q12),
			gpu.VGPULayout{Types: map[string]int{q12: 1, q24: 1}},
			placement.VGPUPlan{
				FunctionsOn: true, Heterogeneous: true, Remove: []gpu.VGPUPlace{vgpuAt(q12, 0)},
				Create: []gpu.VGPUPlace{vgpuAt(q24, 1), vgpuAt(q12, 0)},
			},
		},
		"the mode that nobody asks to end stays": {
			mixing, vgpuTypes(q12, 2),
			placement.VGPUPlan{
				FunctionsOn: true, Heterogeneous: true, Keep: []gpu.VGPUPlace{vgpuAt(q12, 0)}, Create: []gpu.VGPUPlace{vgpuAt(q12, 1)},
			},
		},
		"none": {l40s(migGPU0, q12), gpu.VGPULayout{}, placement.VGPUPlan{Remove: []gpu.VGPUPlace{vgpuAt(q12, 0)}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := placement.LayOutVGPU(&tt.gpu, &tt.want, gpu.Layout{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.plan, got, cmpopts.EquateEmpty(), anyUUID); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			if placement.HasVGPULayout(&tt.gpu, &tt.want) || !got.Changes(&tt.gpu) {
				t.Error("it has the layout already")
			}
			s := *got.Layout().VGPU
			tt.gpu.VGPU.FunctionsOn, tt.gpu.VGPU.Heterogeneous, tt.gpu.VGPU.Instances = s.FunctionsOn, s.Heterogeneous, nil
			for _, p := range s.Places {
				tt.gpu.VGPU.Instances = append(tt.gpu.VGPU.Instances, gpu.VGPUInstance{VGPUPlace: p})
			}
			again, err := placement.LayOutVGPU(&tt.gpu, &tt.want, gpu.Layout{})
			if err != nil || again.Changes(&tt.gpu) || !placement.HasVGPULayout(&tt.gpu, &tt.want) {
				t.Errorf("it does not have the layout afterwards: %+v, %v", again, err)
			}
		})
	}
}

// MIG-backed types have their GPU instances beside them: what is held keeps its own, a vGPU that
// stays keeps it where there is room, and MIG mode comes and goes with the types.
func TestLayOutMIGBackedVGPUs(t *testing.T) {
	halves := backed(h100(migGPU0, at("3g.40gb", 0), at("3g.40gb", 4)))
	silent := backed(h100(migGPU0, at("1g.10gb", 0), at("1g.10gb", 1)))
	for i := range silent.VGPU.Instances {
		silent.VGPU.Instances[i].GPUInstance = nil
	}
	without := func(g gpu.GPU) gpu.GPU {
		g.VGPU.Instances, g.VGPU.FunctionsOn = nil, false
		return g
	}
	instances := func(keep, remove, create []gpu.MIGPlacement) *placement.VGPUInstances {
		return &placement.VGPUInstances{Enable: true, MIGPlan: placement.MIGPlan{Keep: keep, Remove: remove, Create: create}}
	}
	list := func(p ...gpu.MIGPlacement) []gpu.MIGPlacement { return p }
	for name, tt := range map[string]struct {
		gpu   gpu.GPU
		given gpu.Layout
		want  gpu.VGPULayout
		plan  placement.VGPUPlan
		fails *gpu.Fault
	}{
		"from nothing, as many as fit": {
			gpu: backed(migOff(h100(migGPU0))), want: gpu.VGPULayout{Type: c20},
			plan: placement.VGPUPlan{
				FunctionsOn: true, Create: []gpu.VGPUPlace{vgpuAt(c20, 0), vgpuAt(c20, 1), vgpuAt(c20, 2)},
				MIG: instances(nil, nil, list(at("2g.20gb", 0), at("2g.20gb", 2), at("2g.20gb", 4))),
			},
		},
		"two in an instance": {
			gpu: backed(migOff(h100(migGPU0))), want: vgpuTypes(shared, 3),
			plan: placement.VGPUPlan{
				FunctionsOn: true, Create: []gpu.VGPUPlace{vgpuAt(shared, 0), vgpuAt(shared, 1), vgpuAt(shared, 2)},
				MIG: instances(nil, nil, list(at("3g.40gb", 0), at("3g.40gb", 4))),
			},
		},
		"functions that come on take the instances": {
			gpu: without(backed(h100(migGPU0, at("1g.10gb", 3)))), want: vgpuTypes(c10, 1),
			plan: placement.VGPUPlan{
				FunctionsOn: true, Create: []gpu.VGPUPlace{vgpuAt(c10, 0)}, MIG: instances(nil, list(at("1g.10gb", 3)), list(at("1g.10gb", 6))),
			},
		},
		"the held one keeps its instance": {
			gpu: heldBy(halves, 1, "VM web-01"), want: vgpuTypes(c40, 1),
			plan: placement.VGPUPlan{
				FunctionsOn: true, Keep: []gpu.VGPUPlace{vgpuAt(c40, 1)}, Remove: []gpu.VGPUPlace{vgpuAt(c40, 0)},
				MIG: instances(list(at("3g.40gb", 4)), list(at("3g.40gb", 0)), nil),
			},
		},
		"one that nobody holds moves for another": {
			gpu: backed(h100(migGPU0, at("1g.10gb", 0), at("1g.10gb", 4))), want: gpu.VGPULayout{Types: map[string]int{c10: 2, c40: 1}},
			plan: placement.VGPUPlan{
				FunctionsOn: true, Keep: []gpu.VGPUPlace{vgpuAt(c10, 0)}, Remove: []gpu.VGPUPlace{vgpuAt(c10, 1)},
				Create: []gpu.VGPUPlace{vgpuAt(c40, 2), vgpuAt(c10, 1)},
				MIG:    instances(list(at("1g.10gb", 0)), list(at("1g.10gb", 4)), list(at("1g.10gb", 1), at("3g.40gb", 4))),
			},
		},
		"more than there is room for": {
			gpu: backed(h100(migGPU0, at("1g.10gb", 2))), want: gpu.VGPULayout{Types: map[string]int{c10: 1, c40: 2}},
			fails: new(placement.VGPUCapacity),
		},
		"an instance that is too much goes": {
			gpu: backed(h100(migGPU0, at("1g.10gb", 2), at("1g.10gb", 6))), want: gpu.VGPULayout{Types: map[string]int{c10: 1, c40: 1}},
			plan: placement.VGPUPlan{
				FunctionsOn: true, Keep: []gpu.VGPUPlace{vgpuAt(c10, 0)}, Remove: []gpu.VGPUPlace{vgpuAt(c10, 1)},
				Create: []gpu.VGPUPlace{vgpuAt(c40, 1)},
				MIG:    instances(list(at("1g.10gb", 2)), list(at("1g.10gb", 6)), list(at("3g.40gb", 4))),
			},
		},
		"where the driver does not tell, all of the profile are made again": {
			gpu: silent, want: vgpuTypes(c10, 1),
			plan: placement.VGPUPlan{
				FunctionsOn: true, Remove: []gpu.VGPUPlace{vgpuAt(c10, 0), vgpuAt(c10, 1)}, Create: []gpu.VGPUPlace{vgpuAt(c10, 0)},
				MIG: instances(list(at("1g.10gb", 0)), list(at("1g.10gb", 1)), nil),
			},
		},
		"where the driver does not tell, and one is held, none goes": {
			gpu: heldBy(silentCopy(silent), 0, "VM web-01"), want: vgpuTypes(c10, 1), fails: new(placement.VGPUInstancesHeld),
		},
		"MIG mode of ours goes with the types": {
			gpu: backed(h100(migGPU0, at("1g.10gb", 0))), given: gpu.Layout{MIG: &gpu.MIGState{Enabled: true}}, want: vgpuTypes("H100-20C", 1),
			plan: placement.VGPUPlan{
				FunctionsOn: true, Remove: []gpu.VGPUPlace{vgpuAt(c10, 0)}, Create: []gpu.VGPUPlace{vgpuAt("H100-20C", 0)},
				MIG: &placement.VGPUInstances{MIGPlan: placement.MIGPlan{Remove: list(at("1g.10gb", 0))}},
			},
		},
		"that of others stays": {
			gpu: backed(h100(migGPU0, at("1g.10gb", 0))), want: vgpuTypes("H100-20C", 1), fails: new(placement.VGPUInMIGMode),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := placement.LayOutVGPU(&tt.gpu, &tt.want, tt.given)
			if tt.fails != nil {
				if placement.FaultOf(err) != *tt.fails {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.plan, got, cmpopts.EquateEmpty(), anyUUID); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			if placement.HasVGPULayout(&tt.gpu, &tt.want) || !got.Changes(&tt.gpu) {
				t.Error("it has the layout already")
			}
		})
	}
}

// silentCopy is a GPU with vGPUs of its own.
func silentCopy(g gpu.GPU) gpu.GPU {
	v := *g.VGPU
	v.Instances = slices.Clone(v.Instances)
	g.VGPU = &v
	return g
}

// TestVGPUUUIDs has the mediated devices of a GPU itself: each is known by its UUID, which
// is the same whenever it is made.
func TestVGPUUUIDs(t *testing.T) {
	g := l40s(migGPU0)
	g.VGPU.Functions = 0
	want := vgpuTypes(q12, 3)
	first, err := placement.LayOutVGPU(&g, &want, gpu.Layout{})
	if err != nil {
		t.Fatal(err)
	}
	second, _ := placement.LayOutVGPU(&g, &want, gpu.Layout{})
	if d := cmp.Diff(first, second); d != "" {
		t.Errorf("another time:\n%s", d)
	}
	seen := map[string]bool{}
	for _, p := range first.Create {
		if seen[p.UUID] || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(p.UUID) {
			t.Errorf("UUID %q", p.UUID)
		}
		seen[p.UUID] = true
	}
	kept := first.Create[1]
	g.VGPU.Instances = []gpu.VGPUInstance{{VGPUPlace: kept}}
	rest, err := placement.LayOutVGPU(&g, &want, gpu.Layout{})
	if err != nil || len(rest.Create) != 2 || rest.Create[0].UUID == kept.UUID || rest.Create[1].UUID == kept.UUID {
		t.Errorf("beside one: %+v, %v", rest, err)
	}
	other := l40s(migGPU1)
	other.VGPU.Functions = 0
	if p, _ := placement.LayOutVGPU(&other, &want, gpu.Layout{}); seen[p.Create[0].UUID] {
		t.Error("two GPUs have mediated devices of one UUID")
	}
}

func TestFollowVGPU(t *testing.T) {
	g := heldBy(l40s(migGPU0, q12, q24), 0, "VM web-01")
	g.VGPU.Heterogeneous = true
	on := func(mixed bool, places ...gpu.VGPUPlace) gpu.Layout {
		return gpu.Layout{VGPU: &gpu.VGPUState{FunctionsOn: true, Heterogeneous: mixed, Places: places}}
	}
	if p, err := placement.FollowVGPU(&g, g.Layout()); err != nil || p.Changes(&g) {
		t.Errorf("as it is: %+v, %v", p, err)
	}
	p, err := placement.FollowVGPU(&g, on(true, vgpuAt(q12, 0), vgpuAt(q12, 9)))
	want := placement.VGPUPlan{
		FunctionsOn: true, Heterogeneous: true,
		Keep: []gpu.VGPUPlace{vgpuAt(q12, 0)}, Remove: []gpu.VGPUPlace{vgpuAt(q24, 1)}, Create: []gpu.VGPUPlace{vgpuAt(q12, 9)},
	}
	if d := cmp.Diff(want, p, anyUUID); err != nil || d != "" {
		t.Errorf("%v, plan (-want +got):\n%s", err, d)
	}
	for name, tt := range map[string]struct {
		state gpu.Layout
		fault *gpu.Fault
	}{
		"the held one goes":     {on(true), new(placement.VGPUHeld)},
		"all go for a mode":     {on(false, vgpuAt(q12, 0)), new(placement.VGPUHeld)},
		"a type of another":     {on(true, vgpuAt(q12, 0), vgpuAt("A40-4Q", 1)), new(placement.VGPUUnknownType)},
		"two on one function":   {on(true, vgpuAt(q12, 0), vgpuAt(q24, 0)), new(placement.VGPUFunction)},
		"no such function":      {on(true, vgpuAt(q12, 0), vgpuAt(q24, 32)), new(placement.VGPUFunction)},
		"two sizes, no mode":    {on(false, vgpuAt(q12, 0), vgpuAt(q24, 1)), new(placement.VGPUSizesMode)},
		"more than the GPU has": {on(true, vgpuAt(q12, 0), vgpuAt(q24, 1), vgpuAt(q24, 2)), new(placement.VGPUCapacity)},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := placement.FollowVGPU(&g, tt.state)
			if placement.FaultOf(err) != *tt.fault {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

func TestForecastVGPU(t *testing.T) {
	busy := l40s(migGPU1)
	runsIn(&busy, 0, 4711)
	onWith := func(places ...gpu.VGPUPlace) gpu.VGPUState {
		return gpu.VGPUState{FunctionsOn: true, Places: places}
	}
	for name, tt := range map[string]struct {
		second gpu.GPU // the first has what is wanted
		want   *change.VGPUEffect
		by     []string
	}{
		"as wanted": {second: l40s(migGPU1, q12)},
		"one more than wanted": {second: l40s(migGPU1, q12, q12), want: &change.VGPUEffect{
			From: onWith(vgpuAt(q12, 0), vgpuAt(q12, 1)), To: onWith(vgpuAt(q12, 0)), Keeps: []gpu.VGPUPlace{vgpuAt(q12, 0)},
			Removes: []gpu.VGPUPlace{vgpuAt(q12, 1)},
		}},
		"on a GPU in use": {second: busy, want: &change.VGPUEffect{
			To: onWith(vgpuAt(q12, 0)), Creates: []gpu.VGPUPlace{vgpuAt(q12, 0)},
		}, by: []string{"process 4711 (python, container 3f2a)"}},
		"that cannot be made now": {second: heldBy(l40s(migGPU1, q24), 0, "VM web-01")},
	} {
		t.Run(name, func(t *testing.T) {
			h := gpuServer("kvm01", l40s(migGPU0, q12), tt.second)
			got := foresee(h, create("t", vgpuConfig("vdi", vgpuTypes(q12, 1), "kvm01")))
			var want []change.GPUEffect
			if tt.want != nil {
				want = []change.GPUEffect{{GPU: migGPU1, Model: "NVIDIA L40S", VGPU: tt.want, InTheWay: tt.by}}
			}
			if d := cmp.Diff(want, got.GPUs, anyUUID, cmpopts.EquateEmpty()); d != "" || got.Class != gpu.DisruptNone {
				t.Errorf("class %s, GPUs (-want +got):\n%s", got.Class, d)
			}
		})
	}
}

func TestVGPUTexts(t *testing.T) {
	for want, s := range map[string]gpu.VGPUState{
		"vgpu:none": {}, "vgpu:2xL40S-12Q+1xL40S-24Q": {Places: []gpu.VGPUPlace{vgpuAt(q12, 0), vgpuAt(q24, 1), vgpuAt(q12, 2)}},
	} {
		if got := s.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, l := range map[string]gpu.VGPULayout{
		"no vGPUs": {}, "as many L40S-12Q as it takes": {Type: q12}, "3 × L40S-12Q": {Type: q12, Count: ptr(3)},
		"2 × L40S-12Q, 1 × L40S-24Q": {Types: map[string]int{q12: 2, q24: 1}},
	} {
		if got := placement.VGPULayoutText(&l); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
