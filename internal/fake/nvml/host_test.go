//go:build linux && cgo

package fakenvml_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestInitIsCounted(t *testing.T) {
	m := machine(t, hopper())
	lib := nvml.New(nvml.WithLibraryPath(m.Library()))
	ok(t, lib.Init())
	ok(t, lib.Init())
	d := device(t, lib, 0)
	ok(t, lib.Shutdown())
	_, r := d.GetUUID()
	ok(t, r)
	if len(m.Clients()) != 1 {
		t.Errorf("clients %v", m.Clients())
	}
	ok(t, lib.Shutdown())
	is(t, nvmlCount(), nvml.ERROR_UNINITIALIZED)
	session(t, m)
	_, r = d.GetUUID()
	is(t, r, nvml.ERROR_INVALID_ARGUMENT) // of another session
	if got := m.Calls().Inits(); got != 3 {
		t.Errorf("%d inits", got)
	}
}

// nvmlCount calls NVML without a session.
func nvmlCount() nvml.Return {
	_, r := nvml.DeviceGetCount()
	return r
}

func TestUnusableDriver(t *testing.T) {
	m := machine(t, hopper())
	for _, code := range []int{fakenvml.DriverNotLoaded, fakenvml.VersionMismatch} {
		m.BreakDriver(code)
		is(t, nvml.New(nvml.WithLibraryPath(m.Library())).Init(), nvml.Return(code))
		out, exit := smi(t, m, "-L")
		if exit != code || out == "" {
			t.Errorf("nvidia-smi exits %d: %s", exit, out)
		}
	}
	m.RepairDriver()
	session(t, m)
}

func TestReboot(t *testing.T) {
	m := machine(t, inMIG(hopper()), inMIG(ampere()), ampere(), hopper())
	m.CreateInstance(0, "1g.10gb", 0)
	m.CreateInstance(1, "1g.10gb", 0)
	m.StartProcess(3, fakenvml.Compute, gpu.Process{PID: 1})
	lib := session(t, m)
	d := device(t, lib, 3)
	ok(t, d.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
	_, r := device(t, lib, 2).SetMigMode(nvml.DEVICE_MIG_ENABLE)
	ok(t, r)
	m.Reboot()
	for index, want := range []bool{false, true, true, false} {
		got := m.GPU(index)
		if got.MIG != want || len(got.Instances)+len(got.Processes) > 0 || got.ComputeMode != 0 {
			t.Errorf("GPU %d after the reboot: %+v", index, got)
		}
	}
	is(t, nvmlCount(), nvml.ERROR_UNINITIALIZED)
	ok(t, nvml.Init())
	_, r = d.GetName()
	is(t, r, nvml.ERROR_INVALID_ARGUMENT)
}

func TestSwappedAndLost(t *testing.T) {
	m := machine(t, hopper(), hopper())
	old := m.GPU(0).UUID
	m.SwapGPU(0, "GPU-new")
	lib := session(t, m)
	_, r := lib.DeviceGetHandleByUUID(old)
	is(t, r, nvml.ERROR_NOT_FOUND)
	uuid, r := device(t, lib, 0).GetUUID()
	ok(t, r)
	if uuid != "GPU-new" {
		t.Errorf("UUID %s", uuid)
	}
	d := device(t, lib, 1)
	m.LoseGPU(1)
	_, r = d.GetUUID()
	is(t, r, nvml.ERROR_GPU_IS_LOST)
}

func TestForeignReset(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	m.CreateInstance(0, "1g.10gb", 3)
	d := device(t, session(t, m), 0)
	m.Reset(0)
	_, r := d.GetName()
	is(t, r, nvml.ERROR_GPU_IS_LOST)
	if got := m.GPU(0); !got.MIG || len(got.Instances) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestForeignInstances(t *testing.T) {
	m := machine(t, inMIG(hopper()))
	m.CreateInstance(0, "3g.40gb", 4)
	m.CreateInstance(0, "1g.10gb", 0)
	m.DestroyInstance(0, 0)
	got := m.GPU(0).Instances
	if len(got) != 1 || got[0].Profile != "3g.40gb" || got[0].Compute[0].Slices != 3 {
		t.Errorf("%+v", got)
	}
}

// smi runs the machine's nvidia-smi.
func smi(t *testing.T, m *fakenvml.Machine, args ...string) (out string, status int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), m.SMI(), args...)
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), c.ProcessState.ExitCode()
}

func TestResetBySMI(t *testing.T) {
	linked, peer := ampere(), ampere()
	linked.BusID, peer.BusID = "00000000:1A:00.0", "00000000:2A:00.0"
	linked.Links, peer.Links = []string{peer.BusID}, []string{linked.BusID}
	for name, c := range map[string]struct {
		gpus   []fakenvml.GPU
		before func(*testing.T, *fakenvml.Machine)
		args   []string
		exit   int
		says   string
	}{
		"by index":   {gpus: []fakenvml.GPU{ampere()}, args: []string{"-i", "0"}, says: "GPU 00000000:1A:00.0 was successfully reset."},
		"by address": {gpus: []fakenvml.GPU{ampere()}, args: []string{"-i", "00000000:1a:00.0"}, says: "successfully reset"},
		"all":        {gpus: []fakenvml.GPU{ampere(), ampere()}, says: "successfully reset"},
		"unknown":    {gpus: []fakenvml.GPU{ampere()}, args: []string{"-i", "GPU-none"}, exit: 6, says: "No devices were found"},
		"watched": {
			gpus: []fakenvml.GPU{ampere()}, args: []string{"-i", "0"}, exit: 255, says: "00000000:1A:00.0: In use by another client",
			before: func(_ *testing.T, m *fakenvml.Machine) {
				m.StartProcess(0, fakenvml.Watcher, gpu.Process{PID: 5, Name: "nv-hostengine"})
			},
		},
		"persistent": {
			gpus: []fakenvml.GPU{ampere()}, exit: 255, says: "1 device is currently being used",
			before: func(_ *testing.T, m *fakenvml.Machine) { m.SetPersistence(0, true) },
		},
		"NVML is initialised": {
			gpus: []fakenvml.GPU{ampere()}, exit: 255, says: "In use by another client",
			before: func(t *testing.T, m *fakenvml.Machine) { session(t, m) },
		},
		"linked, alone":    {gpus: []fakenvml.GPU{linked, peer}, args: []string{"-i", "0"}, exit: 255, says: "NVLink"},
		"linked, together": {gpus: []fakenvml.GPU{linked, peer}, args: []string{"-i", "0,1"}, says: "successfully reset"},
		"not root": {
			gpus: []fakenvml.GPU{ampere()}, exit: 4, says: "Insufficient Permissions",
			before: func(_ *testing.T, m *fakenvml.Machine) { m.SetRoot(false) },
		},
		"told to fail": {
			gpus: []fakenvml.GPU{ampere()}, exit: 15,
			before: func(_ *testing.T, m *fakenvml.Machine) { m.Fail(fakenvml.Fault{Function: "nvidia-smi", Code: 15}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, c.gpus...)
			lib := nvml.New(nvml.WithLibraryPath(m.Library()))
			ok(t, lib.Init())
			_, r := device(t, lib, 0).SetMigMode(nvml.DEVICE_MIG_ENABLE)
			ok(t, r)
			ok(t, lib.Shutdown())
			if c.before != nil {
				c.before(t, m)
			}
			out, exit := smi(t, m, append([]string{"--gpu-reset"}, c.args...)...)
			if exit != c.exit || !strings.Contains(out, c.says) {
				t.Errorf("exit status %d, want %d:\n%s", exit, c.exit, out)
			}
			if got := m.GPU(0); got.MIG != (c.exit == 0) || !got.Pending {
				t.Errorf("MIG %v, pending %v", got.MIG, got.Pending)
			}
		})
	}
}

func TestTimeSlice(t *testing.T) {
	m := machine(t, hopper(), inMIG(hopper()))
	if out, exit := smi(t, m, "compute-policy", "-i", m.GPU(0).UUID, "--set-timeslice", "2"); exit != 0 {
		t.Fatal(out)
	}
	if got := m.GPU(0).Timeslice; got != 2 {
		t.Errorf("time slice %d", got)
	}
	if out, _ := smi(t, m, "compute-policy", "-l"); !strings.Contains(out, "|   0     Timeslice      Medium       |") {
		t.Errorf("no Medium in %s", out)
	}
	if _, exit := smi(t, m, "compute-policy", "-i", "1", "--set-timeslice", "2"); exit == 0 {
		t.Error("a GPU in MIG mode took a time slice")
	}
	for _, args := range [][]string{{"compute-policy", "--set-timeslice", "4"}, {"--set-timeslice", "1"}, {"mig", "-lgip"}, {}} {
		if _, exit := smi(t, m, args...); exit != 2 {
			t.Errorf("nvidia-smi %v exits %d", args, exit)
		}
	}
}
