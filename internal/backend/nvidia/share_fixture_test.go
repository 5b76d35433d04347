//go:build linux && cgo

package nvidia_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestMain(m *testing.M) {
	os.Exit(fakemps.Run(m))
}

// TestSharingConformance drives go-nvml with a libnvidia-ml, an nvidia-smi, an nvidia-ctk
// and an MPS control daemon. All are of one host, whose /dev has no devices behind it.
func TestSharingConformance(t *testing.T) {
	conformance.RunSharing(t, func(t *testing.T, initial gpu.Host) conformance.SharingFixture {
		t.Helper()
		return newShareFixture(t, initial)
	})
}

// connected is a process that computes through a daemon.
type connected struct {
	*fakemps.Client
	daemon string
}

// shareFixture is a Linux host with MPS and a container toolkit.
type shareFixture struct {
	*fixture
	bin       string
	behaviour fakemps.Behaviour
	programs  *fakemps.Programs // nil without MPS
	daemons   mps.Options
	clients   map[int]connected
	servers   map[string][]int // that NVML shows, by daemon
	foreign   int
}

var (
	_ conformance.SharingFixture = (*shareFixture)(nil)
	_ conformance.Metered        = (*shareFixture)(nil)
)

func newShareFixture(t *testing.T, initial gpu.Host) *shareFixture {
	t.Helper()
	return newShareFixtureOf(t, initial, fakenvml.Options{})
}

func newShareFixtureOf(t *testing.T, initial gpu.Host, o fakenvml.Options) *shareFixture {
	t.Helper()
	f := &shareFixture{fixture: newFixtureOf(t, initial, o), bin: t.TempDir(), clients: map[int]connected{}, servers: map[string][]int{}}
	run, err := os.MkdirTemp("", "mps") //nolint:usetesting // sockets have short paths, and t.TempDir is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	fakemps.EndBelow(t, run)
	f.daemons = mps.Options{
		Program: filepath.Join(f.bin, "nvidia-cuda-mps-control"), RunDir: filepath.Join(run, "d"), LogDir: filepath.Join(run, "log"),
		StartTimeout: time.Minute, StopTimeout: 10 * time.Second,
	}
	if initial.MPS != nil && initial.MPS.Program != "" {
		f.behaviour = fakemps.Behaviour{Driver: 590, GPU: true, MultiUser: true, ProcDir: f.tree.Proc()}
		f.programs = fakemps.Install(t, f.behaviour)
		f.daemons.Program = f.programs.Control()
	}
	f.makeNodes(initial.GPUs)
	f.open()
	if initial.ContainerToolkit != "" {
		f.write(filepath.Join(f.bin, "nvidia-ctk"), fmt.Sprintf(ctk, initial.ContainerToolkit, f.machine.SMI()), 0o700)
		f.refreshSpecification()
	}
	return f
}

// makeNodes makes the device nodes of the driver, those of MIG too. An empty file by many names
// does, as long as no container is to have them: a file each takes longer than a scenario.
func (f *shareFixture) makeNodes(gpus []gpu.GPU) {
	f.t.Helper()
	nodes := []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
	for i := range gpus {
		nodes = append(nodes, fmt.Sprintf("nvidia%d", i))
		if gpus[i].MIG == nil {
			continue
		}
		for instance := range 15 {
			for n := range 2 {
				nodes = append(nodes, fmt.Sprintf("nvidia-caps/nvidia-cap%d", fakenvml.Capability(i, instance, n)))
			}
		}
	}
	f.put("dev/nvidia-caps", "")
	f.put("dev", "null")
	for _, n := range nodes {
		if err := os.Link(f.at("dev/null"), f.at("dev/"+n)); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *shareFixture) at(path string) string { return filepath.Join(f.tree.Root(), path) }

// put makes a directory of the host, and an empty file in it.
func (f *shareFixture) put(dir, file string) {
	f.t.Helper()
	if err := os.MkdirAll(f.at(dir), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if file != "" {
		f.write(filepath.Join(f.at(dir), file), "", 0o600)
	}
}

// ctk stands for nvidia-ctk: it describes what nvidia-smi lists.
const ctk = `#!/bin/sh
case "$1 $2" in
"--version ") echo "NVIDIA Container Toolkit CLI version %s"; echo "commit: 0000000" ;;
"cdi generate")
	{
		echo "cdiVersion: 0.5.0"
		echo "kind: nvidia.com/gpu"
		echo "containerEdits: {mounts: [{hostPath: /usr/lib/libcuda.so.580, containerPath: /usr/lib/libcuda.so.580, options: [ro, bind]}]}"
		echo "devices:"
		'%s' -L | sed -n 's/.*UUID: \(.*\))$/- {name: \1, containerEdits: {env: [TOOLKIT=1]}}/p'
	} >"${3#--output=}" ;;
*) exit 2 ;;
esac
`

const hostSpecification = "var/run/cdi/nvidia.yaml"

func (f *shareFixture) refreshSpecification() {
	f.t.Helper()
	f.put("var/run/cdi", "")
	program := filepath.Join(f.bin, "nvidia-ctk")
	if out, err := exec.CommandContext(f.t.Context(), program, "cdi", "generate", "--output="+f.at(hostSpecification)).
		CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
}

func (f *shareFixture) open() {
	f.t.Helper()
	f.write(filepath.Join(f.bin, "systemctl"), fmt.Sprintf(systemctl, f.units), 0o700)
	f.backend = nvidia.New(nvidia.Options{
		Library: f.machine.Library(), Root: f.tree.Root(), SMI: f.machine.SMI(), Systemctl: filepath.Join(f.bin, "systemctl"),
		CTK: filepath.Join(f.bin, "nvidia-ctk"), Modprobe: filepath.Join(f.bin, "nvidia-modprobe"), MPS: f.daemons,
	})
}

func (f *shareFixture) MIG() backend.MIG         { return shareHost{f.backend, f} }
func (f *shareFixture) Sharing() backend.Sharing { return shareHost{f.backend, f} }
func (f *shareFixture) Meter() backend.Meter     { return f.backend }

// read are the daemons as the package mps sees them.
func (f *shareFixture) read() []mps.Daemon {
	f.t.Helper()
	o := f.daemons
	o.Root = f.tree.Root()
	all, err := mps.New(o).Read(context.WithoutCancel(f.t.Context()))
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

func (f *shareFixture) daemon(name string) mps.Daemon {
	f.t.Helper()
	all := f.read()
	i := slices.IndexFunc(all, func(d mps.Daemon) bool { return d.Name == name })
	if i < 0 {
		f.t.Fatalf("there is no daemon %s", name)
	}
	return all[i]
}

// running are processes of the test on the GPUs that CUDA calls by UUIDs.
func (f *shareFixture) running(uuids []string, kind fakenvml.ProcessKind, p gpu.Process) {
	f.t.Helper()
	for i := range f.ids {
		if slices.Contains(uuids, f.ids[i]) {
			f.machine.StartProcess(i, kind, p)
		}
		for _, in := range f.machine.GPU(i).Instances {
			for _, c := range in.Compute {
				if slices.Contains(uuids, c.UUID) {
					p.GPUInstance, p.ComputeInstance = new(in.ID), new(c.ID)
					f.machine.StartProcess(i, kind, p)
				}
			}
		}
	}
}

func (f *shareFixture) StartClient(t *testing.T, daemon, name string) int {
	t.Helper()
	d := f.daemon(daemon)
	return f.connect(t, d, d.Devices, name, "CUDA_MPS_PIPE_DIRECTORY="+d.PipeDir)
}

// connect has a process compute through a daemon. NVML shows its server from the first
// client on.
func (f *shareFixture) connect(t *testing.T, d mps.Daemon, devices []string, name string, env ...string) int {
	t.Helper()
	user := 0
	if d.Spec.User != nil {
		user = *d.Spec.User
	}
	client := f.programs.StartProcess(name, user, env...).Computes(t)
	f.clients[client.PID] = connected{client, d.Name}
	for _, pid := range f.daemon(d.Name).Servers {
		if !slices.Contains(f.servers[d.Name], pid) {
			f.servers[d.Name] = append(f.servers[d.Name], pid)
			f.running(d.Devices, fakenvml.Compute, gpu.Process{PID: pid, Name: "nvidia-cuda-mps-server", Memory: 30 * gpu.MiB})
		}
	}
	f.running(devices, fakenvml.MPS, gpu.Process{PID: client.PID, Name: name, Memory: 512 * gpu.MiB})
	return client.PID
}

func (f *shareFixture) StartInShare(t *testing.T, share, name string) int {
	t.Helper()
	host, err := f.backend.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	handed, ok := host.HandedShare(share)
	if !ok {
		t.Fatalf("there is no share %s", share)
	}
	var env []string
	for k, v := range handed.Environment {
		env = append(env, k+"="+v)
	}
	devices := strings.Split(handed.Environment["CUDA_VISIBLE_DEVICES"], ",")
	if pipe := handed.Environment["CUDA_MPS_PIPE_DIRECTORY"]; pipe != "" {
		return f.connect(t, f.daemon(filepath.Base(filepath.Dir(pipe))), devices, name, env...)
	}
	f.pid++
	f.running(devices, fakenvml.Compute, gpu.Process{PID: f.pid, Name: name, Memory: 512 * gpu.MiB})
	f.tree.Add(fakenvml.Proc{PID: f.pid, Comm: name, Args: []string{name}, Env: env})
	return f.pid
}

func (f *shareFixture) StopProcess(t *testing.T, pid int) {
	t.Helper()
	client, ok := f.clients[pid]
	if !ok {
		f.fixture.StopProcess(t, pid)
		return
	}
	client.Stop()
	f.settle()
	// The daemon notices that the connection is closed.
	eventually(t, "the daemon lists the process no more", func() bool {
		return !slices.ContainsFunc(f.read(), func(d mps.Daemon) bool {
			return slices.ContainsFunc(d.Clients, func(c mps.Client) bool { return c.PID == pid })
		})
	})
}

// eventually waits for what other processes do: a busy machine takes its time.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come about within a minute: %s", what)
		}
	}
}

// settle has the driver notice which processes of MPS have ended: the clients of a server
// end with it.
func (f *shareFixture) settle() {
	f.t.Helper()
	for name, servers := range f.servers {
		f.servers[name] = slices.DeleteFunc(servers, func(pid int) bool {
			if alive(pid) {
				return false
			}
			f.machine.StopProcess(pid)
			return true
		})
	}
	if len(f.clients) == 0 {
		return
	}
	served := map[int]bool{}
	for _, d := range f.read() {
		for _, c := range d.Clients {
			served[c.PID] = true
		}
		for pid, client := range f.clients { // the servers of one that has ended serve on
			served[pid] = served[pid] || client.daemon == d.Name && d.PID == 0 && len(d.Servers) > 0
		}
	}
	for pid, client := range f.clients {
		if served[pid] && alive(pid) {
			continue
		}
		if !client.Ended() {
			f.t.Fatalf("the client %d computes on without a daemon", pid)
		}
		f.machine.StopProcess(pid)
		delete(f.clients, pid)
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func (f *shareFixture) KillDaemon(t *testing.T, daemon string) {
	t.Helper()
	d := f.daemon(daemon)
	f.kill(append(d.Servers, d.PID)...)
}

func (f *shareFixture) KillControl(t *testing.T, daemon string) {
	t.Helper()
	f.kill(f.daemon(daemon).PID)
}

// kill ends processes as the kernel does.
func (f *shareFixture) kill(pids ...int) {
	f.t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			f.t.Fatal(err)
		}
	}
	eventually(f.t, "the processes end", func() bool { return !slices.ContainsFunc(pids, alive) })
	f.settle()
}

func (f *shareFixture) LeaveSockets(t *testing.T, daemon string) {
	t.Helper()
	pipe := filepath.Join(f.daemons.RunDir, daemon, "pipe")
	if err := os.MkdirAll(pipe, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"control", "control_privileged"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(pipe, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f.write(filepath.Join(pipe, "control_lock"), "", 0o600)
}

func (f *shareFixture) FailStarts(t *testing.T, fail bool) {
	t.Helper()
	f.behaviour.FailsToStart = fail
	f.programs.Behave(f.behaviour)
}

func (f *shareFixture) StartDaemonOutside(t *testing.T, gpuIDs ...string) int {
	t.Helper()
	f.foreign++
	dir := fmt.Sprintf("%s%d", f.daemons.RunDir, f.foreign)
	for _, d := range []string{dir, dir + "/pipe", dir + "/log"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), f.programs.Control(), "-d")
	cmd.Env = []string{
		"CUDA_MPS_PIPE_DIRECTORY=" + dir + "/pipe", "CUDA_MPS_LOG_DIRECTORY=" + dir + "/log", "CUDA_VISIBLE_DEVICES=" + strings.Join(gpuIDs, ","),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, d := range f.read() {
		if d.PipeDir == dir+"/pipe" {
			return d.PID
		}
	}
	t.Fatal("the daemon does not run")
	return 0
}

func (f *shareFixture) SetComputeModeOutside(t *testing.T, gpuID string, mode gpu.ComputeMode) {
	t.Helper()
	numbers := map[gpu.ComputeMode]nvml.ComputeMode{
		gpu.ComputeDefault: nvml.COMPUTEMODE_DEFAULT, gpu.ComputeExclusiveProcess: nvml.COMPUTEMODE_EXCLUSIVE_PROCESS,
		gpu.ComputeProhibited: nvml.COMPUTEMODE_PROHIBITED,
	}
	f.machine.SetComputeMode(f.index(gpuID), int(numbers[mode]))
}

const foreignSpecification = `{"cdiVersion":"0.5.0","kind":"example.com/share","devices":[{"name":"theirs",` +
	`"containerEdits":{"env":["THEIRS=1"]}}]}`

func (f *shareFixture) foreignSpec(share string) string {
	return f.at("var/run/cdi/gpufleet.com-share_" + share + ".json")
}

func (f *shareFixture) WriteForeignSpec(t *testing.T, share string) {
	t.Helper()
	f.put("var/run/cdi", "")
	f.write(f.foreignSpec(share), foreignSpecification, 0o600)
}

func (f *shareFixture) HasForeignSpec(t *testing.T, share string) bool {
	t.Helper()
	text, err := os.ReadFile(f.foreignSpec(share))
	return err == nil && string(text) == foreignSpecification
}

// SetLoad has a process that is there work and take memory.
func (f *shareFixture) SetLoad(t *testing.T, gpuID string, at *gpu.MIGPlacement, percent float64, memory gpu.Bytes) {
	t.Helper()
	i := f.index(gpuID)
	d := f.machine.GPU(i)
	instance := -1
	for _, in := range d.Instances {
		if at != nil && in.Placement() == *at {
			instance = in.ID
		}
	}
	worker := slices.IndexFunc(d.Processes, func(p gpu.Process) bool {
		return at == nil || p.GPUInstance != nil && *p.GPUInstance == instance
	})
	if worker < 0 {
		t.Fatalf("GPU %s has no process that could work on it", gpuID)
	}
	p := d.Processes[worker]
	f.machine.StopProcess(p.PID)
	p.Memory = memory
	f.machine.StartProcess(i, fakenvml.Compute, p)
	if at == nil {
		f.machine.SetUtilization(i, int(percent), 0)
	}
	f.machine.SetActivity(i, instance, fakenvml.Activity{SM: int(percent), Graphics: int(percent)})
}

// Reboot ends what runs, and empties /run, /dev/shm and what is below /var/run.
func (f *shareFixture) Reboot(t *testing.T) {
	t.Helper()
	if err := f.backend.Close(); err != nil {
		t.Error(err)
	}
	for _, client := range f.clients {
		client.Stop()
	}
	for _, d := range f.read() {
		for _, pid := range append([]int{d.PID}, d.Servers...) {
			if pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended already
			}
		}
	}
	clear(f.clients)
	clear(f.servers)
	for _, dir := range []string{f.daemons.RunDir, f.at("var/run/cdi")} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(f.bin, "nvidia-ctk")); err == nil {
		f.refreshSpecification()
	}
	f.machine.Reboot()
	f.open()
}

// shareHost is the backend on a host whose driver notices what ends.
type shareHost struct {
	*nvidia.Backend
	f *shareFixture
}

func (h shareHost) EnsureDaemon(ctx context.Context, d gpu.MPSDaemonSpec, endClients bool) error {
	err := h.Backend.EnsureDaemon(ctx, d, endClients)
	h.f.settle()
	return err
}

func (h shareHost) RemoveShare(ctx context.Context, name string, endClients bool) error {
	err := h.Backend.RemoveShare(ctx, name, endClients)
	h.f.settle()
	return err
}

func (h shareHost) RemoveDaemon(ctx context.Context, name string, endClients bool) error {
	err := h.Backend.RemoveDaemon(ctx, name, endClients)
	h.f.settle()
	return err
}
