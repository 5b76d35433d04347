//go:build linux && cgo

// Package share_test takes shares of GPUs from plan to destroy: the real CLI, OpenSSH and
// agent, go-nvml on a libnvidia-ml that behaves as a driver does, and MPS daemons that are
// processes.
package share_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	fakecdi "github.com/gpufleet/terraform-provider-gpu/internal/fake/cdi"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

func TestMain(m *testing.M) {
	os.Exit(fakemps.Run(m))
}

const (
	gpus   = 3 // of the host: two for MPS, and one for MIG
	sliced = 2 // the one for MIG
)

// uuid is a GPU of this process alone: the real MPS daemons of the machine are found by their
// processes, those of other tests too.
func uuid(n int) string {
	return fmt.Sprintf("GPU-5eed%04x-0000-4000-8000-%012x", os.Getpid()&0xffff, n)
}

// site is a Linux host behind an OpenSSH server, and a folder in which the CLI runs.
type site struct {
	*cli.Folder
	machine *fakenvml.Machine
	root    string // where the host's files are
	agent   string
	env     []string
	host    string // the provider's block for the host
}

// newSite makes a host whose bin has an MPS control daemon.
func newSite(t *testing.T, bin string) *site {
	t.Helper()
	if why := sshd.Missing(); why != "" {
		t.Skip(why)
	}
	if cli.Path() == "" {
		t.Skip("there is no terraform and no tofu: make test-nvml builds OpenTofu")
	}
	model, ok := catalog.ByPCI(gpu.PCIID{Vendor: "10DE", Device: "2330"})
	if !ok || model.MIG == nil {
		t.Fatal("the catalog has no H100")
	}
	var o fakenvml.Options
	for i := range gpus {
		o.GPUs = append(o.GPUs, fakenvml.GPU{
			Model: "NVIDIA H100 80GB HBM3", UUID: uuid(i), DeviceID: 0x233010de, Memory: 80 * 1024 * gpu.MiB,
			Arch: fakenvml.Hopper, Profiles: model.MIG.Profiles,
		})
	}
	built := t.TempDir()
	build(t, filepath.Join(built, "terraform-provider-gpu"), ".")
	build(t, filepath.Join(built, "gpu-agent"), "-tags=rootfixture", "./cmd/gpu-agent")
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	s := &site{
		Folder: cli.New(t, built, "share-tests"), machine: fakenvml.New(t, o), root: rootOf(bin), agent: filepath.Join(built, "gpu-agent"),
	}
	s.env = append(s.machine.Environ(), "GPU_AGENT_STATE_DIR="+filepath.Join(t.TempDir(), "state"), "GPU_AGENT_ROOT_FIXTURE="+s.root)
	s.makeNodes()
	server, err := sshd.Start(t.Context(), sshd.Options{Dir: t.TempDir(), Env: s.env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sshd:\n%s", server.Log())
		}
		server.Close()
	})
	s.host = fmt.Sprintf("gpu01 = { ssh = { address = \"127.0.0.1\", port = %d, user = %q, private_key_file = %q, known_hosts_file = %q, "+
		"agent_path = %q } }",
		server.Port, server.User, server.ClientKey(), server.KnownHosts(), s.agent)
	return s
}

func build(t *testing.T, out string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", out}, args...)...)
	cmd.Dir = "../.."
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", filepath.Base(out), err, said)
	}
}

// newBin makes a host's root, with its programs in a directory of it. There is no systemd,
// so that daemons are processes.
func newBin(t *testing.T) string {
	t.Helper()
	root := fakenvml.NewProcTree(t).Root()
	fakemps.EndBelow(t, filepath.Join(root, "run"))
	bin := filepath.Join(root, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	program(t, bin, "systemctl", "#!/bin/sh\n")
	return bin
}

func rootOf(bin string) string { return filepath.Dir(bin) }

func program(t *testing.T, bin, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
}

func (s *site) at(path ...string) string { return filepath.Join(append([]string{s.root}, path...)...) }

// makeNodes makes what stands for device nodes, those of MIG too.
func (s *site) makeNodes() {
	s.T.Helper()
	nodes := []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
	minors, minor := "config 1\nmonitor 2\n", 2
	capability := func(name string) {
		minor++
		minors += fmt.Sprintf("%s/access %d\n", name, minor)
		nodes = append(nodes, fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor))
	}
	for i := range gpus {
		nodes = append(nodes, fmt.Sprintf("nvidia%d", i))
		for instance := range 15 {
			capability(fmt.Sprintf("gpu%d/gi%d", i, instance))
			capability(fmt.Sprintf("gpu%d/gi%d/ci0", i, instance))
		}
	}
	for _, dir := range []string{"dev/nvidia-caps", "proc/driver/nvidia-caps"} {
		if err := os.MkdirAll(s.at(dir), 0o755); err != nil {
			s.T.Fatal(err)
		}
	}
	for _, n := range nodes {
		cli.WriteFile(s.T, s.at("dev", n), "")
	}
	cli.WriteFile(s.T, s.at("proc/driver/nvidia-caps/mig-minors"), minors)
}

// run runs the agent on the host, as an administrator does.
func (s *site) run(args ...string) string {
	s.T.Helper()
	cmd := exec.CommandContext(s.T.Context(), s.agent, args...)
	cmd.Env = append(os.Environ(), s.env...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		s.T.Fatalf("gpu-agent %v: %v: %s", args, err, said)
	}
	return string(said)
}

// inventory is what the agent says of the host.
func (s *site) inventory() gpu.Host {
	s.T.Helper()
	said := s.run("inventory", "--json")
	var all gpu.Snapshot
	if err := json.Unmarshal([]byte(said), &all); err != nil || len(all.Hosts) != 1 {
		s.T.Fatalf("%v: %s", err, said)
	}
	return all.Hosts[0]
}

// serves checks that the daemon of a config runs, and returns it.
func (s *site) serves(name string, devices ...int) *gpu.MPSDaemon {
	s.T.Helper()
	host := s.inventory()
	d, ok := host.Daemon(name)
	if !ok || d.PID == 0 || d.Problem != "" || len(d.Devices) != len(devices) {
		s.T.Fatalf("daemon %s is %+v", name, d)
	}
	for i, index := range devices {
		if d.Devices[i].GPU != uuid(index) {
			s.T.Errorf("daemon %s has the devices %+v, want %v", name, d.Devices, devices)
		}
	}
	return d
}

// handed checks that containers can ask for a share, and returns what its processes get.
func (s *site) handed(name string) gpu.HandedShare {
	s.T.Helper()
	host := s.inventory()
	handed, ok := host.HandedShare(name)
	if _, err := os.Stat(s.spec(name)); !ok || err != nil {
		s.T.Fatalf("share %s is handed over: %t, %v", name, ok, err)
	}
	return *handed
}

func (s *site) spec(share string) string {
	return s.at("var/run/cdi", "gpufleet.com-share_"+share+".json")
}

// modes checks the compute modes of all GPUs.
func (s *site) modes(want ...nvml.ComputeMode) {
	s.T.Helper()
	for i := range gpus {
		if got := s.machine.GPU(i).ComputeMode; got != int(want[i]) {
			s.T.Errorf("GPU %d has compute mode %d, want %d", i, got, want[i])
		}
	}
}

// instances checks the GPU instances of the GPU for MIG.
func (s *site) instances(on bool, want ...string) {
	s.T.Helper()
	g := s.machine.GPU(sliced)
	var have []string
	for _, in := range g.Instances {
		have = append(have, in.Profile)
	}
	if g.MIG != on || !slices.Equal(have, want) {
		s.T.Errorf("MIG mode is %t with %v, and %t with %v was wanted", g.MIG, have, on, want)
	}
}

// kill ends a process as the kernel does when memory runs out.
func (s *site) kill(pid int) {
	s.T.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.T.Fatal(err)
	}
	cli.Eventually(s.T, fmt.Sprintf("process %d has ended", pid), func() bool { return !alive(pid) })
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// reboot ends what runs and empties /run.
func (s *site) reboot(daemons ...int) {
	s.T.Helper()
	for _, pid := range daemons {
		s.kill(pid)
	}
	for _, dir := range []string{"run", "var/run"} {
		if err := os.RemoveAll(s.at(dir)); err != nil {
			s.T.Fatal(err)
		}
	}
	s.machine.Reboot()
}

// nothingLeft checks that the host has nothing of MPS and of shares any more.
func (s *site) nothingLeft(pids ...int) {
	s.T.Helper()
	for _, pid := range pids {
		if alive(pid) {
			s.T.Errorf("process %d runs on", pid)
		}
	}
	host := s.inventory()
	if len(host.MPS.Daemons) > 0 || len(host.Shares) > 0 || len(host.Claims) > 0 {
		s.T.Errorf("left are the daemons %+v, the shares %+v and the claims %+v", host.MPS.Daemons, host.Shares, host.Claims)
	}
	for _, dir := range []string{"var/run/cdi", "run/gpu-mps", "var/log/gpu-mps"} {
		entries, err := os.ReadDir(s.at(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.T.Error(err)
		}
		for _, e := range entries {
			s.T.Errorf("%s is left", filepath.Join(dir, e.Name()))
		}
	}
}

// inContainer runs a script in a container that has a share.
func (s *site) inContainer(device, script string) string {
	s.T.Helper()
	fakecdi.MakeNodes(s.T, s.at("dev"))
	return fakecdi.Run(s.T, s.root, script, unchanged, device)
}
