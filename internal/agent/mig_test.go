package agent_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// migLayout is MIG mode with some instances.
func migLayout(places ...gpu.MIGPlacement) gpu.Layout {
	return gpu.Layout{MIG: &gpu.MIGState{Enabled: true, Placements: places}}
}

// mig is the MIG state of a GPU now.
func (r *rig) mig(id string) gpu.MIGState {
	r.t.Helper()
	h := r.look()
	g, ok := h.GPU(id)
	if !ok || g.MIG == nil {
		r.t.Fatalf("no GPU %s with MIG", id)
	}
	return g.MIG.State()
}

// wantMIG checks that a GPU is in MIG mode with some instances and no others.
func (r *rig) wantMIG(id string, want ...gpu.MIGPlacement) {
	r.t.Helper()
	if d := cmp.Diff(gpu.MIGState{Enabled: true, Placements: want}, r.mig(id), cmpopts.EquateEmpty()); d != "" {
		r.t.Errorf("GPU %s (-want +got):\n%s", id, d)
	}
}

func (r *rig) wantNoMIG(id string) {
	r.t.Helper()
	if s := r.mig(id); s.Enabled {
		r.t.Errorf("GPU %s is in MIG mode with %v", id, s.Placements)
	}
}

// devices are the MIG devices of a GPU by place. They tell an instance that was kept from
// one that was made again.
func (r *rig) devices(id string) map[gpu.MIGPlacement]string {
	r.t.Helper()
	h, err := r.sim.Inventory(r.t.Context())
	check(r.t, err)
	g, _ := h.GPU(id)
	out := map[gpu.MIGPlacement]string{}
	for _, i := range g.MIG.Instances {
		out[i.Placement()] = i.Compute[0].UUID
	}
	return out
}

// process starts a process on a GPU, or in an instance of it.
func (r *rig) process(id string, place *gpu.MIGPlacement, p gpu.Process) int {
	r.t.Helper()
	pid, err := r.fleet.StartProcess(r.t.Context(), host, id, place, p)
	check(r.t, err)
	return pid
}

func (r *rig) units() []string { return r.look().Units }

func rulesOff() rules.Levels {
	levels := rules.Levels{}
	for _, rule := range rules.All() {
		levels[rule.ID] = rules.Off
	}
	return levels
}

// refusedMIG applies a change that the agent has to refuse by itself, with the rules that
// say so first switched off.
func (r *rig) refusedMIG(ch agent.Change, code backend.Code, words ...string) {
	r.t.Helper()
	before := r.look()
	ch.Levels = rulesOff()
	_, err := r.apply(ch)
	e := codeOf(r.t, err, agent.Refused)
	if e.Cause == nil || e.Cause.Code != code {
		r.t.Errorf("error = %v, want %s", e, code)
	}
	for _, w := range words {
		if !strings.Contains(e.Error(), w) {
			r.t.Errorf("it does not say %q: %v", w, e)
		}
	}
	wantSame(r.t, before, r.look())
}

// TestMIGSmallestChange changes the layout of one of eight GPUs while processes run on
// it and on the others.
func TestMIGSmallestChange(t *testing.T) {
	r := newRig(t, onLargeLinux)
	sevens := mig("others", map[string]int{g1: 7}, hopper(2), hopper(3), hopper(4), hopper(5), hopper(6), hopper(7), ampere)
	r.done(
		layout("1", "mig", nil, mig("day", map[string]int{g1: 7}, hopper1)),
		layout("2", "rest", nil, sevens),
	)
	r.process(hopper1, new(at(g1, 0)), gpu.Process{Name: "python"})
	r.process(hopper2, new(at(g1, 3)), gpu.Process{Name: "python"})
	devices := map[string]map[gpu.MIGPlacement]string{}
	for _, id := range append(slices.Clone(sevens.GPUs[host]), hopper1) {
		devices[id] = r.devices(id)
	}

	day2 := mig("day", map[string]int{g3: 1, g2: 1, g1: 2}, hopper1)
	ch := layout("3", "mig", mig("day", map[string]int{g1: 7}, hopper1), day2)
	p, err := r.Prepare(t.Context(), ch)
	check(t, err)
	if p.Disruption != gpu.DisruptNone {
		t.Errorf("disruption is %s", p.Disruption)
	}
	var removed, created int
	for _, s := range p.Steps {
		switch s.Op {
		case change.OpDestroyInstance:
			removed++
		case change.OpCreateInstance:
			created++
		case change.OpPutClaim, change.OpStopUnit, change.OpStartUnit:
			continue
		}
		if s.GPU != hopper1 || s.Op == change.OpSetMIGMode {
			t.Errorf("step %s touches more than the layout of GPU %s", s, hopper1)
		}
	}
	if removed != 5 || created != 2 {
		t.Errorf("%d instances are removed and %d created", removed, created)
	}
	r.done(ch)
	r.wantMIG(hopper1, at(g1, 0), at(g1, 1), at(g2, 2), at(g3, 4))
	now := r.devices(hopper1)
	for _, kept := range ones(0, 2) {
		if now[kept] != devices[hopper1][kept] {
			t.Errorf("instance %v was made again", kept)
		}
	}
	for _, id := range sevens.GPUs[host] {
		if d := cmp.Diff(devices[id], r.devices(id)); d != "" {
			t.Errorf("GPU %s was touched:\n%s", id, d)
		}
	}
	c, _ := r.claim(gpu.ClaimConfig, "day")
	if d := cmp.Diff(gpu.Layouts{hopper1: migLayout(at(g1, 0), at(g1, 1), at(g2, 2), at(g3, 4))}, c.AppliedLayouts); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(&gpu.MIGState{}, c.OriginalLayouts.Of(hopper1).MIG); d != "" {
		t.Error(d)
	}
}

// TestMIGSteps checks that only what differs is touched, in the order that works.
func TestMIGSteps(t *testing.T) {
	six := mig("train", map[string]int{g1: 6}, hopper1, hopper2)
	made := layout("1", "mig", nil, six)
	placements := mig("train", nil, hopper1, hopper2)
	placements.MIG = &gpu.MIGLayout{Placements: []gpu.MIGPlacement{at(g3, 4), at(g3, 0)}}
	unquiesced := mig("train", nil, hopper1)
	unquiesced.QuiesceUnits = nil
	notRunning := mig("train", nil, hopper1)
	notRunning.QuiesceUnits = []string{"nvsm"}
	claimOnly := func(ch agent.Change) agent.Change {
		ch.ClaimOnly = true
		return ch
	}
	const (
		mode, create, destroy  = change.OpSetMIGMode, change.OpCreateInstance, change.OpDestroyInstance
		stop, start, put, drop = change.OpStopUnit, change.OpStartUnit, change.OpPutClaim, change.OpDropClaim
	)
	for _, tt := range []struct {
		name   string
		before []agent.Change
		meddle func(*testing.T, *rig)
		ch     agent.Change
		want   []change.Op
	}{
		{
			name: "units are stopped once for the modes of all GPUs",
			ch:   layout("x", "mig", nil, mig("train", map[string]int{g3: 1}, hopper1, ampere)),
			want: []change.Op{stop, mode, create, mode, create, start, put},
		},
		{name: "MIG mode alone", ch: layout("x", "mig", nil, unquiesced), want: []change.Op{mode, put}},
		{name: "a unit that does not run is left", ch: layout("x", "mig", nil, notRunning), want: []change.Op{mode, put}},
		{name: "nothing when all is as wanted", before: []agent.Change{made}, ch: layout("x", "mig", six, six)},
		{
			name: "an instance that is gone", before: []agent.Change{made}, ch: layout("x", "mig", six, six),
			meddle: func(t *testing.T, r *rig) {
				t.Helper()
				check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper2, at(g1, 3)))
			},
			want: []change.Op{create},
		},
		{
			name: "an instance without a compute instance", before: []agent.Change{made}, ch: layout("x", "mig", six, six),
			meddle: func(t *testing.T, r *rig) {
				t.Helper()
				check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper2, at(g1, 3)))
				check(t, r.fleet.HalfMakeInstance(t.Context(), host, hopper2, at(g1, 3)))
			},
			want: []change.Op{create},
		},
		{
			name: "placements as they are written", before: []agent.Change{made}, ch: layout("x", "mig", six, placements),
			want: slices.Concat([]change.Op{stop}, slices.Repeat([]change.Op{destroy}, 6), []change.Op{create, create},
				slices.Repeat([]change.Op{destroy}, 6), []change.Op{create, create}, []change.Op{start, put}),
		},
		{
			name:   "a mode that waits for a reset is taken back",
			before: []agent.Change{layout("1", "mig", nil, mig("train", map[string]int{g3: 2}, ampere))},
			ch:     layout("x", "mig", mig("train", map[string]int{g3: 2}, ampere), mig("train", map[string]int{g3: 2}, ampere)),
			meddle: func(t *testing.T, r *rig) {
				t.Helper()
				r.process(ampere, new(at(g3, 0)), gpu.Process{Name: "python"})
				check(t, r.fleet.SetMIGModeOutside(t.Context(), host, ampere, false))
			},
			want: []change.Op{mode},
		},
		{
			name: "restored", before: []agent.Change{made}, ch: layout("x", "mig", six, nil),
			want: slices.Concat([]change.Op{stop}, slices.Repeat([]change.Op{destroy}, 6), []change.Op{mode},
				slices.Repeat([]change.Op{destroy}, 6), []change.Op{mode, start, drop}),
		},
		{name: "the claim alone", ch: claimOnly(layout("x", "mig", nil, six)), want: []change.Op{put}},
		{name: "the claim alone goes", before: []agent.Change{made}, ch: claimOnly(layout("x", "mig", six, nil)), want: []change.Op{drop}},
		{name: "another instance's", before: []agent.Change{made}, ch: layout("x", "other", six, nil)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, onLinux)
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

// TestMIGInUse has processes in the way: they are named, and nothing is touched.
func TestMIGInUse(t *testing.T) {
	seven := mig("train", map[string]int{g1: 7}, hopper1, hopper2)
	large := mig("train", map[string]int{g7: 1}, hopper1, hopper2)
	t.Run("in an instance that would go", func(t *testing.T) {
		r := newRig(t, onLinux)
		r.done(layout("1", "mig", nil, seven))
		pid := r.process(hopper2, new(at(g1, 5)), gpu.Process{Name: "python", Holder: "unit " + trainer})
		r.refusedMIG(layout("x", "mig", seven, large), backend.InUse, hopper2, strconv.Itoa(pid), "python", trainer)
	})
	t.Run("of a unit that only watches, which no instance goes for", func(t *testing.T) {
		r := newRig(t, onLinux)
		r.done(layout("1", "mig", nil, seven))
		r.process(hopper2, new(at(g1, 5)), gpu.Process{Name: "dcgm", Holder: "unit " + dcgm})
		r.refusedMIG(layout("x", "mig", seven, large), backend.InUse, dcgm)
	})
	t.Run("of a unit that keeps an instance open without a process in it", func(t *testing.T) {
		r := newRig(t, onLinux)
		r.done(layout("1", "mig", nil, seven))
		quiet := *large
		quiet.QuiesceUnits = []string{dcgm}
		var runs []bool
		r.breaker.hook = func(write string) {
			if write == "destroy instance" {
				runs = append(runs, slices.Contains(r.look().Units, dcgm))
			}
		}
		r.done(layout("x", "mig", seven, &quiet))
		r.breaker.hook = nil
		if len(runs) == 0 || slices.Contains(runs, true) {
			t.Errorf("while instances were removed it ran: %v", runs)
		}
		if !slices.Contains(r.look().Units, dcgm) {
			t.Error("it does not run afterwards")
		}
	})
	t.Run("on a GPU whose mode would change", func(t *testing.T) {
		r := newRig(t, onLinux)
		pid := r.process(hopper2, nil, gpu.Process{Name: "python", Holder: "container 3f2a"})
		r.refusedMIG(layout("x", "mig", nil, seven), backend.InUse, hopper2, strconv.Itoa(pid), "python", "container 3f2a")
		check(t, r.fleet.StopProcess(t.Context(), host, pid))
		r.process(hopper2, nil, gpu.Process{Name: "dcgm", Holder: "unit " + dcgm})
		r.done(layout("y", "mig", nil, seven))
		r.wantMIG(hopper2, ones(0, 7)...)
	})
	t.Run("on a GPU that is given back", func(t *testing.T) {
		r := newRig(t, onLinux)
		r.done(layout("1", "mig", nil, seven))
		pid := r.process(hopper1, new(at(g1, 0)), gpu.Process{Name: "python"})
		r.refusedMIG(layout("x", "mig", seven, nil), backend.InUse, hopper1, strconv.Itoa(pid), "python", "on_destroy")
		kept := *seven
		kept.Restore = false
		r.done(layout("y", "mig", &kept, nil))
		r.wantMIG(hopper1, ones(0, 7)...)
	})
	t.Run("of a unit that is stopped while a GPU is given back", func(t *testing.T) {
		r := newRig(t, onLinux)
		r.done(layout("1", "mig", nil, seven))
		r.process(hopper1, new(at(g1, 0)), gpu.Process{Name: "dcgm", Holder: "unit " + dcgm})
		r.done(layout("x", "mig", seven, nil))
		r.wantNoMIG(hopper1)
	})
	t.Run("after it was prepared", func(t *testing.T) {
		r := newRig(t, onLinux)
		r.done(layout("1", "mig", nil, seven))
		ch := layout("x", "mig", seven, large)
		p, err := r.Prepare(t.Context(), ch)
		check(t, err)
		r.process(hopper2, new(at(g1, 5)), gpu.Process{Name: "python"})
		before := r.look()
		if _, err := r.Client.Apply(t.Context(), r.fence, ch, p.Basis, nil); err == nil {
			t.Error("the change succeeded")
		}
		wantSame(t, before, r.look())
	})
	t.Run("since the change began", func(t *testing.T) {
		r := newRig(t, onLinux)
		r.done(layout("1", "mig", nil, seven))
		before := r.look()
		var pid int
		r.breaker.hook = func(write string) {
			if write == "destroy instance" && pid == 0 {
				pid = r.process(hopper2, new(at(g1, 6)), gpu.Process{Name: "python"})
			}
		}
		_, err := r.apply(layout("x", "mig", seven, large))
		r.breaker.hook = nil
		e := codeOf(t, err, agent.StepFailed)
		if e.Outcome == nil || !e.Outcome.RolledBack || !strings.Contains(e.Error(), strconv.Itoa(pid)) {
			t.Errorf("error = %v, outcome %+v", e, e.Outcome)
		}
		check(t, r.fleet.StopProcess(t.Context(), host, pid))
		wantSame(t, before, r.look())
		r.wantJournal(0)
	})
}

// TestMIGReset checks that a GPU is reset only where that is allowed, and that units
// which keep it open are stopped for it and run again.
func TestMIGReset(t *testing.T) {
	strict := mig("train", map[string]int{g3: 2}, ampere)
	strict.MaxDisruption = gpu.DisruptVMRestart
	allowed := mig("train", map[string]int{g3: 2}, ampere)
	held := func(t *testing.T) *rig {
		t.Helper()
		r := newRig(t, onLinux)
		check(t, r.fleet.SetUnit(t.Context(), host, dcgm, simulated.Unit{HoldsGPUs: true}, true))
		return r
	}
	t.Run("not needed", func(t *testing.T) {
		p, err := held(t).Prepare(t.Context(), layout("x", "mig", nil, mig("train", nil, hopper1)))
		check(t, err)
		if p.Disruption != gpu.DisruptNone {
			t.Errorf("disruption is %s", p.Disruption)
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		held(t).refusedMIG(layout("x", "mig", nil, strict), backend.InvalidState, ampere, "max_disruption", "reset")
	})
	t.Run("allowed", func(t *testing.T) {
		r := held(t)
		ch := layout("x", "mig", nil, allowed)
		p, err := r.Prepare(t.Context(), ch)
		check(t, err)
		if p.Disruption != gpu.DisruptGPUReset {
			t.Errorf("disruption is %s", p.Disruption)
		}
		before := r.units()
		r.done(ch)
		r.wantMIG(ampere, at(g3, 0), at(g3, 4))
		if d := cmp.Diff(before, r.units()); d != "" {
			t.Errorf("units:\n%s", d)
		}
	})
	t.Run("a unit that nobody named keeps it open", func(t *testing.T) {
		r := held(t)
		c := *allowed
		c.QuiesceUnits = nil
		before := r.look()
		_, err := r.apply(layout("x", "mig", nil, &c))
		e := codeOf(t, err, agent.StepFailed)
		if e.Outcome == nil || !e.Outcome.RolledBack || !strings.Contains(e.Error(), dcgm) {
			t.Errorf("error = %v", e)
		}
		wantSame(t, before, r.look())
	})
	t.Run("units run again when the reset fails", func(t *testing.T) {
		for _, m := range []simulated.Moment{simulated.BeforeEffect, simulated.AfterEffect, simulated.HalfWay} {
			r := held(t)
			before := r.look()
			check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: simulated.OpSetMIGMode, Times: 1, Moment: m}))
			_, err := r.apply(layout("x", "mig", nil, allowed))
			if e := codeOf(t, err, agent.StepFailed); e.Outcome == nil || !e.Outcome.RolledBack {
				t.Errorf("%s: error = %v", m, e)
			}
			wantSame(t, before, r.look())
		}
	})
	t.Run("not for giving it back either", func(t *testing.T) {
		r := held(t)
		r.done(layout("1", "mig", nil, allowed))
		r.refusedMIG(layout("x", "mig", strict, nil), backend.InvalidState, ampere, "max_disruption", "on_destroy")
		r.done(layout("y", "mig", allowed, nil))
		r.wantNoMIG(ampere)
	})
}

// TestMIGHalfWay lets the host fail in the middle of making or removing an instance.
func TestMIGHalfWay(t *testing.T) {
	from, to := mig("train", map[string]int{g1: 3, g3: 1}, hopper1), mig("train", map[string]int{g1: 1, g3: 1, g2: 1}, hopper1)
	for _, op := range []simulated.Op{simulated.OpCreateInstance, simulated.OpDestroyInstance} {
		r := newRig(t, onLinux)
		r.done(layout("1", "mig", nil, from))
		before := r.look()
		check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: op, Times: 1, Moment: simulated.HalfWay}))
		_, err := r.apply(layout("x", "mig", from, to))
		if e := codeOf(t, err, agent.StepFailed); e.Outcome == nil || !e.Outcome.RolledBack {
			t.Errorf("%s: error = %v", op, e)
		}
		wantSame(t, before, r.look())
	}
}

// TestMIGRefresh checks that device nodes follow the instances last, also when a change
// is undone, and that nothing is undone because they could not.
func TestMIGRefresh(t *testing.T) {
	r := newRig(t, onLinux)
	var writes []string
	r.breaker.hook = func(write string) {
		if write != "update" {
			writes = append(writes, write)
		}
	}
	last := func(want ...string) {
		t.Helper()
		if got := writes[max(0, len(writes)-len(want)):]; !slices.Equal(got, want) {
			t.Errorf("the last writes are %q, want %q", got, want)
		}
	}
	ch := layout("x", "mig", nil, mig("train", map[string]int{g3: 2}, hopper1))
	_, err := r.apply(ch)
	check(t, err)
	last("create instance", "create instance", "start unit", "refresh")
	_, err = r.Settle(t.Context(), r.fence, ch.ID, true)
	check(t, err)
	last("mode", "start unit", "refresh")

	check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: simulated.OpRefreshDevices, Times: 9}))
	ch.ID = "w"
	_, err = r.apply(ch)
	check(t, err)
	r.wantMIG(hopper1, at(g3, 0), at(g3, 4))
	_, err = r.Settle(t.Context(), r.fence, ch.ID, true)
	check(t, err)
	r.wantNoMIG(hopper1)
	check(t, r.fleet.EditSimulation(t.Context(), host, func(s *simulated.Simulation) { s.Faults = nil }))

	// An agent that dies when it has put everything back but this leaves it to the next.
	ch.ID = "y"
	r.killedWith(ch, "create instance")
	r.start()
	r.breaker.hook = func(write string) {
		if write == "refresh" {
			r.breaker.mu.Lock()
			defer r.breaker.mu.Unlock()
			r.breaker.dead = true
		}
	}
	if _, err := r.AcquireLease(t.Context(), lease("run-2")); err == nil {
		t.Fatal("the agent did not die")
	}
	r.clock.advance(2 * time.Minute)
	r.start()
	writes = nil
	r.breaker.hook = func(write string) {
		if write != "update" {
			writes = append(writes, write)
		}
	}
	r.acquire("run-3")
	if !slices.Equal(writes, []string{"refresh"}) {
		t.Errorf("the writes are %q", writes)
	}
}

// TestMIGIDsWithoutCase writes the id of a GPU in another way than before.
func TestMIGIDsWithoutCase(t *testing.T) {
	r := newRig(t, onLinux)
	upper := mig("train", map[string]int{g3: 1}, strings.ToUpper(ampere))
	r.done(layout("1", "mig", nil, mig("train", map[string]int{g3: 1}, ampere)),
		layout("2", "mig", mig("train", map[string]int{g3: 1}, ampere), upper))
	c, _ := r.claim(gpu.ClaimConfig, "train")
	if len(c.AppliedLayouts) != 1 || len(c.OriginalLayouts) != 1 {
		t.Errorf("the claim counts the GPU twice: %+v", c)
	}
	r.done(layout("3", "mig", upper, nil))
	r.wantNoMIG(ampere)
}

// TestMIGChangedSincePrepared has somebody remove an instance between the two.
func TestMIGChangedSincePrepared(t *testing.T) {
	r := newRig(t, onLinux)
	seven, large := mig("train", map[string]int{g1: 7}, hopper1), mig("train", map[string]int{g7: 1}, hopper1)
	r.done(layout("1", "mig", nil, seven))
	ch := layout("x", "mig", seven, large)
	p, err := r.Prepare(t.Context(), ch)
	check(t, err)
	check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper1, at(g1, 3)))
	before := r.look()
	_, err = r.Client.Apply(t.Context(), r.fence, ch, p.Basis, nil)
	if e := codeOf(t, err, agent.HostChanged); !strings.Contains(e.Error(), "the MIG layout of GPU "+hopper1) {
		t.Errorf("error = %v", e)
	}
	wantSame(t, before, r.look())
}

// TestMIGRestore checks what a GPU that leaves gets back.
func TestMIGRestore(t *testing.T) {
	t.Run("the mode and the instances of when it joined", func(t *testing.T) {
		r := newRig(t, onLinux)
		check(t, r.sim.SetMIGMode(t.Context(), hopper1, true, false))
		check(t, r.fleet.CreateInstanceOutside(t.Context(), host, hopper1, at(g2, 2)))
		r.done(
			layout("1", "mig", nil, mig("train", map[string]int{g3: 1}, hopper1, hopper2)),
			layout("2", "mig", mig("train", map[string]int{g3: 1}, hopper1, hopper2), mig("train", map[string]int{g7: 1}, hopper1, hopper2)),
			layout("3", "mig", mig("train", map[string]int{g7: 1}, hopper1, hopper2), mig("train", map[string]int{g7: 1}, hopper2)),
		)
		r.wantMIG(hopper1, at(g2, 2))
		r.wantMIG(hopper2, at(g7, 0))
		c, _ := r.claim(gpu.ClaimConfig, "train")
		if c.OriginalLayouts.Of(hopper1).MIG != nil || len(c.AppliedLayouts) != 1 {
			t.Errorf("claim = %+v", c)
		}
		r.done(layout("4", "mig", mig("train", map[string]int{g7: 1}, hopper2), nil))
		r.wantNoMIG(hopper2)
	})
	t.Run("nothing when kept", func(t *testing.T) {
		r := newRig(t, onLinux)
		c := mig("train", map[string]int{g3: 1}, hopper1)
		c.Restore = false
		r.done(layout("1", "mig", nil, c), layout("2", "mig", c, nil))
		r.wantMIG(hopper1, at(g3, 4))
		if _, ok := r.claim(gpu.ClaimConfig, "train"); ok {
			t.Error("the claim is still there")
		}
	})
	t.Run("nothing when incomplete", func(t *testing.T) {
		r := newRig(t, onLinux)
		c := mig("train", map[string]int{g7: 1}, hopper1)
		mark := layout("2", "mig", c, c)
		mark.ClaimOnly, mark.Incomplete = true, true
		r.done(layout("1", "mig", nil, c), mark)
		if marked, _ := r.claim(gpu.ClaimConfig, "train"); len(marked.AppliedLayouts) != 1 || len(marked.OriginalLayouts) != 1 {
			t.Errorf("the claim lost its history: %+v", marked)
		}
		r.done(layout("3", "mig", c, nil))
		r.wantMIG(hopper1, at(g7, 0))
	})
}

// TestMIGMovesBetweenConfigs checks that a GPU's claim and its history move with it.
func TestMIGMovesBetweenConfigs(t *testing.T) {
	r := newRig(t, onLinux)
	r.done(
		layout("1", "mig", nil, mig("train", map[string]int{g3: 2}, hopper1, hopper2)),
		layout("2", "other", nil, mig("serve", map[string]int{g1: 7}, hopper2)),
	)
	train, _ := r.claim(gpu.ClaimConfig, "train")
	serve, _ := r.claim(gpu.ClaimConfig, "serve")
	off := gpu.MIGState{}
	if d := cmp.Diff(&off, train.OriginalLayouts.Of(hopper1).MIG); d != "" || len(train.OriginalLayouts) != 1 ||
		len(train.AppliedLayouts) != 1 || len(train.GPUs) != 1 {
		t.Errorf("claim of the first config: %+v", train)
	}
	if d := cmp.Diff(&off, serve.OriginalLayouts.Of(hopper2).MIG); d != "" || len(serve.OriginalLayouts) != 1 ||
		len(serve.AppliedLayouts.Of(hopper2).MIG.Placements) != 7 {
		t.Errorf("claim of the second config: %+v", serve)
	}
	r.done(layout("3", "mig", mig("train", map[string]int{g3: 2}, hopper1, hopper2), nil))
	r.wantNoMIG(hopper1)
	r.wantMIG(hopper2, ones(0, 7)...)

	foreign := layout("4", "third", nil, mig("lab", nil, hopper2))
	foreign.Owner, foreign.Levels = "lab", rulesOff()
	_, err := r.apply(foreign)
	wantCode(t, err, agent.NotOwner)
}

// TestMIGImport takes a layout over as it is, by its claim alone.
func TestMIGImport(t *testing.T) {
	r := newRig(t, onLinux)
	check(t, r.sim.SetMIGMode(t.Context(), hopper1, true, false))
	check(t, r.fleet.CreateInstanceOutside(t.Context(), host, hopper1, at(g3, 0)))
	ch := layout("1", "mig", nil, mig("train", map[string]int{g3: 1}, hopper1))
	ch.ClaimOnly = true
	devices := r.devices(hopper1)
	r.done(ch)
	c, _ := r.claim(gpu.ClaimConfig, "train")
	if d := cmp.Diff(gpu.Layouts{hopper1: migLayout(at(g3, 0))}, c.AppliedLayouts); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(migLayout(at(g3, 0)).MIG, c.OriginalLayouts.Of(hopper1).MIG); d != "" {
		t.Error(d)
	}
	r.wantSteps(layout("2", "mig", mig("train", map[string]int{g3: 1}, hopper1), mig("train", map[string]int{g3: 1}, hopper1)))
	if d := cmp.Diff(devices, r.devices(hopper1)); d != "" {
		t.Error(d)
	}
}

// TestMIGRefusesGPU asks for layouts that GPUs cannot have.
func TestMIGRefusesGPU(t *testing.T) {
	r := newRig(t, onLinux)
	for _, tt := range []struct {
		gpu      string
		profiles map[string]int
		code     backend.Code
		says     string
	}{
		{"GPU-nowhere", map[string]int{g1: 1}, backend.NotFound, "no such GPU"},
		{noMIG, map[string]int{g1: 1}, backend.NotSupported, "L40S"},
		{hopper2, map[string]int{"1g.5gb": 1}, backend.InvalidParameter, "1g.5gb"},
		{hopper2, map[string]int{g3: 2, g1: 1}, backend.InvalidParameter, "memory slices"},
	} {
		r.refusedMIG(layout("x", "mig", nil, mig("train", tt.profiles, hopper1, tt.gpu)), tt.code, tt.says)
	}
}

// TestPlatforms asks hosts for what only those of another platform can do.
func TestPlatforms(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*gpu.Host)
		ch   agent.Change
	}{
		{"MIG on Hyper-V", nil, layout("x", "mig", nil, mig("train", map[string]int{g1: 1}, gpuP1))},
		{"GPU-P on Linux", onLinux, layout("x", "config", nil, config("vdi", 4, hopper1))},
		{"MPS on Hyper-V", nil, layout("x", "mps", nil, mps("inference", gpuD1))},
		{"a share on Hyper-V", nil, shares("x", "a", nil, fraction("a", "", gib))},
		{"an assignment on Linux", onLinux, assign("x", "vm1", nil, partitionOf(run1, nil))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			newRig(t, tt.edit).refusedMIG(tt.ch, backend.NotSupported, host, "Hyper-V", "Linux")
		})
	}
}
