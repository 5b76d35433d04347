//go:build linux && cgo

package nvidia_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// fixture is a Linux host: a machine behind NVML, a /proc and a systemctl.
type fixture struct {
	t        *testing.T
	machine  *fakenvml.Machine
	tree     *fakenvml.ProcTree
	units    string // directory of unit files of the systemctl
	bin      string // where that and other programs are
	ids      []string
	backend  *nvidia.Backend
	pid      int
	patience time.Duration
	holders  []string // units that hold GPUs while they run
}

var (
	_ conformance.MIGFixture  = (*fixture)(nil)
	_ conformance.MIGWatchers = (*fixture)(nil)
)

func newFixture(t *testing.T, initial gpu.Host) *fixture {
	t.Helper()
	return newFixtureOf(t, initial, fakenvml.Options{})
}

// newFixtureOf is the same with another driver.
func newFixtureOf(t *testing.T, initial gpu.Host, o fakenvml.Options) *fixture {
	t.Helper()
	f := &fixture{t: t, tree: fakenvml.NewProcTree(t), units: t.TempDir(), pid: 4700}
	for i := range initial.GPUs {
		g := &initial.GPUs[i]
		f.ids = append(f.ids, g.ID)
		o.GPUs = append(o.GPUs, card(g))
	}
	for _, unit := range initial.Units {
		f.write(filepath.Join(f.units, unit), "active\n", 0o600)
	}
	f.machine = fakenvml.New(t, o)
	f.tree.AddCapabilities(len(o.GPUs))
	f.open()
	t.Cleanup(func() {
		if err := f.backend.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	for i := range initial.GPUs {
		if m := initial.GPUs[i].MIG; m != nil && m.Enabled != m.Pending {
			f.machine.SetPendingMIG(i, m.Pending)
		}
	}
	return f
}

// card is a GPU of the suite as it comes.
func card(g *gpu.GPU) fakenvml.GPU {
	c := fakenvml.GPU{Model: g.Model, UUID: g.ID, Arch: fakenvml.Ada, Memory: g.VRAM}
	if id, err := strconv.ParseUint(g.PCI.Device+g.PCI.Vendor, 16, 32); err == nil {
		c.DeviceID = uint32(id)
	}
	if id, err := strconv.ParseUint(g.PCI.Subsystem, 16, 32); err == nil {
		c.SubsystemID = uint32(id)
	}
	if g.Address != "" {
		c.BusID = "0000" + strings.ToUpper(g.Address)
	}
	if g.MIG != nil {
		c.Arch, c.Profiles, c.MIG = fakenvml.Hopper, g.MIG.Profiles, g.MIG.Enabled
		if g.MIG.NeedsReset {
			c.Arch = fakenvml.Ampere
		}
	}
	return c
}

// systemctl stands for systemd: a unit is a file with its state.
const systemctl = `#!/bin/sh
dir=%s
verb=$1
for unit in "$@"; do :; done
case $unit in *.*) ;; *) unit=$unit.service ;; esac
case $verb in
show) if [ -e "$dir/$unit" ]; then echo loaded; else echo not-found; fi ;;
stop) echo inactive >"$dir/$unit" ;;
start) echo active >"$dir/$unit" ;;
list-units)
	case $2 in --state=exited)
		for unit in "$@"; do
			if [ -f "$dir/$unit" ] && read -r state <"$dir/$unit" && [ "$state" = exited ]; then echo "$unit loaded active exited"; fi
		done
		exit ;;
	esac
	for file in "$dir"/*; do
		if [ -e "$file" ] && read -r state <"$file" && [ "$state" = active ]; then echo "${file##*/} loaded active running"; fi
	done ;;
list-unit-files)
	for unit in "$@"; do
		if [ -f "$dir/$unit" ] && read -r state <"$dir/$unit" && [ "$state" = enabled ]; then echo "$unit enabled enabled"; fi
	done ;;
esac
`

func (f *fixture) open() {
	f.t.Helper()
	bin := f.t.TempDir()
	f.write(filepath.Join(bin, "systemctl"), fmt.Sprintf(systemctl, f.units), 0o700)
	f.bin = bin
	f.backend = f.backendWith(nil)
}

// backendWith is a backend of the host for which people declared controllers.
func (f *fixture) backendWith(declared map[string]gpu.ControllerRole) *nvidia.Backend {
	f.t.Helper()
	return nvidia.New(nvidia.Options{
		Controllers: declared,
		Library:     f.machine.Library(), Root: f.tree.Root(), SMI: f.machine.SMI(), Systemctl: filepath.Join(f.bin, "systemctl"),
		CTK: filepath.Join(f.bin, "nvidia-ctk"), Modprobe: filepath.Join(f.bin, "nvidia-modprobe"),
		Patience: f.patience,
	})
}

func (f *fixture) write(file, content string, mode os.FileMode) {
	f.t.Helper()
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		f.t.Fatal(err)
	}
}

// put writes a file of the host.
func (f *fixture) put(file, content string) {
	f.t.Helper()
	path := filepath.Join(f.tree.Root(), file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	f.write(path, content, 0o600)
}

func (f *fixture) index(id string) int {
	f.t.Helper()
	i := slices.Index(f.ids, id)
	if i < 0 {
		f.t.Fatalf("there is no GPU %s", id)
	}
	return i
}

func (f *fixture) MIG() backend.MIG { return host{f.backend, f} }

func (f *fixture) StartProcess(t *testing.T, gpuID string, at *gpu.MIGPlacement, name string) int {
	t.Helper()
	f.pid++
	p := gpu.Process{PID: f.pid, Name: name, Memory: 512 * gpu.MiB}
	if at != nil {
		for _, i := range f.machine.GPU(f.index(gpuID)).Instances {
			if i.Start == at.Start && len(i.Compute) > 0 {
				p.GPUInstance, p.ComputeInstance = new(i.ID), new(i.Compute[0].ID)
			}
		}
	}
	f.machine.StartProcess(f.index(gpuID), fakenvml.Compute, p)
	f.tree.Add(fakenvml.Proc{PID: f.pid, Comm: name, Args: []string{name}})
	return f.pid
}

func (f *fixture) StopProcess(t *testing.T, pid int) {
	t.Helper()
	f.machine.StopProcess(pid)
	f.tree.Remove(pid)
}

func (f *fixture) CreateOutside(t *testing.T, gpuID string, p gpu.MIGPlacement) {
	t.Helper()
	f.machine.CreateInstance(f.index(gpuID), p.Profile, p.Start)
}

func (f *fixture) DestroyOutside(t *testing.T, gpuID string, p gpu.MIGPlacement) {
	t.Helper()
	f.machine.DestroyInstance(f.index(gpuID), p.Start)
}

func (f *fixture) HalfMake(t *testing.T, gpuID string, p gpu.MIGPlacement) { f.Divide(t, gpuID, p, 0) }

// Divide leaves a GPU instance with one compute instance of a number of slices, none for 0.
func (f *fixture) Divide(t *testing.T, gpuID string, p gpu.MIGPlacement, wide int) {
	t.Helper()
	f.CreateOutside(t, gpuID, p)
	lib := nvml.New(nvml.WithLibraryPath(f.machine.Library()))
	must := func(ret nvml.Return) {
		t.Helper()
		if ret != nvml.SUCCESS {
			t.Fatal(ret)
		}
	}
	must(lib.Init())
	defer func() { must(lib.Shutdown()) }()
	d, ret := lib.DeviceGetHandleByUUID(gpuID)
	must(ret)
	for _, i := range f.machine.GPU(f.index(gpuID)).Instances {
		if i.Start != p.Start {
			continue
		}
		instance, ret := d.GetGpuInstanceById(i.ID)
		must(ret)
		for _, c := range i.Compute {
			compute, ret := instance.GetComputeInstanceById(c.ID)
			must(ret)
			must(compute.Destroy())
		}
		for n := 0; wide > 0 && n < nvml.COMPUTE_INSTANCE_PROFILE_COUNT; n++ {
			info, ret := instance.GetComputeInstanceProfileInfo(n, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
			if ret == nvml.SUCCESS && int(info.SliceCount) == wide {
				_, ret = instance.CreateComputeInstance(&info)
				must(ret)
				break
			}
		}
	}
}

func (f *fixture) Reboot(t *testing.T) {
	t.Helper()
	if err := f.backend.Close(); err != nil {
		t.Error(err)
	}
	f.machine.Reboot()
	f.open()
}

// HoldGPUs has a unit hold the GPUs as a monitoring agent does, while it runs.
func (f *fixture) HoldGPUs(t *testing.T, unit string) {
	t.Helper()
	f.holders = append(f.holders, unit)
	f.hold(unit, true)
}

const watcherPID = 3100

func (f *fixture) hold(unit string, yes bool) {
	f.t.Helper()
	at := slices.Index(f.holders, unit)
	switch {
	case at < 0:
	case !yes:
		f.machine.StopProcess(watcherPID + at)
	default:
		f.machine.StopProcess(watcherPID + at) // one that runs is not started twice
		for i := range f.ids {
			f.machine.StartProcess(i, fakenvml.Watcher, gpu.Process{PID: watcherPID + at, Name: strings.TrimSuffix(unit, ".service")})
		}
	}
}

// host is the backend on a host whose units hold GPUs.
type host struct {
	*nvidia.Backend
	f *fixture
}

func (h host) StopUnit(ctx context.Context, name string) error {
	err := h.Backend.StopUnit(ctx, name)
	if err == nil {
		h.f.hold(name, false)
	}
	return err
}

func (h host) StartUnit(ctx context.Context, name string) error {
	err := h.Backend.StartUnit(ctx, name)
	if err == nil {
		h.f.hold(name, true)
	}
	return err
}
