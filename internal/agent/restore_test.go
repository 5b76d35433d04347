package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// declared is a host with two layouts, of which the run that made them has ended.
func declared(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, onLinux)
	r.done(
		layout("1", "mig", nil, mig("train", map[string]int{g1: 2, g3: 1}, hopper1, ampere)),
		layout("2", "two", nil, mig("empty", nil, hopper2)),
	)
	check(t, r.ReleaseLease(t.Context(), r.fence))
	return r
}

func (r *rig) reboot() {
	r.t.Helper()
	check(r.t, r.fleet.Reboot(r.t.Context(), host))
}

// reconcile is what runs at boot, in a process of its own whose writes are counted.
func (r *rig) reconcile() []agent.Settled {
	r.t.Helper()
	r.start()
	settled, err := r.ending.server.Reconcile(r.t.Context(), 0)
	check(r.t, err)
	if l := r.state().Lease; l != nil {
		r.t.Errorf("reconcile kept the lease: %+v", l)
	}
	return settled
}

func TestRestoreAfterReboot(t *testing.T) {
	r := declared(t)
	before := r.look()
	if got := r.reconcile(); len(got) > 0 || r.breaker.count() > 0 {
		t.Errorf("a host that lost nothing: %+v, %d writes", got, r.breaker.count())
	}
	r.reboot()
	r.wantNoMIG(hopper1)
	r.wantNoMIG(hopper2)
	r.wantMIG(ampere)

	want := []agent.Settled{
		{Subject: `the MIG layout of partition config "train"`, Restored: []string{
			"GPU " + hopper1 + ": MIG mode, 1g.10gb at 0, 1g.10gb at 1, 3g.40gb at 4",
			"GPU " + ampere + ": 1g.10gb at 0, 1g.10gb at 1, 3g.40gb at 4",
		}},
		{Subject: `the MIG layout of partition config "empty"`, Restored: []string{"GPU " + hopper2 + ": MIG mode"}},
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

// TestRestoreTouchesNothingInUse has a part of a layout still there, with a process in it.
func TestRestoreTouchesNothingInUse(t *testing.T) {
	r := declared(t)
	r.process(hopper1, new(at(g3, 4)), gpu.Process{Name: "python"})
	kept := r.devices(hopper1)[at(g3, 4)]
	check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper1, at(g1, 1)))
	check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper1, at(g1, 0)))
	check(t, r.fleet.HalfMakeInstance(t.Context(), host, hopper1, at(g1, 0)))
	check(t, r.fleet.CreateInstanceOutside(t.Context(), host, hopper1, at(g2, 2))) // beside what is declared
	if got := r.reconcile(); len(got) != 1 || len(got[0].Restored) != 1 || len(got[0].Stands) > 0 {
		t.Errorf("settled %+v", got)
	}
	r.wantMIG(hopper1, at(g1, 0), at(g1, 1), at(g2, 2), at(g3, 4))
	if now := r.devices(hopper1); now[at(g3, 4)] != kept || now[at(g1, 0)] == "" {
		t.Errorf("devices are %v", now)
	}
}

// TestRestoreCountsWhatOthersMoved has an instance in another place than the solver's: the
// numbers are as declared, and it is not made a second time.
func TestRestoreCountsWhatOthersMoved(t *testing.T) {
	r := declared(t)
	check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper1, at(g1, 1)))
	check(t, r.fleet.CreateInstanceOutside(t.Context(), host, hopper1, at(g1, 2)))
	if got := r.reconcile(); len(got) > 0 {
		t.Errorf("a host that lost nothing: %+v", got)
	}
	r.wantMIG(hopper1, at(g1, 0), at(g1, 2), at(g3, 4))
	check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper1, at(g1, 0)))
	if got := r.reconcile(); len(got) != 1 || len(got[0].Restored) != 1 || len(got[0].Stands) > 0 {
		t.Errorf("settled %+v", got)
	}
	r.wantMIG(hopper1, at(g1, 1), at(g1, 2), at(g3, 4))
}

// TestRestoreConflicts has GPUs that cannot get back what they lost. Each is named and
// left alone, and the others are restored.
func TestRestoreConflicts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		gpu    string
		meddle func(*testing.T, *rig)
		says   []string
	}{
		{"somebody made other instances", hopper1, func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.sim.SetMIGMode(t.Context(), hopper1, true, false))
			check(t, r.fleet.CreateInstanceOutside(t.Context(), host, hopper1, at(g3, 0)))
		}, []string{"3g.40gb at 0", "1g.10gb at 1"}},
		{"somebody uses it without MIG", hopper1, func(t *testing.T, r *rig) {
			t.Helper()
			r.process(hopper1, nil, gpu.Process{PID: 4711, Name: "python", Holder: "unit " + trainer})
		}, []string{"4711", "python", trainer}},
		{"its mode would take a reset", ampere, func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.SetMIGModeOutside(t.Context(), host, ampere, false))
			check(t, r.fleet.ResetGPU(t.Context(), host, ampere))
		}, []string{"reset"}},
		{"it is gone", hopper1, func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
				s.Hosts[0].GPUs = slices.DeleteFunc(s.Hosts[0].GPUs, func(g gpu.GPU) bool { return g.ID == hopper1 })
				return nil
			}))
		}, []string{"does not have it"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := declared(t)
			r.reboot()
			tt.meddle(t, r)
			h := r.look()
			g, there := h.GPU(tt.gpu)

			got := r.reconcile()
			if len(got) != 2 || len(got[0].Restored) != 1 || len(got[0].Stands) != 1 || len(got[1].Stands) > 0 {
				t.Fatalf("settled %+v", got)
			}
			for _, word := range append(tt.says, tt.gpu) {
				if !strings.Contains(got[0].Stands[0], word) {
					t.Errorf("it does not say %q: %s", word, got[0].Stands[0])
				}
			}
			if there {
				h := r.look()
				now, _ := h.GPU(tt.gpu)
				if d := cmp.Diff(g, now); d != "" {
					t.Errorf("the GPU was touched:\n%s", d)
				}
			}
			other := hopper1
			if tt.gpu == hopper1 {
				other = ampere
			}
			r.wantMIG(other, at(g1, 0), at(g1, 1), at(g3, 4))

			again := r.reconcile()
			if d := cmp.Diff([]agent.Settled{{Subject: got[0].Subject, Stands: got[0].Stands}}, again); d != "" || r.breaker.count() > 0 {
				t.Errorf("a second time, with %d writes:\n%s", r.breaker.count(), d)
			}
		})
	}
}

// TestRestoreGoesOn has one GPU fail: the others are restored all the same, units run,
// and the next time the rest comes back too.
func TestRestoreGoesOn(t *testing.T) {
	r := declared(t)
	before := r.look()
	r.reboot()
	check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{
		Op: simulated.OpCreateInstance, Object: hopper1, After: 1, Times: 1, Code: backend.Failed,
	}))
	got := r.reconcile()
	if len(got) != 2 || len(got[0].Restored) != 1 || !strings.Contains(got[0].Restored[0], ampere) || len(got[0].Stands) != 1 ||
		!strings.Contains(got[0].Stands[0], hopper1) || len(got[1].Restored) != 1 {
		t.Fatalf("settled %+v", got)
	}
	r.wantMIG(hopper1, at(g1, 0))
	r.wantJournal(0)
	if d := cmp.Diff(before.Units, r.units()); d != "" {
		t.Errorf("units:\n%s", d)
	}
	if got := r.reconcile(); len(got) != 1 || len(got[0].Restored) != 1 || len(got[0].Stands) > 0 {
		t.Errorf("the second time: %+v", got)
	}
	wantSame(t, before, r.look())
}

// TestRestoreNamesAUnit has a unit that does not start again.
func TestRestoreNamesAUnit(t *testing.T) {
	r := declared(t)
	r.reboot()
	check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: simulated.OpStartUnit, Times: 2}))
	got := r.reconcile()
	if len(got) != 2 || len(got[0].Restored) != 2 || len(got[0].Stands) != 1 || !strings.Contains(got[0].Stands[0], dcgm[:11]) {
		t.Errorf("settled %+v", got)
	}
	r.wantJournal(0)
}

// TestDeathWhileRestoring lets reconcile fail or die at each of its writes, and run again.
// Instances that are there again stay, since somebody may use them by then.
func TestDeathWhileRestoring(t *testing.T) {
	r := declared(t)
	before := r.look()
	r.reboot()
	left := copyFleet(t, r.fleet)
	r.reconcile()
	writes := r.breaker.count()
	for at := 1; at <= writes; at++ {
		for _, m := range []mode{failBefore, failAfter, dieBefore, dieAfter} {
			t.Run(fmt.Sprintf("write %d %s", at, m), func(t *testing.T) {
				r := copyOfReleased(t, left)
				r.start()
				r.breaker.arm(at, m)
				_, _ = r.ending.server.Reconcile(t.Context(), 0)
				devices := r.devices(hopper1)
				r.clock.advance(2 * time.Minute)
				r.reconcile()
				for place, uuid := range devices {
					if now := r.devices(hopper1)[place]; now != uuid {
						t.Errorf("instance %v was made again", place)
					}
				}
				wantSame(t, before, r.look())
				r.wantJournal(0)
			})
		}
	}
}

// copyOfReleased is copyOf without a run that holds the lease.
func copyOfReleased(t *testing.T, left *others.Fleet) *rig {
	t.Helper()
	r := copyOf(t, left)
	check(t, r.ReleaseLease(t.Context(), r.fence))
	return r
}

// TestRebootInTheMiddle lets the host lose its power at each write of each change of a Linux host:
// reconcile leaves it as it was or as it was wanted, with nothing to say.
func TestRebootInTheMiddle(t *testing.T) {
	everyScenario(t, func(t *testing.T, p prepared) {
		if p.before.Platform != gpu.Linux {
			return // nothing of it is lost with the power
		}
		p.everyDeath(t, func(t *testing.T, r *rig) {
			r.reboot()
			r.clock.advance(2 * time.Minute)
			for _, end := range r.reconcile() {
				if len(end.Stands) > 0 {
					t.Errorf("of %s stands %q", end.Subject, end.Stands)
				}
			}
			if now := r.look(); !cmp.Equal(p.after, now, cmpopts.IgnoreFields(gpu.Host{}, "Boot"), cmpopts.IgnoreFields(gpu.Claim{}, "Boot")) {
				wantSame(t, p.before, now)
			}
			r.wantJournal(0)
		})
	})
}

// TestRestoreSevenOfEight has one GPU that cannot be read after a reboot: the others get their
// layouts back, that one is named and left alone, and gets its own when it can be read again.
func TestRestoreSevenOfEight(t *testing.T) {
	const why = "nvmlDeviceGetMigMode: the GPU is lost (15)"
	sick := hopper(3)
	for name, hide := range map[string]func(*gpu.GPU) gpu.Unknown{
		"known by its id": func(g *gpu.GPU) gpu.Unknown {
			*g = gpu.GPU{ID: g.ID, Model: g.Model, Vendor: g.Vendor, PCI: g.PCI, Problem: why}
			return gpu.Unknown{Part: gpu.PartGPUs, GPU: g.ID, Why: why}
		},
		"of no known id": func(g *gpu.GPU) gpu.Unknown {
			*g = gpu.GPU{ID: gpu.Unidentified + "1", Vendor: g.Vendor, Problem: why}
			return gpu.Unknown{Part: gpu.PartGPUs, GPU: g.ID, Why: why}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, onLargeLinux)
			all := []string{ampere}
			for n := range 7 {
				all = append(all, hopper(n+1))
			}
			r.done(layout("1", "mig", nil, mig("train", map[string]int{g1: 2, g3: 1}, all...)))
			check(t, r.ReleaseLease(t.Context(), r.fence))
			before := r.look()
			r.reboot()
			// its mode outlives a reboot, and all seven lack something
			check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, ampere, at(g3, 4)))
			var whole gpu.GPU
			at := -1
			check(t, r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
				h := &s.Hosts[0]
				at = slices.IndexFunc(h.GPUs, func(g gpu.GPU) bool { return g.ID == sick })
				whole = h.GPUs[at]
				h.Unknown = []gpu.Unknown{hide(&h.GPUs[at])}
				return nil
			}))
			hidden := r.look().GPUs[at]

			got := r.reconcile()
			if len(got) != 1 || len(got[0].Restored) != 7 || len(got[0].Stands) != 1 || !strings.Contains(got[0].Stands[0], sick) ||
				!strings.Contains(got[0].Stands[0], why) {
				t.Fatalf("settled %+v", got)
			}
			for i, g := range r.look().GPUs {
				want := before.GPUs[i]
				if i == at {
					want = hidden
				}
				if d := cmp.Diff(want, g); d != "" {
					t.Errorf("GPU %d (-want +got):\n%s", i, d)
				}
			}
			if got := r.reconcile(); len(got) != 1 || len(got[0].Restored) > 0 || r.breaker.count() > 0 {
				t.Errorf("while it cannot be read: %+v, %d writes", got, r.breaker.count())
			}

			check(t, r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
				s.Hosts[0].GPUs[at], s.Hosts[0].Unknown = whole, nil
				return nil
			}))
			if got := r.reconcile(); len(got) != 1 || len(got[0].Restored) != 1 || len(got[0].Stands) > 0 {
				t.Errorf("when it can be read: %+v", got)
			}
			wantSame(t, before, r.look())
		})
	}
}

// TestReconcileTriesDerivedFilesAgain that the host says are behind, though it lacks nothing else.
func TestReconcileTriesDerivedFilesAgain(t *testing.T) {
	r := declared(t)
	before := r.look()
	for _, fails := range []bool{true, false} {
		check(t, r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
			s.Hosts[0].Stale = []string{"the CDI specification: no driver"}
			return nil
		}))
		if fails {
			check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{Op: simulated.OpRefreshDevices, Times: 1}))
		}
		r.start()
		var writes []string
		r.breaker.hook = func(write string) {
			if write != "update" {
				writes = append(writes, write)
			}
		}
		settled, err := r.ending.server.Reconcile(t.Context(), 0)
		if err != nil || len(settled) > 0 || !slices.Equal(writes, []string{"refresh"}) {
			t.Errorf("failing %t: settled %+v, %v, and the writes are %q", fails, settled, err, writes)
		}
	}
	check(t, r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts[0].Stale = nil
		return nil
	}))
	wantSame(t, before, r.look())
}
