package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func (r *rig) vgpu(id string) gpu.VGPUState {
	r.t.Helper()
	h := r.look()
	g, ok := h.GPU(id)
	if !ok || g.VGPU == nil {
		r.t.Fatalf("no GPU %s with vGPUs", id)
	}
	return g.VGPU.State()
}

// wantVGPUs checks the vGPUs of a GPU whose functions are on, by place.
func (r *rig) wantVGPUs(id string, mixed bool, want ...gpu.VGPUPlace) {
	r.t.Helper()
	if d := cmp.Diff(gpu.VGPUState{FunctionsOn: true, Heterogeneous: mixed, Places: want}, r.vgpu(id), cmpopts.EquateEmpty()); d != "" {
		r.t.Errorf("GPU %s (-want +got):\n%s", id, d)
	}
}

// TestVGPUSteps checks that only what differs is touched, in the order that works.
func TestVGPUSteps(t *testing.T) {
	two := vgpus("vdi", map[string]int{q12: 2}, ada1)
	made := layout("1", "vgpu", nil, two)
	mixed := vgpus("vdi", map[string]int{q12: 1, q24: 1}, ada1)
	backed, fewer, sliced := vgpus("mig", map[string]int{c10: 2, c40: 1}, hybrid), vgpus("mig", map[string]int{c10: 1}, hybrid),
		vgpus("mig", map[string]int{c20: 2}, hybrid)
	full := vgpus("vdi", nil, ada1)
	full.VGPU = &gpu.VGPULayout{Type: q24}
	claimOnly := func(ch agent.Change) agent.Change {
		ch.ClaimOnly = true
		return ch
	}
	const (
		functions, mixing, create, remove = change.OpSetFunctions, change.OpSetHeterogeneous, change.OpCreateVGPU, change.OpRemoveVGPU
		mode, divide, join                = change.OpSetMIGMode, change.OpCreateInstance, change.OpDestroyInstance
		stop, start, put, drop            = change.OpStopUnit, change.OpStartUnit, change.OpPutClaim, change.OpDropClaim
	)
	for _, tt := range []struct {
		name   string
		before []agent.Change
		meddle func(*testing.T, *rig)
		ch     agent.Change
		want   []change.Op
	}{
		{name: "as many as fit", ch: layout("x", "vgpu", nil, full), want: []change.Op{stop, functions, create, create, start, put}},
		{name: "of two sizes", ch: layout("x", "vgpu", nil, mixed), want: []change.Op{stop, functions, mixing, create, create, start, put}},
		{
			name: "without functions", ch: layout("x", "vgpu", nil, vgpus("old", map[string]int{t4q: 2}, turing)),
			want: []change.Op{create, create, put},
		},
		{name: "nothing when all is as wanted", before: []agent.Change{made}, ch: layout("x", "vgpu", two, two)},
		{
			name: "one that is gone", before: []agent.Change{made}, ch: layout("x", "vgpu", two, two),
			meddle: func(t *testing.T, r *rig) {
				t.Helper()
				check(t, r.fleet.RemoveVGPUOutside(t.Context(), host, ada1, vgpuAt(q12, 0)))
			},
			want: []change.Op{create},
		},
		{
			name: "the mode of mixed sizes takes a GPU without vGPUs", before: []agent.Change{made}, ch: layout("x", "vgpu", two, mixed),
			want: []change.Op{remove, remove, mixing, create, create, put},
		},
		{
			name: "restored", before: []agent.Change{layout("1", "vgpu", nil, mixed)}, ch: layout("x", "vgpu", mixed, nil),
			want: []change.Op{stop, remove, remove, mixing, functions, start, drop},
		},
		{
			name: "MIG-backed, of two sizes", ch: layout("x", "vgpu", nil, backed),
			want: []change.Op{stop, mode, functions, divide, divide, divide, create, create, create, start, put},
		},
		{
			name: "MIG-backed, fewer", before: []agent.Change{layout("1", "vgpu", nil, backed)}, ch: layout("x", "vgpu", backed, fewer),
			want: []change.Op{remove, remove, join, join, put},
		},
		{
			name: "MIG-backed, where others have the mode on and an instance", ch: layout("x", "vgpu", nil, fewer),
			meddle: func(t *testing.T, r *rig) {
				t.Helper()
				check(t, r.sim.SetMIGMode(t.Context(), hybrid, true, false))
				check(t, r.sim.SetVirtualFunctions(t.Context(), hybrid, true))
				check(t, r.sim.CreateInstance(t.Context(), hybrid, at(g3, 4)))
			},
			want: []change.Op{join, divide, create, put},
		},
		{
			name: "MIG-backed make way for others", before: []agent.Change{layout("1", "vgpu", nil, backed)},
			ch:   layout("x", "vgpu", backed, sliced),
			want: []change.Op{stop, remove, remove, remove, join, join, join, functions, mode, functions, create, create, start, put},
		},
		{
			name: "MIG-backed, restored", before: []agent.Change{layout("1", "vgpu", nil, backed)}, ch: layout("x", "vgpu", backed, nil),
			want: []change.Op{stop, remove, remove, remove, join, join, join, functions, mode, start, drop},
		},
		{name: "the claim alone", ch: claimOnly(layout("x", "vgpu", nil, two)), want: []change.Op{put}},
		{name: "the claim alone goes", before: []agent.Change{made}, ch: claimOnly(layout("x", "vgpu", two, nil)), want: []change.Op{drop}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, onKVM)
			r.done(tt.before...)
			if tt.meddle != nil {
				tt.meddle(t, r)
			}
			r.wantSteps(tt.ch, tt.want...)
			_, err := r.apply(tt.ch)
			check(t, err)
			_, err = r.Settle(t.Context(), r.fence, tt.ch.ID, false)
			check(t, err)
			if !tt.ch.Want.Empty() && !tt.ch.ClaimOnly {
				again := tt.ch
				again.ID = "again"
				r.wantSteps(again)
			}
		})
	}
}

// TestVGPUInUse has virtual machines and processes in the way: they are named, and nothing
// is touched.
func TestVGPUInUse(t *testing.T) {
	two := vgpus("vdi", map[string]int{q12: 2}, ada1)
	one := vgpus("vdi", map[string]int{q12: 1}, ada1)
	held := func(t *testing.T, function int) *rig {
		t.Helper()
		r := newRig(t, onKVM)
		r.done(layout("1", "vgpu", nil, two))
		check(t, r.fleet.HoldVGPU(t.Context(), host, ada1, vgpuAt(q12, function), "web-01"))
		return r
	}
	t.Run("a held one stays", func(t *testing.T) {
		r := held(t, 1)
		r.done(layout("x", "vgpu", two, one))
		r.wantVGPUs(ada1, false, vgpuAt(q12, 1))
	})
	t.Run("of another type", func(t *testing.T) {
		r := held(t, 1)
		r.refusedMIG(layout("x", "vgpu", two, vgpus("vdi", map[string]int{q24: 1}, ada1)), backend.InUse, ada1, "web-01", "virtual function 1")
	})
	t.Run("on a GPU that gets another mode", func(t *testing.T) {
		r := held(t, 0)
		r.refusedMIG(layout("x", "vgpu", two, vgpus("vdi", map[string]int{q12: 1, q24: 1}, ada1)), backend.InUse, ada1, "web-01")
	})
	t.Run("on a GPU that is given back", func(t *testing.T) {
		r := held(t, 0)
		r.refusedMIG(layout("x", "vgpu", two, nil), backend.InUse, ada1, "web-01", "on_destroy")
		kept := *two
		kept.Restore = false
		r.done(layout("y", "vgpu", &kept, nil))
		r.wantVGPUs(ada1, false, vgpuAt(q12, 0), vgpuAt(q12, 1))
	})
	t.Run("processes while functions are switched", func(t *testing.T) {
		r := newRig(t, onKVM)
		pid := r.process(ada1, nil, gpu.Process{Name: "python", Holder: "unit " + trainer})
		r.refusedMIG(layout("x", "vgpu", nil, two), backend.InUse, ada1, "python", trainer)
		check(t, r.fleet.StopProcess(t.Context(), host, pid))
		r.process(ada1, nil, gpu.Process{Name: "dcgm", Holder: "unit " + dcgm})
		r.done(layout("y", "vgpu", nil, two))
		r.wantVGPUs(ada1, false, vgpuAt(q12, 0), vgpuAt(q12, 1))
	})
	t.Run("since the change began", func(t *testing.T) {
		r := newRig(t, onKVM)
		r.done(layout("1", "vgpu", nil, two))
		before := r.look()
		holds := false
		r.breaker.hook = func(write string) {
			if write == "remove vGPU" && !holds {
				holds = true
				check(t, r.fleet.HoldVGPU(t.Context(), host, ada1, vgpuAt(q12, 0), "web-01"))
			}
		}
		_, err := r.apply(layout("x", "vgpu", two, vgpus("vdi", map[string]int{q24: 1}, ada1)))
		r.breaker.hook = nil
		e := codeOf(t, err, agent.StepFailed)
		if e.Outcome == nil || !e.Outcome.RolledBack || !strings.Contains(e.Error(), "web-01") {
			t.Errorf("error = %v, outcome %+v", e, e.Outcome)
		}
		check(t, r.fleet.ReleaseVGPU(t.Context(), host, ada1, vgpuAt(q12, 0)))
		wantSame(t, before, r.look())
		r.wantJournal(0)
	})
}

// TestVGPURefused has layouts that a GPU cannot have.
func TestVGPURefused(t *testing.T) {
	never := vgpus("vdi", map[string]int{q12: 1, q24: 1}, ada1)
	never.VGPU.Heterogeneous = new(false)
	for _, tt := range []struct {
		name string
		want *gpu.PartitionConfig
		code backend.Code
		says []string
	}{
		{"a type of another model", vgpus("vdi", map[string]int{t4q: 1}, ada1), backend.InvalidParameter, []string{t4q, q12, q24}},
		{
			"a MIG-backed type beside another", vgpus("vdi", map[string]int{c10: 1, c20: 1}, hybrid), backend.InvalidParameter,
			[]string{"H100-1-10C and H100-20C cannot be beside each other"},
		},
		{
			"more instances than there is room for", vgpus("vdi", map[string]int{c10: 7, c40: 1}, hybrid),
			backend.Insufficient,
			[]string{"no room for their GPU instances"},
		},
		{"two sizes without the mode", never, backend.InvalidParameter, []string{"heterogeneous"}},
		{"too many", vgpus("vdi", map[string]int{q12: 5}, ada1), backend.Insufficient, []string{"5 × " + q12, "4 at most"}},
		{"no vGPU driver", vgpus("vdi", map[string]int{q12: 1}, noMIG), backend.NotSupported, nil},
		{"no such GPU", vgpus("vdi", map[string]int{q12: 1}, "GPU-none"), backend.NotFound, []string{"GPU-none"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, func(h *gpu.Host) {
				onKVM(h)
				h.GPUs = append(h.GPUs, nvidiaGPU(noMIG, "NVIDIA L40S", "26B9"))
			})
			r.refusedMIG(layout("x", "vgpu", nil, tt.want), tt.code, tt.says...)
		})
	}
	t.Run("in MIG mode", func(t *testing.T) {
		r := newRig(t, onKVM)
		check(t, r.sim.SetMIGMode(t.Context(), hybrid, true, false))
		r.refusedMIG(layout("x", "vgpu", nil, vgpus("vdi", map[string]int{c20: 1}, hybrid)), backend.InvalidState, hybrid, "MIG mode")
	})
	t.Run("on Hyper-V", func(t *testing.T) {
		r := newRig(t, nil)
		r.refusedMIG(layout("x", "vgpu", nil, vgpus("vdi", map[string]int{q12: 1}, gpuP1)), backend.NotSupported, "Linux")
	})
}

// TestVGPUClaim checks what the host keeps of a config: what was before, and what is to be
// put back.
func TestVGPUClaim(t *testing.T) {
	r := newRig(t, onKVM)
	check(t, r.sim.SetVirtualFunctions(t.Context(), ada1, true))
	check(t, r.fleet.CreateVGPUOutside(t.Context(), host, ada1, vgpuAt(q24, 7)))
	before := r.look()
	mixed := vgpus("vdi", map[string]int{q12: 2}, ada1)
	old := vgpus("old", map[string]int{t4q: 2}, turing)
	r.done(layout("1", "vgpu", nil, mixed), layout("2", "old", nil, old))
	c, _ := r.claim(gpu.ClaimConfig, "vdi")
	if d := cmp.Diff(&gpu.VGPUState{FunctionsOn: true, Places: []gpu.VGPUPlace{vgpuAt(q24, 7)}}, c.OriginalLayouts.Of(ada1).VGPU); d != "" {
		t.Error(d)
	}
	if s := c.AppliedLayouts.Of(ada1).VGPU; s == nil || !s.FunctionsOn || len(s.Places) != 2 || s.Places[1].Function != 1 {
		t.Errorf("the layout is recorded as %+v", s)
	}
	o, _ := r.claim(gpu.ClaimConfig, "old")
	if d := cmp.Diff(r.vgpu(turing), *o.AppliedLayouts.Of(turing).VGPU); d != "" {
		t.Errorf("mediated devices are recorded with other UUIDs:\n%s", d)
	}
	r.done(layout("3", "vgpu", mixed, nil), layout("4", "old", old, nil))
	wantSame(t, before, r.look())
}

// declaredVGPUs is a host with two layouts, of which the run that made them has ended.
func declaredVGPUs(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, onKVM)
	r.done(
		layout("1", "vgpu", nil, vgpus("vdi", map[string]int{q12: 1, q24: 1}, ada1, ada2)),
		layout("2", "old", nil, vgpus("old", map[string]int{t4q: 2}, turing)),
	)
	check(t, r.ReleaseLease(t.Context(), r.fence))
	return r
}

func TestVGPURestoreAfterReboot(t *testing.T) {
	r := declaredVGPUs(t)
	before := r.look()
	if got := r.reconcile(); len(got) > 0 || r.breaker.count() > 0 {
		t.Errorf("a host that lost nothing: %+v, %d writes", got, r.breaker.count())
	}
	r.reboot()
	if s := r.vgpu(ada1); s.FunctionsOn || len(s.Places) > 0 {
		t.Fatalf("the reboot left %+v", s)
	}
	lost := ": virtual functions, heterogeneous mode, L40S-24Q on virtual function 0, L40S-12Q on virtual function 1"
	want := []agent.Settled{
		{Subject: `the vGPUs of partition config "vdi"`, Restored: []string{"GPU " + ada1 + lost, "GPU " + ada2 + lost}},
		{Subject: `the vGPUs of partition config "old"`, Restored: []string{"GPU " + turing + ": T4-4Q, T4-4Q"}},
	}
	if d := cmp.Diff(want, r.reconcile()); d != "" {
		t.Error(d)
	}
	wantSame(t, before, r.look())
	r.wantJournal(0)
	if got := r.reconcile(); len(got) > 0 || r.breaker.count() > 0 {
		t.Errorf("a second time: %+v, %d writes", got, r.breaker.count())
	}
}

// TestVGPURestoreConflicts has GPUs that cannot get back what they lost. Each is named and
// left alone, and the others are restored.
func TestVGPURestoreConflicts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		meddle func(*testing.T, *rig)
		says   []string
	}{
		{"somebody made another on its function", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.sim.SetVirtualFunctions(t.Context(), ada1, true))
			check(t, r.sim.SetHeterogeneous(t.Context(), ada1, true))
			check(t, r.fleet.CreateVGPUOutside(t.Context(), host, ada1, vgpuAt(q12, 0)))
		}, []string{q12, q24, "virtual function 0"}},
		{"somebody made one without the mode", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.sim.SetVirtualFunctions(t.Context(), ada1, true))
			check(t, r.fleet.CreateVGPUOutside(t.Context(), host, ada1, vgpuAt(q12, 5)))
		}, []string{q12, "virtual function 5"}},
		{"somebody uses it", func(t *testing.T, r *rig) {
			t.Helper()
			r.process(ada1, nil, gpu.Process{PID: 4711, Name: "python", Holder: "unit " + trainer})
		}, []string{"4711", "python", trainer}},
		{"it is gone", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
				s.Hosts[0].GPUs = slices.DeleteFunc(s.Hosts[0].GPUs, func(g gpu.GPU) bool { return g.ID == ada1 })
				return nil
			}))
		}, []string{"does not have it"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := declaredVGPUs(t)
			r.reboot()
			tt.meddle(t, r)
			h := r.look()
			was, there := h.GPU(ada1)
			got := r.reconcile()
			if len(got) != 2 || len(got[0].Restored) != 1 || len(got[0].Stands) != 1 || len(got[1].Stands) > 0 {
				t.Fatalf("settled %+v", got)
			}
			for _, word := range append(tt.says, ada1) {
				if !strings.Contains(got[0].Stands[0], word) {
					t.Errorf("it does not say %q: %s", word, got[0].Stands[0])
				}
			}
			if there {
				h := r.look()
				now, _ := h.GPU(ada1)
				if d := cmp.Diff(was, now); d != "" {
					t.Errorf("the GPU was touched:\n%s", d)
				}
			}
			r.wantVGPUs(ada2, true, vgpuAt(q24, 0), vgpuAt(q12, 1))
		})
	}
}

// TestVGPURestoreTouchesNothingHeld has a part of a layout still there, held by a VM.
func TestVGPURestoreTouchesNothingHeld(t *testing.T) {
	r := declaredVGPUs(t)
	check(t, r.fleet.HoldVGPU(t.Context(), host, ada1, vgpuAt(q12, 1), "web-01"))
	check(t, r.fleet.RemoveVGPUOutside(t.Context(), host, ada1, vgpuAt(q24, 0)))
	if got := r.reconcile(); len(got) != 1 || len(got[0].Restored) != 1 || len(got[0].Stands) > 0 {
		t.Errorf("settled %+v", got)
	}
	r.wantVGPUs(ada1, true, vgpuAt(q24, 0), vgpuAt(q12, 1))
}

// TestVGPURestoreBesideATakenFunction has a VM with a function that NVIDIA's driver has not: it is named, and what else
// is missing is put back.
func TestVGPURestoreBesideATakenFunction(t *testing.T) {
	r := declaredVGPUs(t)
	check(t, r.fleet.DefineVM(t.Context(), host, ada1, vgpuAt(q24, 0), "web-01", gpu.VMRunning))
	check(t, r.fleet.TakeFunction(t.Context(), host, ada1, vgpuAt(q24, 0), "vfio-pci"))
	check(t, r.fleet.RemoveVGPUOutside(t.Context(), host, ada1, vgpuAt(q12, 1)))
	got := r.reconcile()
	if len(got) != 1 || len(got[0].Stands) == 0 {
		t.Fatalf("settled %+v", got)
	}
	for _, word := range []string{ada1, q24, "virtual function 0 is bound to vfio-pci", "VM web-01"} {
		if !strings.Contains(got[0].Stands[0], word) {
			t.Errorf("it does not say %q: %s", word, got[0].Stands[0])
		}
	}
	r.wantVGPUs(ada1, true, vgpuAt(q12, 1))
}

// TestVGPUOfAVMThatIsOffIsRefused has a VM defined after the plan: the host refuses before its first step.
func TestVGPUOfAVMThatIsOffIsRefused(t *testing.T) {
	r := newRig(t, onKVM)
	before := vgpus("vdi", map[string]int{q12: 2}, ada1)
	r.done(layout("1", "vgpu", nil, before))
	check(t, r.fleet.DefineVM(t.Context(), host, ada1, vgpuAt(q12, 1), "web-01", gpu.VMOff))
	for name, want := range map[string]*gpu.PartitionConfig{
		"another type": vgpus("vdi", map[string]int{q24: 2}, ada1), "none": vgpus("vdi", map[string]int{}, ada1),
	} {
		t.Run(name, func(*testing.T) {
			r.refusedMIG(layout("2", "vgpu", before, want), backend.InUse, ada1, "VM web-01 (off)", "from the definitions of VMs")
		})
	}
	r.wantVGPUs(ada1, false, vgpuAt(q12, 0), vgpuAt(q12, 1))
}
