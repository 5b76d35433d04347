//go:build linux

package windows_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

// rig is a Hyper-V host, and a folder in which the CLI runs.
type rig struct {
	*cli.Folder
	fleet    *others.Fleet
	stateDir string
	// reach is how the provider reaches the host. server is nil without SSH.
	reach  string
	server *sshd.Server
}

// newRig is a host behind an SSH server.
func newRig(t *testing.T, host gpu.Host) *rig {
	t.Helper()
	r := newHost(t, host, binaries)
	server, err := sshd.Start(t.Context(), sshd.Options{
		Dir: t.TempDir(), Env: r.agentEnv(),
		// As packaging/windows/sshd_config.example has it.
		Lines: []string{"Subsystem gpu-agent " + tool("exec") + " " + fixtureAgent + " serve --stdio"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	r.server = server
	r.reach = fmt.Sprintf("ssh = { address = \"127.0.0.1\", port = %d, user = %q, private_key_file = %q, known_hosts_file = %q }",
		server.Port, server.User, server.ClientKey(), server.KnownHosts())
	return r
}

// newLocalRig is a host on which the provider runs, as a program for Windows too.
func newLocalRig(t *testing.T, host gpu.Host) *rig {
	t.Helper()
	r := newHost(t, host, windowsProvider)
	r.reach = "local = {}"
	r.Env = append(r.Env, r.agentEnv()...)
	return r
}

// newHost makes a host. Its agent keeps its state as on a real one, in a directory on drive C: what others
// can write to, such as /tmp, is none that an agent takes.
func newHost(t *testing.T, host gpu.Host, provider string) *rig {
	t.Helper()
	dir := t.TempDir()
	fleet, err := others.Create(filepath.Join(dir, "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{host}})
	if err != nil {
		t.Fatal(err)
	}
	state, err := os.MkdirTemp(driveC, "gpu-agent-test-") //nolint:usetesting // it has to be on drive C
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	return &rig{Folder: cli.New(t, provider, "windows-tests"), fleet: fleet, stateDir: filepath.Join(state, "state")}
}

// agentEnv tells the agent under Wine which host stands behind COM.
func (r *rig) agentEnv() []string {
	return []string{
		"GPU_AGENT_WMI_FIXTURE=" + onWindows(r.fleet.Path()), "GPU_AGENT_WMI_FIXTURE_HOST=hv01",
		`GPU_AGENT_STATE_DIR=C:\` + filepath.Base(filepath.Dir(r.stateDir)) + `\state`,
	}
}

// driveC is drive C of the Windows that tools/wine/prepare makes.
const driveC = "../../bin/.wine/drive_c"

// onWindows is what Wine calls a file.
func onWindows(path string) string { return "Z:" + path }

// Write replaces the configuration, for the one host.
func (r *rig) Write(resources string) {
	r.T.Helper()
	r.Folder.Write([]string{"hv01 = { " + r.reach + " }"}, resources)
}

func (r *rig) host() gpu.Host {
	r.T.Helper()
	s, err := r.fleet.Snapshot(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}
	return s.Hosts[0]
}

func (r *rig) vm(name string) gpu.VM {
	r.T.Helper()
	for _, vm := range r.host().VMs {
		if vm.Name == name {
			return vm
		}
	}
	r.T.Fatalf("there is no VM %s", name)
	return gpu.VM{}
}

// running are the names of the VMs that run.
func (r *rig) running() map[string]bool {
	r.T.Helper()
	out := map[string]bool{}
	for _, vm := range r.host().VMs {
		if vm.State == gpu.VMRunning {
			out[vm.Name] = true
		}
	}
	return out
}

// state is what the agent has written down, read where Linux sees it.
func (r *rig) state() backend.State {
	r.T.Helper()
	dir, err := statedir.Open(r.stateDir)
	if err != nil {
		r.T.Fatal(err)
	}
	s, err := dir.Load(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}
	return s
}

// agents are the agents under Wine that work on this rig's host.
func (r *rig) agents() []int { return r.processes("gpu-agent") }

// processes are the processes of a program under Wine that work on this rig's host.
func (r *rig) processes(program string) []int {
	r.T.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		r.T.Fatal(err)
	}
	var out []int
	for _, file := range environs {
		dir := filepath.Dir(file)
		environ, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(environ), r.fleet.Path()) {
			continue
		}
		if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && strings.Contains(string(line), program) {
			pid, _ := strconv.Atoi(filepath.Base(dir)) // the pattern lets only digits through
			out = append(out, pid)
		}
	}
	return out
}

// wantQuiet waits until no agent is left, and asserts that nothing is in its journal and
// nobody holds the lease.
func (r *rig) wantQuiet() {
	r.T.Helper()
	cli.Eventually(r.T, "no agent is left", func() bool { return len(r.agents()) == 0 })
	if s := r.state(); s.Lease != nil || len(s.Journal) > 0 {
		r.T.Errorf("lease %+v, %d changes in the journal", s.Lease, len(s.Journal))
	}
}

// simulate says how the host behaves while no agent is at work.
func (r *rig) simulate(f func(*simulated.Simulation)) {
	r.T.Helper()
	if err := r.fleet.EditSimulation(context.Background(), "hv01", f); err != nil {
		r.T.Fatal(err)
	}
}

// The GPUs of the host. Two have partitions; the driver of the third makes none.
const (
	gpuA = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	gpuB = "PCIROOT(30)#PCI(0000)#PCI(0000)"
	gpuT = "PCIROOT(48)#PCI(0000)#PCI(0000)"
)

// hyperV is a host of its own with three GPUs and VMs of several kinds.
func hyperV() gpu.Host {
	return gpu.Host{
		Name: "hv01", Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
		GPUs: []gpu.GPU{a2(gpuA, "4&18416dc3&0&0000"), a2(gpuB, "4&2b7d3f10&0&0000"), t4()},
		VMs: []gpu.VM{
			desktop(1, "avd-01", gpu.VMRunning), desktop(2, "avd-02", gpu.VMOff), desktop(3, "render", gpu.VMRunning),
			desktop(4, "twin", gpu.VMOff), desktop(5, "twin", gpu.VMOff),
			{ID: vmID(6), Name: "old", State: gpu.VMOff, Generation: 1, Checkpoints: gpu.CheckpointsDisabled},
		},
	}
}

func vmID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func desktop(n int, name string, state gpu.VMState) gpu.VM {
	cache, low, high, stop := true, 3072*gpu.MiB, 40000*gpu.MiB, gpu.StopTurnOff
	return gpu.VM{
		ID: vmID(n), Name: name, State: state, Generation: 2, Checkpoints: gpu.CheckpointsDisabled,
		Settings: gpu.VMSettings{
			GuestControlledCache: &cache, LowMemoryMappedIOSpace: &low, HighMemoryMappedIOSpace: &high, AutomaticStopAction: &stop,
		},
	}
}

const wholeVRAM = uint64(15728640000)

func a2(id, instance string) gpu.GPU {
	const pnp = `VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1`
	each := func(total uint64) gpu.Capacity {
		return gpu.Capacity{Total: total, Available: total, Min: total / 4, Max: total / 4, Optimal: total / 4}
	}
	return gpu.GPU{
		ID: id, InstancePath: `PCI\` + pnp + `\` + instance, Model: "NVIDIA A2", Vendor: "NVIDIA",
		PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"}, VRAM: 16 << 30,
		Driver: gpu.Driver{Version: "573.39"}, Status: gpu.Partitioned, MMIO: gpu.MMIO{Low: 16 << 20, High: 16 << 30},
		Partitionable: &gpu.Partitionable{
			Name:        fmt.Sprintf(`\\?\PCI#%s#%s#{064092b3-625e-43bf-9eb5-dc845897dd59}`, pnp, instance),
			ValidCounts: []int{1, 2, 4, 8, 16}, Count: 4,
			VRAM: each(wholeVRAM), Encode: each(32), Decode: each(64), Compute: each(4096),
		},
	}
}

func t4() gpu.GPU {
	return gpu.GPU{
		ID: gpuT, InstancePath: `PCI\VEN_10DE&DEV_1EB8&SUBSYS_12A210DE&REV_A1\4&30a1b2c3&0&0000`, Model: "NVIDIA T4", Vendor: "NVIDIA",
		PCI: gpu.PCIID{Vendor: "10DE", Device: "1EB8", Subsystem: "12A210DE"}, VRAM: 16 << 30,
		Driver: gpu.Driver{Version: "573.39"}, Status: gpu.ReadyForDDA, MMIO: gpu.MMIO{Low: 64 << 20, High: 16 << 30},
	}
}
