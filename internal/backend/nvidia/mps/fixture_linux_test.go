package mps_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// hangs is a program that does not end by itself.
const hangs = "hangs"

// hanging is its path. It is the test binary by another name: a file that a test writes cannot be run
// while a process that another test starts meanwhile has it open.
func hanging(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), hangs)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == hangs {
		time.Sleep(time.Hour)
	}
	if dir := os.Getenv(readVariable); dir != "" {
		printDaemons(dir)
	}
	os.Exit(fakemps.Run(m))
}

const (
	gpu1 = "GPU-5a1ce000-0000-4000-8000-000000000001"
	gpu2 = "GPU-5a1ce000-0000-4000-8000-000000000002"
	mig1 = "MIG-5a1ce000-0000-4000-8000-000000000003"
	gib  = 1024 * gpu.MiB
)

// host is a host of a test, with directories of its own and the processes of the machine.
type host struct {
	*mps.Host
	t        *testing.T
	dir      string
	opt      mps.Options
	programs *fakemps.Programs // nil with the real daemon
}

// newHost is a host on which a program is the control daemon.
func newHost(t *testing.T, program string, change func(*mps.Options)) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps") //nolint:usetesting // sockets have short paths, and t.TempDir is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	fakemps.EndBelow(t, dir)
	h := &host{t: t, dir: dir, opt: mps.Options{
		Program: program, RunDir: filepath.Join(dir, "run"), LogDir: filepath.Join(dir, "log"), UnitDir: filepath.Join(dir, "no-systemd"),
		StartTimeout: patience, StopTimeout: 10 * time.Second, CommandTimeout: patience,
	}}
	if change != nil {
		change(&h.opt)
	}
	h.Host = mps.New(h.opt)
	return h
}

// newFake is a host with the daemon of fakemps.
func newFake(t *testing.T, b fakemps.Behaviour, change func(*mps.Options)) *host {
	t.Helper()
	if b.Driver == 0 {
		b.Driver = 550
	}
	p := fakemps.Install(t, b)
	h := newHost(t, p.Control(), change)
	h.programs = p
	return h
}

// everyDaemon runs a test with the daemon of fakemps and with the real one.
func everyDaemon(t *testing.T, change func(*mps.Options), test func(t *testing.T, h *host)) {
	t.Helper()
	for _, driver := range []int{535, 550} {
		t.Run(fmt.Sprintf("fakemps %d", driver), func(t *testing.T) {
			t.Parallel()
			test(t, newFake(t, fakemps.Behaviour{Driver: driver}, change))
		})
	}
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, newHost(t, realProgram(t), change))
	})
}

// realProgram is NVIDIA's, which needs neither a GPU nor a driver to start.
func realProgram(t *testing.T) string {
	t.Helper()
	const name = "nvidia-cuda-mps-control"
	program := os.Getenv("GPU_TEST_MPS_CONTROL")
	if program == "" {
		program = name
	}
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	missing := "there is no " + program + ": apt-get install --no-install-recommends nvidia-cuda-mps, of Debian's component non-free, or " +
		"name another program in GPU_TEST_MPS_CONTROL"
	if os.Getenv("GPU_TEST_MPS") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// withSystemd gives a host the systemctl of fakemps.
func withSystemd(t *testing.T, h *host) *host {
	t.Helper()
	h.opt.UnitDir = filepath.Join(h.dir, "units")
	if err := os.Mkdir(h.opt.UnitDir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.opt.Systemctl = fakemps.Install(t, fakemps.Behaviour{UnitDir: h.opt.UnitDir}).Systemctl()
	h.Host = mps.New(h.opt)
	return h
}

func (h *host) ensure(spec mpsconf.Spec) {
	h.t.Helper()
	if changed, err := h.Ensure(h.t.Context(), spec, mps.KeepClients); err != nil || !changed {
		h.t.Fatalf("Ensure(%s): changed %v, %v", spec.Name, changed, err)
	}
}

// settled checks that there is nothing to do for a spec.
func (h *host) settled(spec mpsconf.Spec) {
	h.t.Helper()
	effect, err := h.Plan(h.t.Context(), spec)
	if err != nil || effect.Action != mps.Keep {
		h.t.Errorf("planned for %s: %+v, %v", spec.Name, effect, err)
	}
	if changed, err := h.Ensure(h.t.Context(), spec, mps.KeepClients); err != nil || changed {
		h.t.Errorf("Ensure(%s) again: changed %v, %v", spec.Name, changed, err)
	}
}

// planned checks what Ensure would do.
func (h *host) planned(spec mpsconf.Spec, want mps.Action) mps.Effect {
	h.t.Helper()
	effect, err := h.Plan(h.t.Context(), spec)
	if err != nil || effect.Action != want {
		h.t.Fatalf("planned for %s: %+v, %v, and %s was wanted", spec.Name, effect, err, want)
	}
	return effect
}

// daemon is what Read says of a daemon, which must be there.
func (h *host) daemon(name string) mps.Daemon {
	h.t.Helper()
	all, err := h.Read(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(d mps.Daemon) bool { return d.Name == name })
	if i < 0 {
		h.t.Fatalf("there is no daemon %s: %+v", name, all)
	}
	return all[i]
}

// names are the daemons of ours that Read sees.
func (h *host) names() []string {
	h.t.Helper()
	all, err := h.Read(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	var out []string
	for _, d := range all {
		if d.Name != "" {
			out = append(out, d.Name)
		}
	}
	return out
}

// control speaks to a daemon as its users do.
func (h *host) control(name string) *mps.Control {
	return &mps.Control{Name: name, Program: h.opt.Program, PipeDir: h.PipeDir(name), LogDir: filepath.Join(h.opt.LogDir, name)}
}

// kill kills a daemon as the kernel would, and waits until it has gone.
func (h *host) kill(name string) {
	h.t.Helper()
	pid := h.daemon(name).PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	eventually(h.t, func() bool { return h.daemon(name).PID != pid })
}

// nothingLeft checks that a host has nothing of a daemon any more.
func (h *host) nothingLeft(name string) {
	h.t.Helper()
	for _, dir := range []string{h.opt.RunDir, h.opt.LogDir, h.opt.UnitDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			h.t.Error(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), name) {
				h.t.Errorf("%s is left", filepath.Join(dir, e.Name()))
			}
		}
	}
	if mode := h.alive(name); mode != "" {
		h.t.Errorf("process %s is left", mode)
	}
}

// alive is the command of a process with a daemon's pipes, "" when there is none.
func (h *host) alive(name string) string {
	h.t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, path := range environs {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), "CUDA_MPS_PIPE_DIRECTORY="+h.PipeDir(name)+"\x00") {
			cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			if err == nil && len(cmdline) > 0 {
				return string(cmdline)
			}
		}
	}
	return ""
}

func refused(t *testing.T, err error, code backend.Code, words ...string) {
	t.Helper()
	known, ok := errors.AsType[*backend.Error](err)
	if !ok || known.Code != code {
		t.Fatalf("the error is %v, and code %s was wanted", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// training is a declared daemon of two GPUs.
func training() mpsconf.Spec {
	return mpsconf.Spec{Name: "training", Devices: []string{gpu1, gpu2}, User: new(0), Settings: mpsconf.Settings{
		ActiveThreadPercentage: 25, PinnedMemory: map[string]gpu.Bytes{gpu2: 4 * gib},
	}}
}
