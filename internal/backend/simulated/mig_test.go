package simulated_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	a30    = "GPU-0a300000-0000-4000-8000-000000000001"
	rtx    = "GPU-60000000-0000-4000-8000-000000000002"
	nodeID = "node1"
)

// newNode is a Linux host with an A30, whose MIG mode changes with a reset, and a
// workstation GPU. Both are in MIG mode.
func newNode(t *testing.T) *others.Fleet {
	t.Helper()
	quarters, halves := []int{0, 1, 2, 3}, []int{0, 2}
	fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{{
		Name: nodeID, Platform: gpu.Linux, OS: gpu.OS{Name: "Debian 13"}, Units: []string{"nvidia-dcgm.service"},
		GPUs: []gpu.GPU{
			{
				ID: a30, Model: "NVIDIA A30", Vendor: "NVIDIA",
				MIG: &gpu.MIG{Enabled: true, Pending: true, NeedsReset: true, Profiles: []gpu.MIGProfile{
					{ID: 14, Name: "1g.6gb", Slices: 1, Max: 4, Size: 1, Starts: quarters},
					{ID: 21, Name: "1g.6gb+me", Slices: 1, Max: 1, Size: 1, Starts: quarters},
					{ID: 5, Name: "2g.12gb", Slices: 2, Max: 2, Size: 2, Starts: halves},
					{ID: 6, Name: "2g.12gb+me", Slices: 2, Max: 1, Size: 2, Starts: halves},
				}},
			},
			{ID: rtx, Model: "NVIDIA RTX PRO 6000", Vendor: "NVIDIA", MIG: &gpu.MIG{Enabled: true, Pending: true, Profiles: []gpu.MIGProfile{
				{ID: 47, Name: "1g.24gb", Slices: 1, Max: 4, Size: 1, Starts: quarters},
				{ID: 65, Name: "1g.24gb+me.all", Slices: 1, Max: 1, Size: 1, Starts: quarters},
				{ID: 67, Name: "1g.24gb-me", Slices: 1, Max: 4, Size: 1, Starts: quarters},
			}}},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

func place(profile string, start int) gpu.MIGPlacement {
	return gpu.MIGPlacement{Profile: profile, Start: start}
}

// card is a GPU of the node as it stands, read from the file anew.
func card(t *testing.T, fleet *others.Fleet, id string) gpu.GPU {
	t.Helper()
	again, err := others.Open(fleet.Path())
	if err != nil {
		t.Fatal(err)
	}
	host := inventory(t, again, nodeID)
	g, ok := host.GPU(id)
	if !ok {
		t.Fatalf("GPU %s is gone", id)
	}
	return *g
}

func wantPlaces(t *testing.T, fleet *others.Fleet, id string, want ...gpu.MIGPlacement) {
	t.Helper()
	g := card(t, fleet, id)
	if diff := cmp.Diff(want, g.MIG.State().Placements); diff != "" {
		t.Errorf("instances of GPU %s (-want +got):\n%s", id, diff)
	}
}

func TestMediaEnginesAreThereOnce(t *testing.T) {
	for name, c := range map[string]struct {
		gpu         string
		there, next string
		fits        bool
	}{
		"extensions of two profiles":  {gpu: a30, there: "1g.6gb+me", next: "2g.12gb+me"},
		"extensions beside a share":   {gpu: a30, there: "1g.6gb+me", next: "2g.12gb", fits: true},
		"all beside a share":          {gpu: rtx, there: "1g.24gb+me.all", next: "1g.24gb"},
		"a share beside all":          {gpu: rtx, there: "1g.24gb", next: "1g.24gb+me.all"},
		"all beside one with nothing": {gpu: rtx, there: "1g.24gb+me.all", next: "1g.24gb-me", fits: true},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := newNode(t)
			host := hostOf(t, fleet, nodeID)
			run(t, host.CreateInstance(t.Context(), c.gpu, place(c.there, 0)))
			err := host.CreateInstance(t.Context(), c.gpu, place(c.next, 2))
			if c.fits {
				run(t, err)
				wantPlaces(t, fleet, c.gpu, place(c.there, 0), place(c.next, 2))
				return
			}
			wantCode(t, err, backend.Insufficient)
			wantPlaces(t, fleet, c.gpu, place(c.there, 0))
		})
	}
}

func TestAsManyAsTheDriverCounts(t *testing.T) {
	fleet := newNode(t)
	run(t, fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts[0].GPUs[0].MIG.Profiles[0].Max = 2
		return nil
	}))
	host := hostOf(t, fleet, nodeID)
	run(t, host.CreateInstance(t.Context(), a30, place("1g.6gb", 0)), host.CreateInstance(t.Context(), a30, place("1g.6gb", 1)))
	wantCode(t, host.CreateInstance(t.Context(), a30, place("1g.6gb", 2)), backend.Insufficient)
	wantPlaces(t, fleet, a30, place("1g.6gb", 0), place("1g.6gb", 1))
}

// A call that fails half way leaves what it had done, and the next one goes on from
// there.
func TestFaultHalfWay(t *testing.T) {
	half := func(op simulated.Op) simulated.Fault {
		return simulated.Fault{Op: op, Times: 1, Code: backend.Failed, Moment: simulated.HalfWay}
	}
	t.Run("create", func(t *testing.T) {
		fleet := newNode(t)
		host := hostOf(t, fleet, nodeID)
		run(t, fleet.InjectFault(t.Context(), nodeID, half(simulated.OpCreateInstance)))
		wantCode(t, host.CreateInstance(t.Context(), a30, place("2g.12gb", 2)), backend.Failed)
		if g := card(t, fleet, a30); len(g.MIG.Instances) != 1 || len(g.MIG.Instances[0].Compute) != 0 {
			t.Errorf("the instances are %+v, want one without a compute instance", g.MIG.Instances)
		}
		run(t, host.CreateInstance(t.Context(), a30, place("2g.12gb", 2)))
		if g := card(t, fleet, a30); len(g.MIG.Instances[0].Compute) != 1 {
			t.Errorf("the instances are %+v", g.MIG.Instances)
		}
	})
	t.Run("destroy", func(t *testing.T) {
		fleet := newNode(t)
		host := hostOf(t, fleet, nodeID)
		run(t, host.CreateInstance(t.Context(), a30, place("2g.12gb", 2)),
			fleet.InjectFault(t.Context(), nodeID, half(simulated.OpDestroyInstance)))
		wantCode(t, host.DestroyInstance(t.Context(), a30, place("2g.12gb", 2)), backend.Failed)
		if g := card(t, fleet, a30); len(g.MIG.Instances) != 1 || len(g.MIG.Instances[0].Compute) != 0 {
			t.Errorf("the instances are %+v, want one without a compute instance", g.MIG.Instances)
		}
		run(t, host.DestroyInstance(t.Context(), a30, place("2g.12gb", 2)))
		wantPlaces(t, fleet, a30)
	})
	t.Run("mode", func(t *testing.T) {
		fleet := newNode(t)
		host := hostOf(t, fleet, nodeID)
		run(t, fleet.InjectFault(t.Context(), nodeID, half(simulated.OpSetMIGMode)))
		wantCode(t, host.SetMIGMode(t.Context(), a30, false, true), backend.Failed)
		if m := card(t, fleet, a30).MIG; !m.Enabled || m.Pending {
			t.Errorf("MIG mode %t, pending %t; want one that ends with a reset", m.Enabled, m.Pending)
		}
		run(t, host.SetMIGMode(t.Context(), a30, false, true))
		if m := card(t, fleet, a30).MIG; m.Enabled || m.Pending {
			t.Errorf("MIG mode %t, pending %t", m.Enabled, m.Pending)
		}
	})
	t.Run("a refusal of the host's own", func(t *testing.T) {
		fleet := newNode(t)
		host := hostOf(t, fleet, nodeID)
		run(t, host.CreateInstance(t.Context(), a30, place("2g.12gb", 0)),
			fleet.InjectFault(t.Context(), nodeID, half(simulated.OpCreateInstance)))
		wantCode(t, host.CreateInstance(t.Context(), a30, place("1g.6gb", 0)), backend.Failed)
		wantPlaces(t, fleet, a30, place("2g.12gb", 0))
		run(t, host.CreateInstance(t.Context(), a30, place("1g.6gb", 2)))
	})
	t.Run("of what is one step", func(t *testing.T) {
		err := newNode(t).InjectFault(t.Context(), nodeID, half(simulated.OpStopUnit))
		if err == nil || !strings.Contains(err.Error(), "half_way") {
			t.Errorf("got %v", err)
		}
	})
}

func TestFaultsNameInstancesAndUnits(t *testing.T) {
	fleet := newNode(t)
	host := hostOf(t, fleet, nodeID)
	for _, f := range []simulated.Fault{
		{Op: simulated.OpCreateInstance, Object: "1g.6gb@2", Code: backend.AccessDenied},
		{Op: simulated.OpStopUnit, Object: "nvidia-dcgm.service", Code: backend.Timeout},
	} {
		run(t, fleet.InjectFault(t.Context(), nodeID, f))
	}
	run(t, host.CreateInstance(t.Context(), a30, place("1g.6gb", 1)))
	wantCode(t, host.CreateInstance(t.Context(), a30, place("1g.6gb", 2)), backend.AccessDenied)
	wantPlaces(t, fleet, a30, place("1g.6gb", 1))
	wantCode(t, host.StopUnit(t.Context(), "nvidia-dcgm"), backend.Timeout)
	if units := inventory(t, fleet, nodeID).Units; len(units) != 1 {
		t.Errorf("the units are %v", units)
	}
}

func TestPlatformsKeepApart(t *testing.T) {
	windows := hostOf(t, newFleet(t, 1), "hv01")
	ctx := t.Context()
	for name, err := range map[string]error{
		"mode":    windows.SetMIGMode(ctx, gpu1, true, false),
		"create":  windows.CreateInstance(ctx, gpu1, place("1g.6gb", 0)),
		"destroy": windows.DestroyInstance(ctx, gpu1, place("1g.6gb", 0)),
		"refresh": windows.RefreshDevices(ctx),
		"stop":    windows.StopUnit(ctx, "x.service"),
		"start":   windows.StartUnit(ctx, "x.service"),
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, err, backend.NotSupported) })
	}
	linux := hostOf(t, newNode(t), nodeID)
	wantCode(t, linux.SetPartitionCount(ctx, a30, 4), backend.NotSupported)
	wantCode(t, linux.StartVM(ctx, vmID(1)), backend.NotSupported)
}

// What a GPU of Linux has no word for is left out.
func TestLinuxGPUsHaveNoAssignedStatus(t *testing.T) {
	fleet := newNode(t)
	run(t, hostOf(t, fleet, nodeID).CreateInstance(t.Context(), a30, place("1g.6gb", 1)))
	if status := card(t, fleet, a30).Status; status != "" {
		t.Errorf("the status is %q", status)
	}
}

func TestModeSetOutsideWaitsForAReset(t *testing.T) {
	fleet := newNode(t)
	run(t, fleet.SetMIGModeOutside(t.Context(), nodeID, a30, false), fleet.SetMIGModeOutside(t.Context(), nodeID, rtx, false))
	if m := card(t, fleet, a30).MIG; !m.Enabled || m.Pending {
		t.Errorf("A30: MIG mode %t, pending %t", m.Enabled, m.Pending)
	}
	if m := card(t, fleet, rtx).MIG; m.Enabled || m.Pending {
		t.Errorf("RTX: MIG mode %t, pending %t", m.Enabled, m.Pending)
	}
	run(t, fleet.ResetGPU(t.Context(), nodeID, a30))
	if m := card(t, fleet, a30).MIG; m.Enabled || m.Pending {
		t.Errorf("after the reset: MIG mode %t, pending %t", m.Enabled, m.Pending)
	}
	wantCode(t, fleet.SetMIGModeOutside(t.Context(), nodeID, "GPU-nowhere", true), backend.NotFound)
}

func TestResetEndsWhatRuns(t *testing.T) {
	fleet := newNode(t)
	at := place("2g.12gb", 0)
	run(t, fleet.CreateInstanceOutside(t.Context(), nodeID, a30, at))
	_, err := fleet.StartProcess(t.Context(), nodeID, a30, &at, gpu.Process{Name: "trainer"})
	run(t, err, fleet.ResetGPU(t.Context(), nodeID, a30))
	if g := card(t, fleet, a30); len(g.Processes) > 0 || len(g.MIG.Instances) > 0 || !g.MIG.Enabled {
		t.Errorf("after the reset: %+v", g)
	}
}

func TestProcesses(t *testing.T) {
	fleet := newNode(t)
	ctx := t.Context()
	at := place("1g.6gb", 3)
	run(t, fleet.CreateInstanceOutside(ctx, nodeID, a30, at))

	first, err := fleet.StartProcess(ctx, nodeID, a30, &at, gpu.Process{Name: "trainer", Holder: "container 3f2a", Memory: gpu.MiB})
	run(t, err, fleet.StopProcess(ctx, nodeID, first))
	second, err := fleet.StartProcess(ctx, nodeID, a30, &at, gpu.Process{Name: "trainer", Holder: "container 3f2a", Memory: gpu.MiB})
	run(t, err)
	if first == second {
		t.Errorf("the process id %d came back", first)
	}
	own, err := fleet.StartProcess(ctx, nodeID, a30, &at, gpu.Process{PID: 77})
	run(t, err)
	if own != 77 {
		t.Errorf("the process got the id %d", own)
	}
	g := card(t, fleet, a30)
	instance, compute := g.MIG.Instances[0].ID, 0
	want := []gpu.Process{
		{PID: second, Name: "trainer", Holder: "container 3f2a", Memory: gpu.MiB, GPUInstance: &instance, ComputeInstance: &compute},
		{PID: 77, GPUInstance: &instance, ComputeInstance: &compute},
	}
	if diff := cmp.Diff(want, g.Processes); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}

	elsewhere := place("1g.6gb", 0)
	for name, try := range map[string]struct {
		gpu string
		at  *gpu.MIGPlacement
		say string
	}{
		"in no instance":   {a30, nil, "instance"},
		"where none is":    {a30, &elsewhere, "1g.6gb@0"},
		"on no GPU at all": {"GPU-nowhere", nil, "GPU-nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := fleet.StartProcess(ctx, nodeID, try.gpu, try.at, gpu.Process{}); err == nil || !strings.Contains(err.Error(), try.say) {
				t.Errorf("got %v", err)
			}
		})
	}
	if got := card(t, fleet, a30).Processes; len(got) != 2 {
		t.Errorf("processes: %+v", got)
	}
}

// A unit that is stopped takes its own processes with it, as systemd does.
func TestUnits(t *testing.T) {
	fleet := newNode(t)
	host := hostOf(t, fleet, nodeID)
	ctx := t.Context()
	run(t,
		fleet.SetUnit(ctx, nodeID, "training", simulated.Unit{}, true),
		fleet.SetUnit(ctx, nodeID, "nightly.timer", simulated.Unit{Disabled: true}, true),
		fleet.CreateInstanceOutside(ctx, nodeID, a30, place("1g.6gb", 0)),
	)
	at := place("1g.6gb", 0)
	_, err := fleet.StartProcess(ctx, nodeID, a30, &at, gpu.Process{Name: "theirs", Holder: "unit training.service"})
	run(t, err)
	_, err = fleet.StartProcess(ctx, nodeID, a30, &at, gpu.Process{Name: "others", Holder: "unit web.service"})
	run(t, err)

	run(t, host.StopUnit(ctx, "training"))
	if got := card(t, fleet, a30).Processes; len(got) != 1 || got[0].Name != "others" {
		t.Errorf("processes: %+v", got)
	}
	wantUnits(t, fleet, "nightly.timer", "nvidia-dcgm.service")

	run(t, host.StopUnit(ctx, "nvidia-dcgm.service"), fleet.Reboot(ctx, nodeID))
	wantUnits(t, fleet, "nvidia-dcgm.service", "training.service")
	run(t, host.StartUnit(ctx, "nightly.timer"))
	wantUnits(t, fleet, "nightly.timer", "nvidia-dcgm.service", "training.service")

	wantCode(t, newFleet(t, 1).SetUnit(ctx, "hv01", "x", simulated.Unit{}, true), backend.NotSupported)
}

func wantUnits(t *testing.T, fleet *others.Fleet, want ...string) {
	t.Helper()
	again, err := others.Open(fleet.Path())
	if err != nil {
		t.Fatal(err)
	}
	if got := inventory(t, again, nodeID).Units; !slices.Equal(got, want) {
		t.Errorf("the units are %v, want %v", got, want)
	}
}

// A file that was written before there was MIG keeps all its fields through changes, and
// none of them twice.
func TestEveryFieldOfAHostIsWrittenOnce(t *testing.T) {
	fleet := newNode(t)
	run(t, fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts[0].Controllers = []gpu.Controller{{Name: "nvidia-mig-manager"}}
		s.Hosts[0].Unfinished = []string{"gpu_partition_config a"}
		return nil
	}))
	run(t, hostOf(t, fleet, nodeID).CreateInstance(t.Context(), a30, place("1g.6gb", 1)))
	text := read(t, fleet.Path())
	for _, field := range []string{"units", "controllers", "unfinished", "platform"} {
		if n := strings.Count(text, `"`+field+`":`); n != 1 {
			t.Errorf("the field %q is there %d times:\n%s", field, n, text)
		}
	}
}
