package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// declaredSharing is a host with layouts and shares of each sort, of which the run that
// made them has ended.
func declaredSharing(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, onSharing)
	r.done(
		layout("1", "mig", nil, migWithMPS("train", map[string]int{g1: 1, g3: 1}, hopper1)),
		layout("2", "mps", nil, mps("inference", noMIG)),
		layout("3", "turns", nil, turns("notebooks", gpu.TimeSliceLong, 4, hopper2)),
		shares("4", "a", nil, fraction("a", "train", gib)),
		shares("5", "b", nil, fraction("b", "inference", gib)),
		shares("6", "c", nil, fraction("c", "notebooks", gib)),
	)
	check(t, r.ReleaseLease(t.Context(), r.fence))
	return r
}

func TestRestoreSharingAfterReboot(t *testing.T) {
	r := declaredSharing(t)
	before := r.look()
	a, _ := r.share("a")
	if got := r.reconcile(); len(got) > 0 || r.breaker.count() > 0 {
		t.Errorf("a host that lost nothing: %+v, %d writes", got, r.breaker.count())
	}
	r.reboot()
	if h := r.look(); len(h.Shares)+len(h.MPS.Daemons) > 0 {
		t.Fatalf("the reboot left %+v and %+v", h.Shares, h.MPS.Daemons)
	}

	got := r.reconcile()
	var subjects []string
	for _, end := range got {
		subjects = append(subjects, end.Subject)
		if len(end.Stands) > 0 || len(end.Restored) == 0 {
			t.Errorf("settled %+v", end)
		}
	}
	if d := cmp.Diff([]string{
		`the MIG layout of partition config "train"`, `the MPS layout of partition config "inference"`,
		`the time slices of partition config "notebooks"`,
		`share "a"`, `share "b"`, `share "c"`,
	}, subjects); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff([]string{
		"GPU " + noMIG + ": compute mode exclusive_process", "MPS daemon inference: GPU " + noMIG,
	}, got[1].Restored); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"GPU " + hopper2 + ": time slice long"}, got[2].Restored); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{`share "a": CDI device gpufleet.com/share=a`}, got[3].Restored); d != "" {
		t.Error(d)
	}
	wantSame(t, before, r.look())
	r.wantPlace("a", a.Devices...)
	r.wantJournal(0)
	if got := r.reconcile(); len(got) > 0 || r.breaker.count() > 0 {
		t.Errorf("a second time: %+v, %d writes", got, r.breaker.count())
	}
}

// TestRestoreSharingOneByOne loses one thing at a time: that comes back, and nothing else is
// touched.
func TestRestoreSharingOneByOne(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(*testing.T, *rig)
		want []agent.Settled
	}{
		{"a daemon dies", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.KillDaemon(t.Context(), host, "inference"))
		}, []agent.Settled{
			{Subject: `the MPS layout of partition config "inference"`, Restored: []string{"MPS daemon inference: GPU " + noMIG}},
		}},
		{"a CDI specification is deleted", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.RemoveShareOutside(t.Context(), host, "b"))
		}, []agent.Settled{{Subject: `share "b"`, Restored: []string{`share "b": CDI device gpufleet.com/share=b`}}}},
		{"a claim is lost", func(t *testing.T, r *rig) {
			t.Helper()
			r.forgetClaim(gpu.ClaimShare, "c")
		}, []agent.Settled{{Subject: "the shares that no claim declares", Dropped: []string{`share "c"`}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := declaredSharing(t)
			tt.lose(t, r)
			if d := cmp.Diff(tt.want, r.reconcile()); d != "" {
				t.Error(d)
			}
			r.wantJournal(0)
			if got := r.reconcile(); len(got) > 0 || r.breaker.count() > 0 {
				t.Errorf("a second time: %+v, %d writes", got, r.breaker.count())
			}
		})
	}
}

func (r *rig) forgetClaim(kind gpu.ClaimKind, id string) {
	r.t.Helper()
	r.acquire("run-f")
	check(r.t, r.ForgetClaim(r.t.Context(), r.fence, kind, id))
	check(r.t, r.ReleaseLease(r.t.Context(), r.fence))
}

// TestRestoreShareOfAnInstanceMadeAgain has somebody make the instance under a share again:
// containers would ask for a device that is gone.
func TestRestoreShareOfAnInstanceMadeAgain(t *testing.T) {
	r := newRig(t, onSharing)
	r.done(layout("1", "mig", nil, mig("train", map[string]int{g3: 1}, hopper1)), shares("2", "a", nil, fraction("a", "train", gib)))
	check(t, r.ReleaseLease(t.Context(), r.fence))
	a, _ := r.share("a")
	check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper1, *a.Devices[0].Instance))
	check(t, r.fleet.CreateInstanceOutside(t.Context(), host, hopper1, *a.Devices[0].Instance))
	if got := r.reconcile(); len(got) != 1 || got[0].Subject != `share "a"` || len(got[0].Restored) != 1 {
		t.Errorf("settled %+v", got)
	}
	r.wantPlace("a", a.Devices...)
}

// TestRestoreSharingConflicts has what cannot be put back: it is named, and left alone.
func TestRestoreSharingConflicts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		meddle func(*testing.T, *rig)
		says   []string
	}{
		{"somebody closed a GPU", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.SetComputeModeOutside(t.Context(), host, noMIG, gpu.ComputeProhibited))
		}, []string{noMIG, "prohibited", "exclusive_process"}},
		{"somebody set a time slice", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.SetTimeSliceOutside(t.Context(), host, hopper2, gpu.TimeSliceShort))
		}, []string{hopper2, "short", "long"}},
		{"processes past MPS", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.SetComputeModeOutside(t.Context(), host, noMIG, gpu.ComputeDefault))
			r.process(noMIG, nil, gpu.Process{PID: 4711, Name: "python"})
		}, []string{noMIG, "exclusive_process", "4711", "python"}},
		{"the program is gone with the daemon", func(t *testing.T, r *rig) {
			t.Helper()
			check(t, r.fleet.KillDaemon(t.Context(), host, "inference"))
			check(t, r.fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
				s.Hosts[0].MPS.Program = ""
				return nil
			}))
		}, []string{"MPS daemon inference", "nvidia-cuda-mps-control"}},
		{"the servers of a killed daemon have clients", func(t *testing.T, r *rig) {
			t.Helper()
			r.client("inference", "python")
			check(t, r.fleet.KillControl(t.Context(), host, "inference"))
		}, []string{"MPS daemon inference", "does not run", "python"}},
		{"processes in a share without a claim", func(t *testing.T, r *rig) {
			t.Helper()
			_, err := r.fleet.StartInShare(t.Context(), host, "c", gpu.Process{Name: "jupyter"})
			check(t, err)
			r.forgetClaim(gpu.ClaimShare, "c")
		}, []string{`share "c"`, "jupyter"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := declaredSharing(t)
			tt.meddle(t, r)
			before := r.look()
			got := r.reconcile()
			if len(got) != 1 || len(got[0].Stands) != 1 || len(got[0].Restored)+len(got[0].Dropped) > 0 || r.breaker.count() > 0 {
				t.Fatalf("settled %+v, with %d writes", got, r.breaker.count())
			}
			for _, word := range tt.says {
				if !strings.Contains(got[0].Stands[0], word) {
					t.Errorf("it does not say %q: %s", word, got[0].Stands[0])
				}
			}
			wantSame(t, before, r.look())
		})
	}
}

// TestRestoreSharingGoesOn has a daemon not start: all else is restored, and the next time
// it is too.
func TestRestoreSharingGoesOn(t *testing.T) {
	r := declaredSharing(t)
	before := r.look()
	r.reboot()
	check(t, r.fleet.InjectFault(t.Context(), host, simulated.Fault{
		Op: simulated.OpEnsureDaemon, Object: "inference", Times: 1, Code: backend.Failed,
	}))
	got := r.reconcile()
	stands := 0
	for _, end := range got {
		stands += len(end.Stands)
	}
	if len(got) != 6 || len(got[1].Stands) != 1 || len(got[1].Restored) != 1 || !strings.Contains(got[1].Stands[0], "inference") ||
		stands != 2 {
		t.Errorf("settled %+v", got)
	}
	r.wantJournal(0)
	if got := r.reconcile(); len(got) != 2 || len(got[0].Stands)+len(got[1].Stands) > 0 {
		t.Errorf("the second time: %+v", got)
	}
	wantSame(t, before, r.look())
}

// TestDeathWhileRestoringSharing lets reconcile fail or die at each of its writes, and run
// again.
func TestDeathWhileRestoringSharing(t *testing.T) {
	r := declaredSharing(t)
	before := r.look()
	r.reboot()
	left := copyFleet(t, r.fleet)
	r.reconcile()
	writes := r.breaker.count()
	for at := 1; at <= writes; at++ {
		for _, m := range []mode{failBefore, dieBefore, dieAfter} {
			t.Run(fmt.Sprintf("write %d %s", at, m), func(t *testing.T) {
				t.Parallel()
				r := copyOfReleased(t, left)
				r.start()
				r.breaker.arm(at, m)
				_, _ = r.ending.server.Reconcile(t.Context(), 0)
				r.clock.advance(2 * time.Minute)
				r.reconcile()
				wantSame(t, before, r.look())
				r.wantPlace("a", r.placeOf("a")...)
				r.wantJournal(0)
			})
		}
	}
}

func (r *rig) placeOf(name string) []gpu.SharedDevice {
	r.t.Helper()
	s, _ := r.share(name)
	if s == nil {
		r.t.Fatalf("no share %s", name)
	}
	return s.Devices
}

// TestRestoreDaemonOfAnInstanceMadeAgain has a daemon serve a device that is gone: it is
// restarted for the one that there is.
func TestRestoreDaemonOfAnInstanceMadeAgain(t *testing.T) {
	r := declaredSharing(t)
	before := r.look()
	a, _ := r.share("a")
	place := *a.Devices[0].Instance
	check(t, r.fleet.DestroyInstanceOutside(t.Context(), host, hopper1, place))
	check(t, r.fleet.CreateInstanceOutside(t.Context(), host, hopper1, place))
	got := r.reconcile()
	if len(got) != 2 || len(got[0].Restored) != 1 || !strings.HasPrefix(got[0].Restored[0], "MPS daemon ") ||
		got[1].Subject != `share "a"` || len(got[1].Restored) != 1 {
		t.Errorf("settled %+v", got)
	}
	wantSame(t, before, r.look())
	r.wantPlace("a", a.Devices...)
}
