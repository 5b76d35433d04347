//go:build linux && cgo

package nvidia_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// picture is all of a host that a trial could leave otherwise.
type picture struct {
	GPUs  []fakenvml.Device
	Files map[string]string
}

func (f *fixture) picture(dirs ...string) picture {
	f.t.Helper()
	p := picture{Files: map[string]string{}}
	for i := range f.ids {
		p.GPUs = append(p.GPUs, f.machine.GPU(i))
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case os.IsNotExist(err):
				return nil
			case err != nil:
				return err
			case d.IsDir(): // the agent leaves its own, empty
				return nil
			case !d.Type().IsRegular():
				p.Files[path] = d.Type().String()
				return nil
			}
			text, err := os.ReadFile(path)
			p.Files[path] = string(text)
			return err
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
	return p
}

func (p picture) is(t *testing.T, now picture) {
	t.Helper()
	if !reflect.DeepEqual(p.GPUs, now.GPUs) {
		t.Errorf("the GPUs were %+v\nand are %+v", p.GPUs, now.GPUs)
	}
	for path := range now.Files {
		if _, ok := p.Files[path]; !ok {
			t.Errorf("left is %s", path)
		}
	}
	for path, text := range p.Files {
		if now.Files[path] != text {
			t.Errorf("%s was\n%s\nand is\n%s", path, text, now.Files[path])
		}
	}
}

// wantSteps looks for steps that begin so, and for failures.
func wantSteps(t *testing.T, answers []backend.Answer, steps ...string) {
	t.Helper()
	for _, a := range answers {
		if a.Err != nil {
			t.Errorf("%s%s: %v", a.Step, a.Assumption, a.Err)
		}
	}
	for _, s := range steps {
		if !slices.ContainsFunc(answers, func(a backend.Answer) bool { return strings.HasPrefix(a.Step, s) }) {
			t.Errorf("no step %q", s)
		}
	}
}

var trialOfMIG = []string{
	"turn MIG mode on", "create the GPU instance 1g.10gb at 0", "create the GPU instance 7g.80gb at 0", "turn MIG mode off",
}

var trialOfSharing = []string{
	"set the time slice short", "set the time slice long", "hand it to containers", "start an MPS daemon", "lower its threads as it runs",
	"hand it to containers with MPS", "end the MPS daemon", "take the share back",
}

func (f *shareFixture) sharingPicture() picture {
	return f.picture(f.at("etc"), f.at("run"), f.at("var"), f.daemons.RunDir, f.daemons.LogDir)
}

// trialHost has a GPU that changes its mode with a reset, one that changes it at once, one in MIG mode and one without
// MIG.
func trialHost(t *testing.T) gpu.Host {
	t.Helper()
	ampere, hopper := h100(t, 1), h100(t, 2)
	ampere.MIG = &gpu.MIG{NeedsReset: true, Profiles: ampere.MIG.Profiles}
	hopper.MIG = &gpu.MIG{Profiles: hopper.MIG.Profiles}
	return gpu.Host{
		GPUs:             []gpu.GPU{ampere, hopper, h100(t, 3), {ID: uuid(4), Model: "NVIDIA L40S", VRAM: 48 * gib}},
		MPS:              &gpu.MPSHost{Program: "nvidia-cuda-mps-control"},
		ContainerToolkit: "1.20.1",
	}
}

// A trial takes an idle GPU through all that the agent does, and leaves the host as it was.
func TestSelfTestChange(t *testing.T) {
	f := newShareFixture(t, trialHost(t))
	for i, want := range [][]string{
		slices.Concat(trialOfMIG, trialOfSharing, []string{"set the time slice long"}),
		slices.Concat(trialOfMIG, trialOfSharing),
		slices.Concat(trialOfMIG[1:], trialOfSharing, []string{"turn MIG mode on again"}),
		trialOfSharing,
	} {
		before := f.sharingPicture()
		answers := f.backend.SelfTestChange(t.Context(), "", f.ids[i])
		wantSteps(t, answers, append(want, "compare with before")...)
		before.is(t, f.sharingPicture())
		settled := slices.ContainsFunc(answers, func(a backend.Answer) bool {
			return a.Assumption == "linux-time-slice-reset" && a.Holds != nil && *a.Holds
		})
		if settled != (i == 0) {
			t.Errorf("GPU %d: that a reset loses a time slice is settled: %t", i, settled)
		}
	}
}

// A daemon of other GPUs that ends as a trial runs is not the trial's.
func TestSelfTestChangeAmongOthers(t *testing.T) {
	f := newShareFixture(t, trialHost(t))
	pid := f.StartDaemonOutside(t, f.ids[1])
	program := filepath.Join(t.TempDir(), "nvidia-cuda-mps-control")
	f.write(program, fmt.Sprintf("#!/bin/sh\nrm -rf %s\nexec %s \"$@\"\n", filepath.Join(f.tree.Proc(), strconv.Itoa(pid)),
		f.programs.Control()), 0o700)
	f.daemons.Program = program
	f.open()
	wantSteps(t, f.backend.SelfTestChange(t.Context(), "", f.ids[3]), append(trialOfSharing, "compare with before")...)
	if host := f.inventory(); len(host.MPS.Daemons) > 0 {
		t.Errorf("the other daemon did not end: %+v", host.MPS)
	}
}

// The same with NVIDIA's own control daemon.
func TestRealDaemonInTrial(t *testing.T) {
	f := realHost(t)
	for _, id := range f.ids[1:] {
		before := f.sharingPicture()
		wantSteps(t, f.backend.SelfTestChange(t.Context(), "", id), "lower its threads as it runs", "end the MPS daemon", "compare with before")
		before.is(t, f.sharingPicture())
	}
}

// A trial that fails, at whatever call, puts back what it did.
func TestSelfTestChangeFails(t *testing.T) {
	initial := trialHost(t)
	initial.MPS = nil
	f := newShareFixture(t, initial)
	before := f.sharingPicture()
	f.machine.ForgetCalls()
	wantSteps(t, f.backend.SelfTestChange(t.Context(), "", f.ids[0]), trialOfMIG...)
	calls := f.machine.Calls()
	cases := 12
	if testing.Short() {
		cases = 4
	}
	changes := slices.DeleteFunc(slices.Clone(calls), func(c fakenvml.Call) bool {
		return !strings.Contains(c.Function, "Set") && !strings.Contains(c.Function, "Create") && !strings.Contains(c.Function, "Destroy")
	})
	random := rand.New(rand.NewPCG(19, 13))
	for n := range cases {
		among := calls
		if n%2 == 0 {
			among = changes
		}
		at := random.IntN(len(among))
		fault := fakenvml.Fault{Function: among[at].Function, Skip: among[:at].Count(among[at].Function), Code: 999, Effect: n%4 == 0}
		f.machine.Fail(fault)
		answers := f.backend.SelfTestChange(t.Context(), "", f.ids[0])
		f.machine.Heal()
		if last := answers[len(answers)-1]; last.Err != nil && len(answers) > 1 && !strings.Contains(last.Err.Error(), "999") {
			t.Errorf("%+v: %s: %v", fault, last.Step, last.Err)
		}
		before.is(t, f.sharingPicture())
		if t.Failed() {
			for _, a := range answers {
				t.Logf("%s%s: %s %v", a.Step, a.Assumption, a.Found, a.Err)
			}
			t.Fatalf("%+v", fault)
		}
	}
}

// A trial refuses a GPU that somebody uses, or whose state nobody could tell afterwards.
func TestSelfTestChangeRefuses(t *testing.T) {
	f := newShareFixture(t, trialHost(t))
	f.CreateOutside(t, f.ids[2], gpu.MIGPlacement{Profile: "1g.10gb", Start: 3})
	f.StartProcess(t, f.ids[1], nil, "train")
	if err := f.backend.EnsureDaemon(t.Context(),
		gpu.MPSDaemonSpec{Name: "team-a", Devices: []gpu.SharedDevice{{GPU: f.ids[0]}}, User: new(os.Geteuid())}, false); err != nil {
		t.Fatal(err)
	}
	if err := f.backend.WriteShare(t.Context(), gpu.ShareSpec{Name: "team-b", Devices: []gpu.SharedDevice{{GPU: f.ids[3]}}}); err != nil {
		t.Fatal(err)
	}
	before := f.picture(f.at("etc"), f.at("var"))
	for _, c := range []struct{ vm, id, why string }{
		{"", f.ids[0], "MPS daemon team-a serves the GPU"},
		{"", f.ids[1], "process 4701 (train"},
		{"", f.ids[2], "1 GPU instances"},
		{"", f.ids[3], "share team-b has part"},
		{"", uuid(9), "no GPU"},
		{"web-01", f.ids[3], "takes none"},
	} {
		answers := f.backend.SelfTestChange(t.Context(), c.vm, c.id)
		if len(answers) != 1 || answers[0].Err == nil || !strings.Contains(answers[0].Err.Error(), c.why) {
			t.Errorf("%v: %+v", c, answers)
		}
	}
	before.is(t, f.picture(f.at("etc"), f.at("var")))
}

// A trial makes a vGPU where the host has vGPUs.
func TestSelfTestChangeVGPU(t *testing.T) {
	types := []gpu.VGPUType{{Name: "L40S-12Q", FrameBuffer: 12 * gib, Max: 4}, {Name: "L40S-24Q", FrameBuffer: 24 * gib, Max: 2}}
	g := gpu.GPU{
		ID: uuid(1), Model: "NVIDIA L40S", Address: "0000:21:00.0", VRAM: 48 * gib,
		VGPU: &gpu.VGPU{Functions: 16, HeterogeneousSupported: true, Types: types},
	}
	for _, mediated := range [][]string{nil, {g.ID}} {
		f := newVGPUFixture(t, gpu.Host{GPUs: []gpu.GPU{g}}, mediated)
		if err := os.MkdirAll(filepath.Join(f.tree.Root(), "dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, node := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0"} {
			f.write(filepath.Join(f.tree.Root(), "dev", node), "", 0o600)
		}
		before, err := f.backend.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantSteps(t, f.backend.SelfTestChange(t.Context(), "", g.ID), "turn the virtual functions on", "switch the mode of mixed vGPU sizes",
			"create the vGPU L40S-12Q", "remove it", "turn the virtual functions off", "compare with before")
		after, err := f.backend.Inventory(t.Context())
		if err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("it was %+v\nand is %+v, %v", before, after, err)
		}
	}
}
