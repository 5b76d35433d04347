package agent_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func (r *rig) gpu(id string) gpu.GPU {
	r.t.Helper()
	h := r.look()
	g, ok := h.GPU(id)
	if !ok {
		r.t.Fatalf("no GPU %s", id)
	}
	return *g
}

// wantDaemon checks that a daemon runs on exactly these GPUs.
func (r *rig) wantDaemon(name string, gpus ...string) {
	r.t.Helper()
	h := r.look()
	d, ok := h.Daemon(name)
	if !ok || d.PID == 0 || d.Problem != "" {
		r.t.Fatalf("MPS daemon %s does not run: %+v", name, h.MPS.Daemons)
	}
	var on []string
	for _, at := range d.Devices {
		on = append(on, at.GPU)
	}
	if !slices.Equal(on, gpus) {
		r.t.Errorf("MPS daemon %s serves %q, want %q", name, on, gpus)
	}
}

func (r *rig) wantNoDaemons() {
	r.t.Helper()
	if d := r.look().MPS.Daemons; len(d) > 0 {
		r.t.Errorf("there are MPS daemons: %+v", d)
	}
}

func (r *rig) wantComputeMode(id string, want gpu.ComputeMode) {
	r.t.Helper()
	if m := r.gpu(id).ComputeMode; m != want {
		r.t.Errorf("the compute mode of GPU %s is %s, want %s", id, m, want)
	}
}

// client starts a client of a daemon.
func (r *rig) client(daemon, name string) int {
	r.t.Helper()
	pid, err := r.fleet.StartClient(r.t.Context(), host, daemon, gpu.Process{Name: name})
	check(r.t, err)
	return pid
}

// TestSharingSteps checks that only what differs is touched, in the order that works.
func TestSharingSteps(t *testing.T) {
	two, one := mps("inference", hopper1, noMIG), mps("inference", noMIG)
	made := layout("1", "mps", nil, two)
	open := mps("inference", hopper1)
	open.MPS.ComputeMode = gpu.ComputeDefault
	kept := mps("inference", hopper1, noMIG)
	kept.Restore = false
	long := turns("notebooks", gpu.TimeSliceLong, 4, hopper1)
	replicas := turns("notebooks", gpu.TimeSliceLong, 8, hopper1)
	instances, fewer := migWithMPS("train", map[string]int{g1: 2}, hopper1), migWithMPS("train", map[string]int{g1: 1}, hopper1)
	bare := mig("train", map[string]int{g1: 2}, hopper1)
	claimOnly := func(ch agent.Change) agent.Change {
		ch.ClaimOnly = true
		return ch
	}
	const (
		mode, turn, ensure, end = change.OpSetComputeMode, change.OpSetTimeSlice, change.OpEnsureDaemon, change.OpRemoveDaemon
		toMIG, create, destroy  = change.OpSetMIGMode, change.OpCreateInstance, change.OpDestroyInstance
		put, drop, write        = change.OpPutClaim, change.OpDropClaim, change.OpWriteShare
		stop, start             = change.OpStopUnit, change.OpStartUnit
	)
	for _, tt := range []struct {
		name   string
		before []agent.Change
		meddle func(*testing.T, *rig)
		ch     agent.Change
		want   []change.Op
	}{
		{name: "modes come before the daemon", ch: made, want: []change.Op{mode, mode, ensure, put}},
		{name: "without the mode that closes a GPU", ch: layout("x", "mps", nil, open), want: []change.Op{ensure, put}},
		{name: "nothing when all is as wanted", before: []agent.Change{made}, ch: layout("x", "mps", two, two)},
		{name: "limits alone", before: []agent.Change{made}, ch: layout("x", "mps", two, limited(two)), want: []change.Op{ensure, put}},
		{
			name: "limits under a share", before: []agent.Change{made, shares("2", "a", nil, fraction("a", "inference", gib))},
			ch: layout("x", "mps", two, limited(two)), want: []change.Op{ensure, write, put},
		},
		{
			name: "a daemon that died", before: []agent.Change{made}, ch: layout("x", "mps", two, two), want: []change.Op{ensure},
			meddle: func(t *testing.T, r *rig) { t.Helper(); check(t, r.fleet.KillDaemon(t.Context(), host, "inference")) },
		},
		{name: "a GPU leaves", before: []agent.Change{made}, ch: layout("x", "mps", two, one), want: []change.Op{ensure, mode, put}},
		{
			name: "the daemon ends before its GPUs are opened", before: []agent.Change{made}, ch: layout("x", "mps", two, nil),
			want: []change.Op{end, mode, mode, drop},
		},
		{
			name: "what is kept stands", before: []agent.Change{layout("1", "mps", nil, kept)}, ch: layout("x", "mps", kept, nil),
			want: []change.Op{drop},
		},
		{
			name: "a mode that others set is theirs", before: []agent.Change{made}, ch: layout("x", "mps", two, nil),
			want: []change.Op{end, mode, drop},
			meddle: func(t *testing.T, r *rig) {
				t.Helper()
				check(t, r.fleet.SetComputeModeOutside(t.Context(), host, hopper1, gpu.ComputeProhibited))
			},
		},
		{name: "a slice", ch: layout("x", "turns", nil, long), want: []change.Op{turn, put}},
		{
			name: "more replicas", before: []agent.Change{layout("1", "turns", nil, long)}, ch: layout("x", "turns", long, replicas),
			want: []change.Op{put},
		},
		{
			name: "the slice goes", before: []agent.Change{layout("1", "turns", nil, long)}, ch: layout("x", "turns", long, nil),
			want: []change.Op{turn, drop},
		},
		{
			name: "a slice that others set is theirs", before: []agent.Change{layout("1", "turns", nil, long)},
			ch: layout("x", "turns", long, nil), want: []change.Op{drop},
			meddle: func(t *testing.T, r *rig) {
				t.Helper()
				check(t, r.fleet.SetTimeSliceOutside(t.Context(), host, hopper1, gpu.TimeSliceShort))
			},
		},
		{
			name: "from MPS to time-slicing", before: []agent.Change{layout("1", "mps", nil, mps("inference", hopper1))},
			ch:   layout("x", "turns", nil, long),
			want: []change.Op{end, mode, turn, put, put},
		},
		{
			name: "a daemon in each instance", ch: layout("x", "mig", nil, instances),
			want: []change.Op{stop, toMIG, create, create, start, ensure, ensure, put},
		},
		{
			name: "a daemon ends before its instance", before: []agent.Change{layout("1", "mig", nil, instances)},
			ch:   layout("x", "mig", instances, fewer),
			want: []change.Op{end, stop, destroy, start, put},
		},
		{
			name: "daemons alone go", before: []agent.Change{layout("1", "mig", nil, instances)}, ch: layout("x", "mig", instances, bare),
			want: []change.Op{end, end, put},
		},
		{
			name: "daemons alone come", before: []agent.Change{layout("1", "mig", nil, bare)}, ch: layout("x", "mig", bare, instances),
			want: []change.Op{ensure, ensure, put},
		},
		{name: "the claim alone", ch: claimOnly(made), want: []change.Op{put}},
		{name: "the claim alone goes", before: []agent.Change{made}, ch: claimOnly(layout("x", "mps", two, nil)), want: []change.Op{drop}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, onSharing)
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

// TestSharingPutsBack has GPUs join with modes of their own, which they get back.
func TestSharingPutsBack(t *testing.T) {
	r := newRig(t, onSharing)
	check(t, r.fleet.SetComputeModeOutside(t.Context(), host, hopper1, gpu.ComputeExclusiveProcess))
	check(t, r.fleet.SetTimeSliceOutside(t.Context(), host, hopper1, gpu.TimeSliceShort))
	before := r.look()
	sliced, served := turns("notebooks", gpu.TimeSliceLong, 4, hopper1), mps("inference", hopper1)
	r.done(layout("1", "turns", nil, sliced))
	r.wantComputeMode(hopper1, gpu.ComputeDefault)
	if s := r.gpu(hopper1).TimeSlice; s != gpu.TimeSliceLong {
		t.Errorf("the time slice is %s", s)
	}
	r.done(layout("2", "mps", nil, served))
	r.wantComputeMode(hopper1, gpu.ComputeExclusiveProcess)
	c, _ := r.claim(gpu.ClaimConfig, "inference")
	if c.OriginalLayouts.Of(hopper1).ComputeMode != gpu.ComputeExclusiveProcess || c.OriginalLayouts.Of(hopper1).
		TimeSlice != gpu.TimeSliceShort {
		t.Errorf("what the GPU had did not move with it: %+v", c)
	}
	r.done(layout("3", "turns", nil, turns("again", gpu.TimeSliceLong, 2, hopper1)),
		layout("4", "turns", turns("again", gpu.TimeSliceLong, 2, hopper1), nil))
	after := r.look()
	before.Claims, after.Claims = nil, nil
	wantSame(t, before, after)
}

// TestSharingRefusals has a host that a config of MPS cannot be made on: nothing is touched.
func TestSharingRefusals(t *testing.T) {
	two := mps("inference", hopper1, noMIG)
	open := mps("inference", hopper1)
	open.MPS.ComputeMode = gpu.ComputeDefault
	t.Run("processes beside MPS", func(t *testing.T) {
		r := newRig(t, onSharing)
		r.process(hopper1, nil, gpu.Process{PID: 4711, Name: "python", Holder: "container 3f2a"})
		r.refusedMIG(layout("x", "mps", nil, two), backend.InUse, hopper1, "4711", "python", "container 3f2a", "exclusive_process")
		r.done(layout("y", "mps", nil, open))
	})
	t.Run("a GPU that is closed", func(t *testing.T) {
		r := newRig(t, onSharing)
		check(t, r.fleet.SetComputeModeOutside(t.Context(), host, noMIG, gpu.ComputeProhibited))
		r.refusedMIG(layout("x", "mps", nil, two), backend.InvalidState, noMIG, "prohibited")
		r.refusedMIG(layout("x", "turns", nil, turns("t", "", 2, noMIG)), backend.InvalidState, noMIG, "prohibited")
	})
	t.Run("a GPU in MIG mode", func(t *testing.T) {
		r := newRig(t, onSharing)
		check(t, r.fleet.SetMIGModeOutside(t.Context(), host, hopper1, true))
		r.refusedMIG(layout("x", "mps", nil, two), backend.InvalidState, hopper1, "MIG mode")
	})
	t.Run("the daemon of somebody else", func(t *testing.T) {
		r := newRig(t, onSharing)
		_, err := r.fleet.StartDaemonOutside(t.Context(), host, hopper1)
		check(t, err)
		r.refusedMIG(layout("x", "mps", nil, two), backend.InUse, hopper1, "somebody else")
	})
	t.Run("no program", func(t *testing.T) {
		r := newRig(t, func(h *gpu.Host) { onSharing(h); h.MPS.Program = "" })
		r.refusedMIG(layout("x", "mps", nil, two), backend.NotSupported, "inference", "nvidia-cuda-mps-control")
	})
	t.Run("no such GPU", func(t *testing.T) {
		newRig(t, onSharing).refusedMIG(layout("x", "mps", nil, mps("inference", "GPU-gone")), backend.NotFound, "GPU-gone")
	})
	t.Run("processes when an exclusive mode comes back", func(t *testing.T) {
		r := newRig(t, onSharing)
		check(t, r.fleet.SetComputeModeOutside(t.Context(), host, hopper1, gpu.ComputeExclusiveProcess))
		sliced := turns("notebooks", "", 4, hopper1)
		r.done(layout("1", "turns", nil, sliced))
		r.process(hopper1, nil, gpu.Process{Name: "jupyter"})
		r.refusedMIG(layout("x", "turns", sliced, nil), backend.InUse, hopper1, "jupyter", "on_destroy")
	})
}

// TestClientsOfMPS has clients in the way of a daemon's restart and end: they are named, and
// end only where the config lets them.
func TestClientsOfMPS(t *testing.T) {
	one, two := mps("inference", noMIG), mps("inference", hopper1, noMIG)
	instances := migWithMPS("train", map[string]int{g1: 2}, hopper1)
	instances.MaxDisruption = gpu.DisruptNone
	held := func(t *testing.T) *rig {
		t.Helper()
		r := newRig(t, onSharing)
		r.done(layout("1", "mps", nil, one))
		r.client("inference", "trainer")
		return r
	}
	t.Run("a restart", func(t *testing.T) {
		held(t).refusedMIG(layout("x", "mps", one, two), backend.InUse, "inference", "trainer", "max_disruption")
	})
	t.Run("the end", func(t *testing.T) {
		held(t).refusedMIG(layout("x", "mps", one, nil), backend.InUse, "inference", "trainer", "max_disruption")
	})
	t.Run("another config that takes the GPU", func(t *testing.T) {
		held(t).refusedMIG(layout("x", "turns", nil, turns("t", "", 2, noMIG)), backend.InUse, "inference", "trainer")
	})
	t.Run("allowed", func(t *testing.T) {
		r := held(t)
		ch := layout("x", "mps", one, mayRestart(two))
		p, err := r.Prepare(t.Context(), ch)
		check(t, err)
		if p.Disruption != gpu.DisruptProcessRestart {
			t.Errorf("disruption is %q", p.Disruption)
		}
		r.done(ch)
		r.wantDaemon("inference", noMIG, hopper1)
		if h := r.look(); len(h.MPS.Daemons[0].Clients) > 0 {
			t.Errorf("clients are %+v", h.MPS.Daemons[0].Clients)
		}
	})
	t.Run("a restart that is asked for", func(t *testing.T) {
		r := held(t)
		r.refusedMIG(acts(change.ActRestart, "mps", one), backend.InUse, "inference", "trainer", "max_disruption")
		r.done(layout("2", "mps", one, mayRestart(one)))
		p, err := r.Prepare(t.Context(), acts(change.ActRestart, "mps", mayRestart(one)))
		check(t, err)
		if p.Disruption != gpu.DisruptProcessRestart {
			t.Errorf("disruption is %q", p.Disruption)
		}
		before := r.look()
		r.done(acts(change.ActRestart, "mps", mayRestart(one)))
		r.wantDaemon("inference", noMIG)
		h := r.look()
		if d := h.MPS.Daemons[0]; len(d.Clients) > 0 || !reflect.DeepEqual(h.Claims, before.Claims) {
			t.Errorf("the daemon is %+v, and the claims %+v", d, h.Claims)
		}
	})
	t.Run("one that came after the change was prepared", func(t *testing.T) {
		r := newRig(t, onSharing)
		r.done(layout("1", "mps", nil, mayRestart(one)))
		ch := layout("x", "mps", mayRestart(one), mayRestart(two))
		p, err := r.Prepare(t.Context(), ch)
		check(t, err)
		r.client("inference", "trainer")
		before := r.look()
		_, err = r.Client.Apply(t.Context(), r.fence, ch, p.Basis, nil)
		wantCode(t, err, agent.HostChanged)
		wantSame(t, before, r.look())
	})
	t.Run("in a GPU instance", func(t *testing.T) {
		r := newRig(t, onSharing)
		r.done(layout("1", "mig", nil, instances))
		h := r.look()
		for _, d := range h.MPS.Daemons {
			r.client(d.Name, "trainer")
		}
		fewer := migWithMPS("train", map[string]int{g2: 2}, hopper1)
		fewer.MaxDisruption = gpu.DisruptNone
		r.refusedMIG(layout("x", "mig", instances, fewer), backend.InUse, hopper1, "trainer")
		r.refusedMIG(layout("x", "mig", instances, nil), backend.InUse, "trainer")
		r.done(layout("y", "mig", instances, mayRestart(fewer)))
		r.wantMIG(hopper1, at(g2, 0), at(g2, 2))
	})
	t.Run("a server without clients is in nobody's way", func(t *testing.T) {
		r := newRig(t, onSharing)
		r.done(layout("1", "mig", nil, instances))
		h := r.look()
		for _, d := range h.MPS.Daemons {
			check(t, r.fleet.StopProcess(t.Context(), host, r.client(d.Name, "trainer")))
		}
		r.done(layout("x", "mig", instances, nil))
		r.wantNoMIG(hopper1)
		r.wantNoDaemons()
	})
}
