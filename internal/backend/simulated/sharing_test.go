package simulated_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	h100  = "GPU-0a100000-0000-4000-8000-000000000003"
	h200  = "GPU-0a200000-0000-4000-8000-000000000004"
	p40   = "GPU-00400000-0000-4000-8000-000000000005"
	team  = "team-a"
	train = "training"
)

// newSharingNode is a Linux host with two GPUs of Hopper, and one from before Volta.
func newSharingNode(t *testing.T, driver string) *others.Fleet {
	t.Helper()
	card := func(id, model, capability string) gpu.GPU {
		return gpu.GPU{
			ID: id, Model: model, Vendor: "NVIDIA", VRAM: 80 * gib, Driver: gpu.Driver{Version: driver},
			ComputeCapability: capability, ComputeMode: gpu.ComputeDefault, TimeSlice: gpu.TimeSliceDefault,
		}
	}
	fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{{
		Name: nodeID, Platform: gpu.Linux, OS: gpu.OS{Name: "Debian 13"},
		MPS:  &gpu.MPSHost{Program: "/usr/bin/nvidia-cuda-mps-control"},
		GPUs: []gpu.GPU{card(h100, "NVIDIA H100", "9.0"), card(h200, "NVIDIA H200", "9.0"), card(p40, "Tesla P40", "6.1")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

// wanted is the daemon train for GPUs.
func wanted(threads float64, memory gpu.Bytes, gpuIDs ...string) gpu.MPSDaemonSpec {
	user := 1000
	d := gpu.MPSDaemonSpec{Name: train, User: &user, ActiveThreadPercentage: threads, PinnedMemoryLimit: memory}
	for _, id := range gpuIDs {
		d.Devices = append(d.Devices, gpu.SharedDevice{GPU: id})
	}
	return d
}

func wholeGPU(id string) gpu.ShareSpec {
	return gpu.ShareSpec{Name: team, Devices: []gpu.SharedDevice{{GPU: id}}}
}

// again is the node as it stands, read from the file anew.
func again(t *testing.T, fleet *others.Fleet) gpu.Host {
	t.Helper()
	opened, err := others.Open(fleet.Path())
	if err != nil {
		t.Fatal(err)
	}
	return inventory(t, opened, nodeID)
}

// names are those of the processes on a GPU.
func names(t *testing.T, fleet *others.Fleet, gpuID string) string {
	t.Helper()
	var out []string
	for _, p := range card(t, fleet, gpuID).Processes {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

// A server stays when its clients have ended, on all GPUs of its daemon.
func TestServerOfADaemon(t *testing.T) {
	fleet := newSharingNode(t, "580.95.05")
	host := hostOf(t, fleet, nodeID)
	run(t, host.EnsureDaemon(t.Context(), wanted(0, 0, h100, h200), false))
	if got := names(t, fleet, h100); got != "" {
		t.Errorf("before there is a client there are %q", got)
	}
	pid, err := fleet.StartClient(t.Context(), nodeID, train, gpu.Process{Name: "trainer"})
	run(t, err)
	run(t, fleet.StopProcess(t.Context(), nodeID, pid))
	for _, id := range []string{h100, h200} {
		g := card(t, fleet, id)
		if len(g.Processes) != 1 || g.Processes[0].Name != "nvidia-cuda-mps-server" || g.Processes[0].Holder != "unit gpu-mps@training.service" {
			t.Errorf("GPU %s has %+v", id, g.Processes)
		}
	}
	run(t, host.RemoveDaemon(t.Context(), train, false))
	if got := names(t, fleet, h100) + names(t, fleet, h200); got != "" {
		t.Errorf("after its end there are %q", got)
	}
	run(t, fleet.EditSimulation(t.Context(), nodeID, func(s *simulated.Simulation) {
		if len(s.MPS.Devices) != 0 {
			t.Errorf("the fleet remembers %+v", s.MPS)
		}
	}))
}

// An exclusive GPU is for one process: either the server, or somebody who goes past it.
func TestExclusiveGPU(t *testing.T) {
	start := func(t *testing.T, fleet *others.Fleet) error {
		t.Helper()
		_, err := fleet.StartProcess(t.Context(), nodeID, h100, nil, gpu.Process{Name: "notebook"})
		return err
	}
	t.Run("somebody is there", func(t *testing.T) {
		fleet := newSharingNode(t, "580.95.05")
		host := hostOf(t, fleet, nodeID)
		run(t, start(t, fleet), host.SetComputeMode(t.Context(), h100, gpu.ComputeExclusiveProcess),
			host.EnsureDaemon(t.Context(), wanted(0, 0, h100), false))
		_, err := fleet.StartClient(t.Context(), nodeID, train, gpu.Process{Name: "trainer"})
		if err == nil || !strings.Contains(err.Error(), "busy or unavailable") || names(t, fleet, h100) != "notebook" {
			t.Errorf("got %v, and the GPU has %q", err, names(t, fleet, h100))
		}
	})
	t.Run("the server is there", func(t *testing.T) {
		fleet := newSharingNode(t, "580.95.05")
		host := hostOf(t, fleet, nodeID)
		run(t, host.SetComputeMode(t.Context(), h100, gpu.ComputeExclusiveProcess),
			host.EnsureDaemon(t.Context(), wanted(0, 0, h100), false))
		for _, name := range []string{"trainer", "tester"} {
			_, err := fleet.StartClient(t.Context(), nodeID, train, gpu.Process{Name: name})
			run(t, err)
		}
		if err := start(t, fleet); err == nil || names(t, fleet, h100) != "nvidia-cuda-mps-server trainer tester" {
			t.Errorf("got %v, and the GPU has %q", err, names(t, fleet, h100))
		}
	})
	t.Run("prohibited", func(t *testing.T) {
		fleet := newSharingNode(t, "580.95.05")
		run(t, fleet.SetComputeModeOutside(t.Context(), nodeID, h100, gpu.ComputeProhibited))
		if err := start(t, fleet); err == nil || names(t, fleet, h100) != "" {
			t.Errorf("got %v, and the GPU has %q", err, names(t, fleet, h100))
		}
	})
}

// A daemon takes limits as it runs, and whole GiB only.
func TestLimitsOfDaemon(t *testing.T) {
	for _, driver := range []string{"580.95.05", "615.36.01"} {
		t.Run(driver, func(t *testing.T) {
			fleet := newSharingNode(t, driver)
			host := hostOf(t, fleet, nodeID)
			run(t, host.EnsureDaemon(t.Context(), wanted(50, 0, h100), false))
			_, err := fleet.StartClient(t.Context(), nodeID, train, gpu.Process{Name: "trainer"})
			run(t, err)
			run(t, host.EnsureDaemon(t.Context(), wanted(50, 2*gib, h100), false))
			before := again(t, fleet)
			wantCode(t, host.EnsureDaemon(t.Context(), wanted(50, gib+gib/2, h100), false), backend.InvalidParameter)
			if after := again(t, fleet); !after.MPS.Daemons[0].Equal(&before.MPS.Daemons[0].MPSDaemonSpec) ||
				len(after.MPS.Daemons[0].Clients) != 1 {
				t.Errorf("the daemon is %+v", after.MPS.Daemons[0])
			}
		})
	}
}

func TestDaemonHalfWay(t *testing.T) {
	half := func(t *testing.T, fleet *others.Fleet, op simulated.Op) {
		t.Helper()
		run(t, fleet.InjectFault(t.Context(), nodeID, simulated.Fault{
			Op: op, Object: train, Times: 1, Code: backend.Unavailable, Moment: simulated.HalfWay,
		}))
	}
	down := func(t *testing.T, fleet *others.Fleet) {
		t.Helper()
		if h := again(t, fleet); len(h.MPS.Daemons) != 1 || h.MPS.Daemons[0].PID != 0 || h.MPS.Daemons[0].Problem == "" {
			t.Errorf("there are %+v", h.MPS.Daemons)
		}
	}
	for name, first := range map[string][]gpu.MPSDaemonSpec{"a start": nil, "a restart": {wanted(0, 0, h200)}} {
		t.Run(name, func(t *testing.T) {
			fleet := newSharingNode(t, "580.95.05")
			host := hostOf(t, fleet, nodeID)
			for _, d := range first {
				run(t, host.EnsureDaemon(t.Context(), d, false))
			}
			half(t, fleet, simulated.OpEnsureDaemon)
			wantCode(t, host.EnsureDaemon(t.Context(), wanted(0, 0, h100), false), backend.Unavailable)
			down(t, fleet)
			run(t, host.EnsureDaemon(t.Context(), wanted(0, 0, h100), false))
			if h := again(t, fleet); h.MPS.Daemons[0].PID == 0 || h.MPS.Daemons[0].Devices[0].GPU != h100 {
				t.Errorf("there are %+v", h.MPS.Daemons)
			}
		})
	}
	t.Run("a removal", func(t *testing.T) {
		fleet := newSharingNode(t, "580.95.05")
		host := hostOf(t, fleet, nodeID)
		run(t, host.EnsureDaemon(t.Context(), wanted(0, 0, h100), false))
		half(t, fleet, simulated.OpRemoveDaemon)
		wantCode(t, host.RemoveDaemon(t.Context(), train, false), backend.Unavailable)
		down(t, fleet)
		run(t, host.RemoveDaemon(t.Context(), train, false))
		if h := again(t, fleet); len(h.MPS.Daemons) != 0 {
			t.Errorf("there are %+v", h.MPS.Daemons)
		}
	})
}

// A share whose answer is lost is there, and one that fails before is not.
func TestFaultsOfAShare(t *testing.T) {
	for moment, there := range map[simulated.Moment]bool{simulated.BeforeEffect: false, simulated.AfterEffect: true} {
		t.Run(string(moment), func(t *testing.T) {
			fleet := newSharingNode(t, "580.95.05")
			host := hostOf(t, fleet, nodeID)
			run(t, fleet.InjectFault(t.Context(), nodeID, simulated.Fault{
				Op: simulated.OpWriteShare, Object: team, Times: 1, Code: backend.Insufficient, Detail: "no space left on device", Moment: moment,
			}))
			err := host.WriteShare(t.Context(), wholeGPU(h100))
			wantCode(t, err, backend.Insufficient)
			if !strings.Contains(err.Error(), "share team-a") {
				t.Errorf("the refusal is %v", err)
			}
			h := again(t, fleet)
			if _, ok := h.HandedShare(team); ok != there {
				t.Errorf("the share is there: %t", ok)
			}
			run(t, host.WriteShare(t.Context(), wholeGPU(h100)))
		})
	}
}

func TestOneTimeSliceBeforeVolta(t *testing.T) {
	fleet := newSharingNode(t, "580.95.05")
	wantCode(t, hostOf(t, fleet, nodeID).SetTimeSlice(t.Context(), p40, gpu.TimeSliceLong), backend.NotSupported)
	wantCode(t, fleet.SetTimeSliceOutside(t.Context(), nodeID, p40, gpu.TimeSliceLong), backend.NotSupported)
	run(t, fleet.SetTimeSliceOutside(t.Context(), nodeID, h100, gpu.TimeSliceLong))
	if a, b := card(t, fleet, p40).TimeSlice, card(t, fleet, h100).TimeSlice; a != gpu.TimeSliceDefault || b != gpu.TimeSliceLong {
		t.Errorf("the time slices are %q and %q", a, b)
	}
}

// A GPU that is taken out ends who computes on it, there and elsewhere.
func TestClientsEndWithTheirGPU(t *testing.T) {
	fleet := newSharingNode(t, "580.95.05")
	run(t, hostOf(t, fleet, nodeID).EnsureDaemon(t.Context(), wanted(0, 0, h100, h200), false))
	_, err := fleet.StartClient(t.Context(), nodeID, train, gpu.Process{Name: "trainer"})
	run(t, err)
	run(t, fleet.RemoveGPU(t.Context(), nodeID, h200))
	h := again(t, fleet)
	if got := names(t, fleet, h100); got != "" || len(h.MPS.Daemons[0].Clients) != 0 {
		t.Errorf("GPU %s has %q, and the daemon is %+v", h100, got, h.MPS.Daemons[0])
	}
	if want := wanted(0, 0, h100, h200).Devices; !gpu.SameDevices(h.MPS.Daemons[0].Devices, want) {
		t.Errorf("its devices are %+v, want what it was started with", h.MPS.Daemons[0].Devices)
	}
}

// Nobody gets into a share whose daemon has died, or which was taken back.
func TestShareWithoutItsDaemon(t *testing.T) {
	fleet := newSharingNode(t, "580.95.05")
	host := hostOf(t, fleet, nodeID)
	share := wholeGPU(h100)
	share.Daemon = train
	run(t, host.EnsureDaemon(t.Context(), wanted(0, 0, h100), false), host.WriteShare(t.Context(), share),
		fleet.KillDaemon(t.Context(), nodeID, train))
	enter := func() error {
		_, err := fleet.StartInShare(t.Context(), nodeID, team, gpu.Process{Name: "trainer"})
		return err
	}
	if err := enter(); err == nil {
		t.Error("a process got into a share whose daemon does not run")
	}
	run(t, host.EnsureDaemon(t.Context(), wanted(0, 0, h100), false), enter(), fleet.RemoveShareOutside(t.Context(), nodeID, team))
	if err := enter(); err == nil {
		t.Error("a process got into a share that is gone")
	}
	if h := again(t, fleet); len(h.Shares) != 0 || len(h.MPS.Daemons[0].Clients) != 1 {
		t.Errorf("there are shares %+v and daemons %+v", h.Shares, h.MPS.Daemons)
	}
}

// A recording of a host has daemons that the simulator did not start.
func TestRecordedDaemon(t *testing.T) {
	fleet := newSharingNode(t, "580.95.05")
	run(t, fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts[0].MPS.Daemons = []gpu.MPSDaemon{{MPSDaemonSpec: wanted(50, 0, h100), PID: 5000, PipeDir: "/run/gpu-mps/training/pipe"}}
		return nil
	}))
	host := hostOf(t, fleet, nodeID)
	run(t, host.EnsureDaemon(t.Context(), wanted(20, 0, h100), false))
	if d := again(t, fleet).MPS.Daemons[0]; d.PID != 5000 || d.ActiveThreadPercentage != 20 {
		t.Errorf("for another limit it is %+v", d)
	}
	run(t, host.EnsureDaemon(t.Context(), wanted(20, 0, h200), false))
	if d := again(t, fleet).MPS.Daemons[0]; d.PID <= 5000 || d.Devices[0].GPU != h200 {
		t.Errorf("for another GPU it is %+v", d)
	}
}

// Only Hopper and later measure the activity of multiprocessors, and a process that ends
// in the window is in the first reading alone.
func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newSharingNode(t, "580.95.05")
		pid, err := fleet.StartProcess(t.Context(), nodeID, h100, nil, gpu.Process{Name: "trainer", Memory: 2 * gib})
		run(t, err, fleet.SetLoad(t.Context(), nodeID, simulated.Load{GPU: h100, Busy: 60, SMActivity: 30, MemoryUsed: gib}))
		ended := make(chan error, 1)
		go func() {
			time.Sleep(100 * time.Millisecond)
			ended <- fleet.StopProcess(t.Context(), nodeID, pid)
		}()
		gpus, _, err := hostOf(t, fleet, nodeID).Measure(t.Context(), 400*time.Millisecond)
		run(t, err, <-ended)
		ids := []string{gpus[0].ID, gpus[1].ID, gpus[2].ID}
		if !slices.Equal(ids, []string{h100, h200, p40}) {
			t.Fatalf("the GPUs are %q", ids)
		}
		busy, old := gpus[0], gpus[2]
		if *busy.Second.Busy != 60 || *busy.Second.SMActivity != 30 || *old.Second.Busy != 0 || old.Second.SMActivity != nil {
			t.Errorf("the readings are %+v and %+v", busy.Second, old.Second)
		}
		if busy.First.MemoryUsed != 3*gib || busy.Second.MemoryUsed != gib || len(busy.First.Processes) != 1 || len(busy.Second.Processes) != 0 {
			t.Errorf("the readings are %+v and %+v", busy.First, busy.Second)
		}
	})
}

// An instance that was made again in the window is another one.
func TestMeasureWhatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newNode(t)
		host := hostOf(t, fleet, nodeID)
		kept, changed := place("1g.6gb", 0), place("2g.12gb", 2)
		run(t, host.CreateInstance(t.Context(), a30, kept), host.CreateInstance(t.Context(), a30, changed))
		made := make(chan error, 2)
		go func() {
			time.Sleep(100 * time.Millisecond)
			made <- fleet.DestroyInstanceOutside(t.Context(), nodeID, a30, changed)
			made <- fleet.CreateInstanceOutside(t.Context(), nodeID, a30, changed)
		}()
		gpus, _, err := host.Measure(t.Context(), 400*time.Millisecond)
		run(t, err, <-made, <-made)
		instances := gpus[0].MIG.Instances
		if len(instances) != 2 || instances[0].First.Hidden || !instances[1].First.Hidden || instances[1].Second.Hidden {
			t.Errorf("the instances are %+v", instances)
		}
	})
}

// A process reaches one compute instance, so that an instance with two is no device.
func TestDividedInstanceIsNoDevice(t *testing.T) {
	fleet := newNode(t)
	host := hostOf(t, fleet, nodeID)
	run(t, host.CreateInstance(t.Context(), a30, place("2g.12gb", 2)), fleet.Edit(t.Context(), func(s *gpu.Snapshot) error {
		s.Hosts[0].GPUs[0].MIG.Instances[0].Compute = []gpu.ComputeInstance{{UUID: "MIG-1", Slices: 1}, {ID: 1, UUID: "MIG-2", Slices: 1}}
		return nil
	}))
	at := place("2g.12gb", 2)
	share := gpu.ShareSpec{Name: team, Devices: []gpu.SharedDevice{{GPU: a30, Instance: &at}}}
	wantCode(t, host.WriteShare(t.Context(), share), backend.InvalidState)
	if h := again(t, fleet); len(h.Shares) != 0 {
		t.Errorf("there are %+v", h.Shares)
	}
}

// What Linux hosts do, others do not.
func TestSharingIsForLinux(t *testing.T) {
	host := hostOf(t, newFleet(t, 0), "hv01")
	wantCode(t, host.EnsureDaemon(t.Context(), wanted(0, 0, gpu1), false), backend.NotSupported)
	wantCode(t, host.WriteShare(t.Context(), wholeGPU(gpu1)), backend.NotSupported)
	_, _, err := host.Measure(t.Context(), time.Millisecond)
	wantCode(t, err, backend.NotSupported)
}
