//go:build linux && cgo

package nvidia_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func l40s(n int) gpu.GPU { return gpu.GPU{ID: uuid(n), Model: "NVIDIA L40S", VRAM: 48 * gib} }

// mpsHost is a host of the suite with MPS.
func mpsHost(t *testing.T, gpus ...gpu.GPU) *shareFixture {
	t.Helper()
	return newShareFixture(t, gpu.Host{GPUs: gpus, MPS: &gpu.MPSHost{Program: "nvidia-cuda-mps-control"}})
}

// TestShareOfAProcess is read from its environment, which others may have written.
func TestShareOfAProcess(t *testing.T) {
	var far []string
	for i := range 40000 {
		far = append(far, fmt.Sprintf("FILLER_%d=%s", i, strings.Repeat("x", 60)))
	}
	for name, tt := range map[string]struct {
		env  []string
		want string
	}{
		"none":                     {},
		"in a share":               {env: []string{"PATH=/bin", "GPUFLEET_SHARE=team-a", "HOME=/"}, want: "team-a"},
		"of a name that is longer": {env: []string{"GPUFLEET_SHARE_DEVICES=GPU-1"}},
		"of no name":               {env: []string{"GPUFLEET_SHARE="}},
		"no name of a share":       {env: []string{"GPUFLEET_SHARE=../../etc/passwd\nroot"}},
		"the first counts":         {env: []string{"GPUFLEET_SHARE=team-a", "GPUFLEET_SHARE=team-b"}, want: "team-a"},
		"beyond what is read":      {env: append(far, "GPUFLEET_SHARE=team-a")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
			f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4242})
			f.tree.Add(fakenvml.Proc{PID: 4242, Args: []string{"python3"}, Env: tt.env})
			if got := inventory(t, f.backend).GPUs[0].Processes[0].Share; got != tt.want {
				t.Errorf("it is in share %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("a link", func(t *testing.T) {
		f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
		f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4242})
		f.tree.Add(fakenvml.Proc{PID: 4242, Args: []string{"python3"}})
		environ, other := filepath.Join(f.tree.Proc(), "4242", "environ"), filepath.Join(t.TempDir(), "other")
		f.write(other, "GPUFLEET_SHARE=team-a\x00", 0o600)
		if err := os.Remove(environ); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, environ); err != nil {
			t.Fatal(err)
		}
		if got := inventory(t, f.backend).GPUs[0].Processes[0].Share; got != "" {
			t.Errorf("a link was followed to share %q", got)
		}
	})
}

func inventory(t *testing.T, b *nvidia.Backend) gpu.Host {
	t.Helper()
	host, err := b.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// TestNamesOfProcesses are whole, though the kernel keeps 15 bytes of them.
func TestNamesOfProcesses(t *testing.T) {
	for want, args := range map[string][]string{
		"nvidia-cuda-mps-server": {"/usr/bin/nvidia-cuda-mps-server"},
		"nvidia-cuda-mps":        {"sh", "/usr/bin/nvidia-cuda-mps-server"},
		"python3":                {"python3", "train.py"},
	} {
		f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
		comm := want[:min(len(want), 15)]
		f.machine.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4242})
		f.tree.Add(fakenvml.Proc{PID: 4242, Comm: comm, Args: args})
		if got := inventory(t, f.backend).GPUs[0].Processes[0].Name; got != want {
			t.Errorf("%v is called %q, want %q", args, got, want)
		}
	}
}

// TestTimeSlicesAreAskedForOnce in each inventory, and not where no GPU has one.
func TestTimeSlicesAreAskedForOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		gpus []gpu.GPU
		runs int
	}{
		"two GPUs":           {[]gpu.GPU{l40s(1), l40s(2)}, 1},
		"one in MIG mode":    {[]gpu.GPU{h100(t, 1), l40s(2)}, 1},
		"all of them":        {[]gpu.GPU{h100(t, 1), h100(t, 2)}, 0},
		"a host without any": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: tt.gpus})
			for i, g := range inventory(t, f.backend).GPUs {
				want := gpu.TimeSliceDefault
				if tt.gpus[i].MIG != nil {
					want = ""
				}
				if g.TimeSlice != want {
					t.Errorf("GPU %d has the time slice %q, want %q", i, g.TimeSlice, want)
				}
			}
			if runs := f.machine.Calls().Count("nvidia-smi"); runs != tt.runs {
				t.Errorf("nvidia-smi was run %d times", runs)
			}
		})
	}
	t.Run("without nvidia-smi", func(t *testing.T) {
		m := fakenvml.New(t, fakenvml.Options{GPUs: []fakenvml.GPU{{UUID: uuid(1)}}})
		b := nvidia.New(nvidia.Options{Library: m.Library(), Root: fakenvml.NewProcTree(t).Root(), SMI: "/nowhere/nvidia-smi"})
		if got := inventory(t, b).GPUs[0].TimeSlice; got != "" {
			t.Errorf("the time slice is %q", got)
		}
		wantCode(t, b.SetTimeSlice(t.Context(), uuid(1), gpu.TimeSliceLong), backend.Unavailable, "/nowhere/nvidia-smi is not installed")
	})
}

// TestToolkitIsAskedForOnce as long as it is the same one.
func TestToolkitIsAskedForOnce(t *testing.T) {
	f := newShareFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
	program, runs := filepath.Join(f.bin, "nvidia-ctk"), filepath.Join(t.TempDir(), "runs")
	install := func(says string, at time.Time) {
		f.write(program, fmt.Sprintf("#!/bin/sh\necho run >>%q\necho %q\n", runs, says), 0o700)
		if err := os.Chtimes(program, at, at); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string, times int) {
		t.Helper()
		for range 2 {
			if got := inventory(t, f.backend).ContainerToolkit; got != want {
				t.Errorf("the toolkit is %q, want %q", got, want)
			}
		}
		if text, err := os.ReadFile(runs); err == nil && strings.Count(string(text), "run") != times {
			t.Errorf("it was asked %d times, want %d", strings.Count(string(text), "run"), times)
		}
	}
	check("", 0)
	install("NVIDIA Container Toolkit CLI version 1.17.4", time.Unix(1e9, 0))
	check("1.17.4", 1)
	install("NVIDIA Container Toolkit CLI version 1.20.1-rc.1", time.Unix(2e9, 0))
	check("1.20.1-rc.1", 2)
	install("usage: nvidia-ctk", time.Unix(3e9, 0))
	check("", 3)
}

// TestDaemonsOfOthers are shown with the GPUs that they name, however they do.
func TestDaemonsOfOthers(t *testing.T) {
	f := mpsHost(t, l40s(1), l40s(2), h100(t, 3))
	f.machine.CreateInstance(2, "1g.10gb", 3)
	mig := f.machine.GPU(2).Instances[0].Compute[0].UUID
	for _, tt := range []struct {
		visible []string
		want    []gpu.SharedDevice
	}{
		{nil, []gpu.SharedDevice{{GPU: uuid(1)}, {GPU: uuid(2)}}}, // all but those in MIG mode
		{[]string{uuid(2), uuid(1)}, []gpu.SharedDevice{{GPU: uuid(2)}, {GPU: uuid(1)}}},
		{[]string{strings.ToLower(uuid(1))}, []gpu.SharedDevice{{GPU: uuid(1)}}},
		{[]string{mig}, []gpu.SharedDevice{{GPU: uuid(3), Instance: &gpu.MIGPlacement{Profile: "1g.10gb", Start: 3}}}},
		{[]string{"0", "GPU-", "GPU-gone\x1b"}, []gpu.SharedDevice{{GPU: "0"}, {GPU: "GPU-"}, {GPU: "GPU-gone\uFFFD"}}},
	} {
		pid := f.StartDaemonOutside(t, tt.visible...)
		for _, d := range f.inventory().MPS.Daemons {
			if d.PID == pid && (d.Name != "" || d.Problem != "" || !cmp.Equal(d.Devices, tt.want)) {
				t.Errorf("the daemon of %q is %+v, want %+v", tt.visible, d, tt.want)
			}
		}
	}
	if n := len(f.inventory().MPS.Daemons); n != 5 {
		t.Errorf("there are %d daemons", n)
	}
}

// TestDaemonOfOthersByNumber names GPUs as CUDA counts them, which is known among equals.
func TestDaemonOfOthersByNumber(t *testing.T) {
	f := mpsHost(t, l40s(1), l40s(2))
	f.StartDaemonOutside(t, "1", "2")
	want := []gpu.SharedDevice{{GPU: uuid(2)}, {GPU: "2"}}
	if d := f.inventory().MPS.Daemons; len(d) != 1 || !cmp.Equal(d[0].Devices, want) {
		t.Errorf("the daemon is %+v, want %+v", d, want)
	}
}

// TestDaemonChangedOutside shows the settings in force, and has them put back.
func TestDaemonChangedOutside(t *testing.T) {
	f := mpsHost(t, l40s(1), l40s(2))
	spec := gpu.MPSDaemonSpec{
		Name: "team-a", Devices: []gpu.SharedDevice{{GPU: uuid(1)}, {GPU: uuid(2)}}, User: new(0), ActiveThreadPercentage: 25,
		PinnedMemoryLimit: 4 * gib,
	}
	f.ensure(spec)
	d := f.daemon("team-a")
	c := &mps.Control{Name: d.Name, Program: f.daemons.Program, PipeDir: d.PipeDir, LogDir: filepath.Join(f.daemons.LogDir, d.Name)}
	if err := c.SetThreads(t.Context(), mps.NextServer, 100); err != nil {
		t.Fatal(err)
	}
	if err := c.SetMemoryLimit(t.Context(), mps.NextServer, 1, 2*gib); err != nil {
		t.Fatal(err)
	}
	host := f.inventory()
	if got, _ := host.Daemon("team-a"); got.ActiveThreadPercentage != 0 || got.PinnedMemoryLimit != 2*gib {
		t.Errorf("the host shows %+v", got)
	}
	f.ensure(spec)

	// All of the threads are no limit, and stay what they were declared as.
	spec.ActiveThreadPercentage, spec.PinnedMemoryLimit = 100, 0
	f.ensure(spec)
	spec.ActiveThreadPercentage = 0
	f.ensure(spec)
}

// TestBrokenDaemon does not hide the others.
func TestBrokenDaemon(t *testing.T) {
	f := mpsHost(t, l40s(1), l40s(2))
	for i, name := range []string{"broken", "sound"} {
		f.ensure(gpu.MPSDaemonSpec{Name: name, Devices: []gpu.SharedDevice{{GPU: uuid(i + 1)}}, User: new(0)})
	}
	f.write(filepath.Join(f.daemons.RunDir, "broken", "daemon.json"), "{", 0o600)
	host := f.inventory()
	broken, _ := host.Daemon("broken")
	sound, _ := host.Daemon("sound")
	if broken == nil || !strings.Contains(broken.Problem, "daemon.json is damaged") || sound == nil || sound.PID == 0 {
		t.Errorf("they are %+v and %+v", broken, sound)
	}
}

// TestDividedInstance has a GPU instance refused that a process would see a part of only.
func TestDividedInstance(t *testing.T) {
	f := mpsHost(t, h100(t, 1))
	lib := nvml.New(nvml.WithLibraryPath(f.machine.Library()))
	must := func(ret nvml.Return) {
		t.Helper()
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
	f.HalfMake(t, uuid(1), gpu.MIGPlacement{Profile: "2g.20gb", Start: 0})
	must(lib.Init())
	defer func() { must(lib.Shutdown()) }()
	d, ret := lib.DeviceGetHandleByUUID(uuid(1))
	must(ret)
	in, ret := d.GetGpuInstanceById(f.machine.GPU(0).Instances[0].ID)
	must(ret)
	half, ret := in.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	must(ret)
	for range 2 {
		_, ret = in.CreateComputeInstance(&half)
		must(ret)
	}
	place := gpu.MIGPlacement{Profile: "2g.20gb", Start: 0}
	devices := []gpu.SharedDevice{{GPU: uuid(1), Instance: &place}}
	wantCode(t, f.backend.EnsureDaemon(t.Context(), gpu.MPSDaemonSpec{Name: "a", Devices: devices, User: new(0)}, false),
		backend.InvalidState, "2g.20gb at 0 is divided into 1c.2g.20gb, 1c.2g.20gb")
	wantCode(t, f.backend.WriteShare(t.Context(), gpu.ShareSpec{Name: "a", Devices: devices}), backend.InvalidState,
		"2g.20gb at 0 is divided into 1c.2g.20gb, 1c.2g.20gb")
}

// TestSharingWithAnOldDriver does without what it lacks, and names it where it is needed.
func TestSharingWithAnOldDriver(t *testing.T) {
	missing := []string{
		"nvmlDeviceSetComputeMode", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetCudaComputeCapability",
		"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlGpmMigSampleGet",
	}
	m := fakenvml.New(t, fakenvml.Options{GPUs: []fakenvml.GPU{{UUID: uuid(1), Arch: fakenvml.Hopper, Memory: 80 * gib}}, Missing: missing})
	b := nvidia.New(nvidia.Options{Library: m.Library(), Root: fakenvml.NewProcTree(t).Root(), SMI: m.SMI()})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := inventory(t, b).GPUs[0].ComputeCapability; got != "" {
		t.Errorf("the compute capability is %q", got)
	}
	wantCode(t, b.SetComputeMode(t.Context(), uuid(1), gpu.ComputeExclusiveProcess), backend.NotSupported,
		"the driver lacks nvmlDeviceSetComputeMode")
	wantCode(t, b.WriteShare(t.Context(), gpu.ShareSpec{Name: "a", Devices: []gpu.SharedDevice{{GPU: uuid(1)}}}),
		backend.NotSupported, "the driver lacks nvmlDeviceGetMinorNumber")
	gpus, _, err := b.Measure(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := gpus[0].Second; r.Busy != nil || r.SMActivity != nil || r.MemoryTotal != 80*gib {
		t.Errorf("it is measured as %+v", r)
	}
}

// TestModesWithoutPersistence are lost when the last program that has the GPU open ends, and kept
// while another one has it. The inventory says what keeps them.
func TestModesWithoutPersistence(t *testing.T) {
	for name, tt := range map[string]struct {
		keep func(*fakenvml.Machine)
		want gpu.GPU
	}{
		"nothing keeps the GPU": {
			func(*fakenvml.Machine) {},
			gpu.GPU{ComputeMode: gpu.ComputeDefault, TimeSlice: gpu.TimeSliceDefault, Persistence: new(false)},
		},
		"persistence mode": {
			func(m *fakenvml.Machine) { m.SetPersistence(0, true) },
			gpu.GPU{ComputeMode: gpu.ComputeExclusiveProcess, TimeSlice: gpu.TimeSliceLong, Persistence: new(true)},
		},
		"a process": {
			func(m *fakenvml.Machine) { m.StartProcess(0, fakenvml.Compute, gpu.Process{PID: 4242}) },
			gpu.GPU{ComputeMode: gpu.ComputeExclusiveProcess, TimeSlice: gpu.TimeSliceLong, Persistence: new(false)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
			if err := errors.Join(f.backend.SetComputeMode(t.Context(), uuid(1), gpu.ComputeExclusiveProcess),
				f.backend.SetTimeSlice(t.Context(), uuid(1), gpu.TimeSliceLong)); err != nil {
				t.Fatal(err)
			}
			tt.keep(f.machine)
			if err := f.backend.Close(); err != nil {
				t.Fatal(err)
			}
			f.open()
			g := inventory(t, f.backend).GPUs[0]
			if diff := cmp.Diff(tt.want, gpu.GPU{ComputeMode: g.ComputeMode, TimeSlice: g.TimeSlice, Persistence: g.Persistence}); diff != "" {
				t.Errorf("the next agent finds (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMeasureBesideTheDriver leaves the driver to others in between, and notices when
// somebody has it loaded again.
func TestMeasureBesideTheDriver(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
	f.machine.CreateInstance(0, "1g.10gb", 0)
	measured := make(chan error)
	go func() {
		_, _, err := f.backend.Measure(t.Context(), 3*time.Second) // a busy machine is to be done with an inventory by then
		measured <- err
	}()
	eventually(t, "it is measured", func() bool { return f.machine.Calls().Count("nvmlGpmMigSampleGet") > 0 })
	inventory(t, f.backend)
	select {
	case err := <-measured:
		t.Fatalf("the window is over already: %v", err)
	default:
	}
	if err := f.backend.Close(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-measured, backend.Unavailable, "measure again")
	if n := f.machine.Calls().Count("nvmlGpmSampleFree"); n != 0 {
		t.Errorf("%d samples were given back, though theirs was the session that has gone", n)
	}
}

// TestMeasureOfALostGPU is measured as one of which nothing is known.
func TestMeasureOfALostGPU(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1), l40s(2)}})
	f.machine.LoseGPU(0)
	gpus, _, err := f.backend.Measure(t.Context(), 0)
	if err != nil || len(gpus) != 2 {
		t.Fatal(gpus, err)
	}
	if !gpus[0].First.Hidden || !gpus[0].Second.Hidden || gpus[1].Second.Hidden || gpus[1].Second.Busy == nil {
		t.Errorf("they are measured as %+v", gpus)
	}
}

// TestGPUThatFails has a GPU that is lost, or needs a reset, only when it is asked who uses
// it: the others are shown and measured nevertheless.
func TestGPUThatFails(t *testing.T) {
	for name, code := range map[string]int{"lost": 15, "needs a reset": 16} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1), l40s(2)}})
			fail := func() { f.machine.Fail(fakenvml.Fault{Function: "nvmlDeviceGetComputeRunningProcesses", Code: code}) }
			fail()
			host := inventory(t, f.backend)
			if host.GPUs[0].Problem == "" || host.GPUs[1].Problem != "" {
				t.Errorf("the problems are %q and %q", host.GPUs[0].Problem, host.GPUs[1].Problem)
			}
			fail()
			gpus, _, err := f.backend.Measure(t.Context(), 0)
			if err != nil || len(gpus) != 2 || !gpus[0].First.Hidden || gpus[1].First.Hidden || gpus[1].First.Busy == nil {
				t.Errorf("they are measured as %+v, %v", gpus, err)
			}
		})
	}
}

// TestMeasureThatIsNoNumber is taken for none.
func TestMeasureThatIsNoNumber(t *testing.T) {
	f := newFixture(t, gpu.Host{GPUs: []gpu.GPU{h100(t, 1)}})
	f.machine.CreateInstance(0, "1g.10gb", 0)
	f.machine.SetActivity(0, f.machine.GPU(0).Instances[0].ID, fakenvml.Activity{SM: -1})
	gpus, _, err := f.backend.Measure(t.Context(), 0)
	if err != nil || len(gpus) != 1 || gpus[0].MIG == nil || len(gpus[0].MIG.Instances) != 1 {
		t.Fatal(gpus, err)
	}
	if got := gpus[0].MIG.Instances[0].Second.SMActivity; got != nil {
		t.Errorf("the activity is %v", *got)
	}
}

// TestDeviceNodesThatAreMissing is an error that says how to make them.
func TestDeviceNodesThatAreMissing(t *testing.T) {
	f := newShareFixture(t, gpu.Host{GPUs: []gpu.GPU{l40s(1)}})
	if err := os.Remove(f.at("dev/nvidia-uvm")); err != nil {
		t.Fatal(err)
	}
	err := f.backend.WriteShare(t.Context(), gpu.ShareSpec{Name: "team-a", Devices: []gpu.SharedDevice{{GPU: uuid(1)}}})
	wantCode(t, err, backend.Failed, "team-a", "/dev/nvidia-uvm", "nvidia-modprobe")
}
