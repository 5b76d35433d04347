//go:build linux

// Package hardware_test runs the provider and the agent, as they are built, on a real NVIDIA GPU: the
// inventory beside what nvidia-smi says, and shares with NVIDIA's MPS daemon, processes and a
// container that compute. It changes no mode, clock or instance of a GPU: the compute mode
// stays what it is, and there is no MIG. Nothing else may use the GPU meanwhile.
package hardware_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	fakecdi "github.com/gpufleet/terraform-provider-gpu/internal/fake/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
)

const controlProgram = "nvidia-cuda-mps-control"

// site is this machine, and a folder in which the CLI runs.
type site struct {
	*cli.Folder
	bin   string
	gpu   string // the UUID of the GPU that is shared
	env   []string
	users string // whom the daemon is for, in the configuration; "" for the user of the test
	tells string // where what was seen is kept, "" for nowhere
}

// newSite takes the first GPU that nothing uses and that is not in MIG mode.
func newSite(t *testing.T) *site {
	t.Helper()
	bin := os.Getenv("GPU_TEST_GPU")
	if bin == "" {
		t.Skip("on a machine with an NVIDIA GPU this runs in `make test-gpu`")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if cli.Path() == "" {
		t.Fatal("there is no terraform and no tofu")
	}
	s := &site{Folder: cli.New(t, bin, "hardware-tests"), bin: bin, tells: os.Getenv("GPU_TEST_RECORD")}
	s.env = []string{"GPU_AGENT_STATE_DIR=" + filepath.Join(t.TempDir(), "state")}
	s.Env = append(s.Env, s.env...)
	host := s.inventory("before")
	at := slices.IndexFunc(host.GPUs, func(g gpu.GPU) bool {
		return len(g.Processes) == 0 && (g.MIG == nil || !g.MIG.Enabled && !g.MIG.Pending)
	})
	if at < 0 {
		t.Fatalf("every GPU is used, or in MIG mode: %+v", host.GPUs)
	}
	s.gpu = host.GPUs[at].ID
	return s
}

// keep keeps what was seen, for whoever wants to know it.
func (s *site) keep(name string, data []byte) {
	s.T.Helper()
	if s.tells == "" {
		return
	}
	file := filepath.Join(s.tells, strings.ReplaceAll(s.T.Name(), "/", "-")+"-"+name)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		s.T.Error(err)
	}
}

func (s *site) run(program string, args ...string) string {
	s.T.Helper()
	cmd := exec.CommandContext(s.T.Context(), program, args...)
	cmd.Env = append(os.Environ(), s.env...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		s.T.Fatalf("%s %v: %v: %s", program, args, err, said)
	}
	return string(said)
}

func (s *site) agent(args ...string) string {
	s.T.Helper()
	return s.run(filepath.Join(s.bin, "gpu-agent"), args...)
}

func (s *site) inventory(when string) gpu.Host {
	s.T.Helper()
	said := s.agent("inventory", "--json")
	s.keep(when+".json", []byte(said))
	var all gpu.Snapshot
	if err := json.Unmarshal([]byte(said), &all); err != nil || len(all.Hosts) != 1 {
		s.T.Fatalf("%v: %s", err, said)
	}
	return all.Hosts[0]
}

// modes are what nvidia-smi says of what a test must leave as it was.
func (s *site) modes() string {
	s.T.Helper()
	return s.run("nvidia-smi", "--query-gpu=uuid,compute_mode,mig.mode.current,mig.mode.pending,persistence_mode", "--format=csv,noheader")
}

// TestInventoryIsWhatNVIDIASays compares the inventory with nvidia-smi, line by line, and the
// catalog's MIG profiles with the driver's.
func TestInventoryIsWhatNVIDIASays(t *testing.T) {
	s := newSite(t)
	host := s.inventory("host")
	said := s.run("nvidia-smi",
		"--query-gpu=uuid,name,pci.bus_id,memory.total,driver_version,compute_mode,persistence_mode,compute_cap,ecc.mode.current",
		"--format=csv,noheader,nounits")
	s.keep("smi.csv", []byte(said))
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) != len(host.GPUs) {
		t.Fatalf("nvidia-smi has %d GPUs, the inventory %d", len(lines), len(host.GPUs))
	}
	for _, line := range lines {
		is := strings.Split(line, ", ")
		at := slices.IndexFunc(host.GPUs, func(g gpu.GPU) bool { return g.ID == is[0] })
		if at < 0 {
			t.Errorf("the inventory has no GPU %s", is[0])
			continue
		}
		g := host.GPUs[at]
		_, address, _ := strings.Cut(strings.ToLower(is[2]), "0000") // four digits more than sysfs has
		has := []string{
			g.ID, g.Model, g.Address, strconv.FormatUint(uint64(g.VRAM/gpu.MiB), 10), g.Driver.Version,
			strings.ReplaceAll(string(g.ComputeMode), "_", " "), onOff(g.Persistence), g.ComputeCapability, onOff(g.ECC),
		}
		want := []string{is[0], is[1], address, is[3], is[4], strings.ToLower(strings.ReplaceAll(is[5], "_", " ")), is[6], is[7], is[8]}
		if !slices.Equal(has, want) {
			t.Errorf("the inventory has %q, nvidia-smi %q", has, want)
		}
		s.profiles(&g)
	}
}

func onOff(is *bool) string {
	switch {
	case is == nil:
		return "[N/A]"
	case *is:
		return "Enabled"
	}
	return "Disabled"
}

// profiles compares what the driver says of MIG with the catalog.
func (s *site) profiles(g *gpu.GPU) {
	s.T.Helper()
	m, ok := catalog.Of(g.PCI, g.Model)
	if !ok {
		s.T.Logf("the catalog has no %s", g.Model)
		return
	}
	if (g.MIG == nil) != (m.MIG == nil) {
		s.T.Errorf("the driver knows of MIG on %s: %t, the catalog: %t", g.Model, g.MIG != nil, m.MIG != nil)
		return
	}
	if g.MIG == nil {
		return
	}
	byName := func(a, b gpu.MIGProfile) int { return strings.Compare(a.Name, b.Name) }
	driver, ours := slices.SortedFunc(slices.Values(g.MIG.Profiles), byName), slices.SortedFunc(slices.Values(m.MIG.Profiles), byName)
	if got, want := fmt.Sprintf("%+v", ours), fmt.Sprintf("%+v", driver); got != want {
		s.T.Errorf("of %s the driver says\n%s\nand the catalog\n%s", g.Model, want, got)
	}
}

// TestSelftest has the agent look at the host by itself.
func TestSelftest(t *testing.T) {
	s := newSite(t)
	said := s.agent("selftest", "--answers")
	s.keep("selftest.txt", []byte(said))
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "failed") || strings.HasPrefix(line, "no ") {
			t.Errorf("the self-test says: %s", line)
		}
	}
}

// shares is a config of MPS on one GPU, and shares of it. The compute mode stays.
const shares = `
resource "gpu_partition_config" "inference" {
  name     = "inference"
  hosts    = ["gpu01"]
  selector = { gpu_ids = { gpu01 = [%[1]q] } }
  mps      = { %[2]s, active_thread_percentage = 50, compute_mode = "default" }
}
%[3]s
`

const share = `
resource "gpu_share" %[1]q {
  name                     = %[1]q
  host                     = "gpu01"
  config                   = gpu_partition_config.inference.id
  memory                   = { limit_mib = 8192 }
  active_thread_percentage = %[2]d
}
`

// ending lets a share end its process when it is destroyed.
func (s *site) ending(name string) {
	s.T.Helper()
	file := filepath.Join(s.Dir, "main.tf")
	data, err := os.ReadFile(file)
	if err != nil {
		s.T.Fatal(err)
	}
	old := fmt.Sprintf("  name                     = %q\n", name)
	cli.WriteFile(s.T, file, strings.Replace(string(data), old, old+"  max_disruption = \"process_restart\"\n", 1))
}

// logs keeps those of the daemon.
func (s *site) logs(when string) {
	s.T.Helper()
	for _, name := range []string{"control", "server"} {
		data, err := os.ReadFile("/var/log/gpu-mps/inference/" + name + ".log")
		if err != nil {
			s.T.Log(err)
		}
		s.keep(when+"-"+name+".log", data)
	}
}

// wants writes the configuration, with shares of so many percent by name.
func (s *site) wants(percent map[string]int) {
	s.T.Helper()
	more := ""
	for name, part := range percent {
		more += fmt.Sprintf(share, name, part)
	}
	agent := filepath.Join(s.bin, "gpu-agent")
	s.Write([]string{fmt.Sprintf("gpu01 = { local = { agent_path = %q } }", agent)},
		fmt.Sprintf(shares, s.gpu, cmp.Or(s.users, fmt.Sprint("uid = ", os.Geteuid())), more))
}

func (s *site) daemon(when string) *gpu.MPSDaemon {
	s.T.Helper()
	host := s.inventory(when)
	d, ok := host.Daemon("inference")
	if !ok {
		s.T.Fatalf("there is no daemon: %+v", host)
	}
	return d
}

// handed is what processes in a share get.
func (s *site) handed(name string) gpu.HandedShare {
	s.T.Helper()
	host := s.inventory("handed-" + name)
	handed, ok := host.HandedShare(name)
	if !ok {
		s.T.Fatalf("share %s is not handed over", name)
	}
	return *handed
}

// seen is what a process sees of its GPU, by the program client.
type seen struct {
	GPUs            int    `json:"gpus"`
	UUID            string `json:"uuid"`
	Multiprocessors int    `json:"multiprocessors"`
	MemoryMiB       int    `json:"memory_mib"`
}

// taken is what came of an allocation. CUDA's result for no memory is 2.
type taken struct {
	MiB    int `json:"mib"`
	Result int `json:"result"`
}

const outOfMemory = 2

// process is one that computes until it is ended.
type process struct {
	seen  seen
	taken []taken
	pid   int
	end   func()
	// failed ends it, which may have failed, and says how.
	failed func() string
}

// compute starts a process with an environment, which takes memory.
func (s *site) compute(environment map[string]string, args ...string) *process {
	s.T.Helper()
	return s.computeAs(os.Geteuid(), environment, args...)
}

func (s *site) computeAs(user int, environment map[string]string, args ...string) *process {
	s.T.Helper()
	cmd := exec.CommandContext(s.T.Context(), filepath.Join(s.bin, "gpu-client"), args...)
	if user != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}} //nolint:gosec // It is a constant.
	}
	cmd.Env = os.Environ()
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		s.T.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.T.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	ended := false
	wait := func() error {
		if ended {
			return nil
		}
		ended = true
		in.Close()
		return cmd.Wait()
	}
	p := &process{pid: cmd.Process.Pid}
	p.failed = func() string { return fmt.Sprint(wait(), ": ", said.String()) }
	p.end = func() {
		if err := wait(); err != nil {
			s.T.Errorf("the process ended with %v: %s", err, said.String())
		}
	}
	s.T.Cleanup(p.end)
	lines := json.NewDecoder(bufio.NewReader(out))
	if err := lines.Decode(&p.seen); err != nil {
		s.T.Fatalf("the process does not compute: %v: %s", err, said.String())
	}
	for _, arg := range args {
		if _, err := strconv.Atoi(arg); err != nil {
			continue
		}
		var got taken
		if err := lines.Decode(&got); err != nil {
			s.T.Fatalf("the process ended: %v: %s", err, said.String())
		}
		p.taken = append(p.taken, got)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return p
}

// multiprocessors are those of the GPU, as a process sees them that is in no share.
func (s *site) multiprocessors() int {
	s.T.Helper()
	alone := s.compute(nil)
	defer alone.end()
	return alone.seen.Multiprocessors
}

// part checks that a process has a part of a GPU's multiprocessors, to within what the driver
// rounds to, and its own GPU alone.
func (s *site) part(p *process, whole, percent int) {
	s.T.Helper()
	s.T.Logf("a process of %d percent has %d of %d multiprocessors", percent, p.seen.Multiprocessors, whole)
	want := float64(whole*percent) / 100
	if n := float64(p.seen.Multiprocessors); n > want || n < want-4 {
		s.T.Errorf("a process of %d percent has %v of %d multiprocessors", percent, n, whole)
	}
	if p.seen.GPUs != 1 || p.seen.UUID != s.gpu {
		s.T.Errorf("a process of the share sees %+v", p.seen)
	}
}

// limited checks that the second of two allocations was beyond a process's memory.
func (s *site) limited(got []taken) {
	s.T.Helper()
	if len(got) != 2 || got[0].Result != 0 || got[1].Result != outOfMemory {
		s.T.Errorf("1024 MiB, then 8192 of 8192 MiB: %+v", got)
	}
}

// measured checks what is measured while one process writes to memory on 40 percent of the GPU, and
// another does nothing.
func (s *site) measured(idle, busy *process) {
	s.T.Helper()
	said := s.agent("utilization", "--json")
	s.keep("utilization.json", []byte(said))
	s.keep("utilization.txt", []byte(s.agent("utilization")))
	var of struct {
		GPUs []struct {
			ID        string  `json:"id"`
			Allocated float64 `json:"allocated_fraction"`
			Busy      float64 `json:"busy_percent"`
			SMs       float64 `json:"sm_activity_percent"`
			Processes []gpu.Process
		} `json:"gpus"`
	}
	if err := json.Unmarshal([]byte(said), &of); err != nil {
		s.T.Fatal(err)
	}
	for _, g := range of.GPUs {
		if g.ID != s.gpu {
			continue
		}
		if g.Allocated != 0.65 || g.Busy < 90 || g.SMs > 41 || g.SMs != 0 && g.SMs < 30 {
			s.T.Errorf("a GPU of which 65 percent are allocated and 40 are busy is measured as %+v", g)
		}
		for _, p := range []*process{idle, busy} {
			if !slices.ContainsFunc(g.Processes, func(is gpu.Process) bool {
				return is.PID == p.pid && is.Memory > gpu.Bytes(p.taken[0].MiB)*gpu.MiB
			}) {
				s.T.Errorf("process %d is not measured: %+v", p.pid, g.Processes)
			}
		}
		return
	}
	s.T.Errorf("GPU %s is not measured: %s", s.gpu, said)
}

// TestShares takes shares from plan to destroy, with processes that compute.
func TestShares(t *testing.T) {
	s := newSite(t)
	if _, err := exec.LookPath(controlProgram); err != nil {
		t.Fatal(err)
	}
	before := s.modes()
	whole := s.multiprocessors()

	s.wants(map[string]int{"notebook": 25, "batch": 40})
	defer s.leave(before)
	s.keep("plan.txt", []byte(s.OK("plan")))
	s.keep("apply.txt", []byte(s.OK("apply", "-auto-approve")))
	s.WantNoChanges()
	d := s.daemon("daemon")
	if d.PID == 0 || d.Problem != "" || d.ActiveThreadPercentage != 50 {
		t.Errorf("the daemon is %+v", d)
	}

	// Two processes compute at once, each in its part. That of the batch stays.
	notebook, batch := s.handed("notebook"), s.handed("batch")
	s.keep("notebook-cdi.json", []byte(s.run("cat", "/var/run/cdi/gpufleet.com-share_notebook.json")))
	first := s.compute(notebook.Environment, "1024", "8192")
	second := s.compute(batch.Environment, "-busy", "2048")
	s.part(first, whole, 25)
	s.part(second, whole, 40)
	s.limited(first.taken)
	d = s.daemon("computing")
	for pid, name := range map[int]string{first.pid: "notebook", second.pid: "batch"} {
		at := slices.IndexFunc(d.Clients, func(c gpu.Process) bool { return c.PID == pid })
		if at < 0 || d.Clients[at].Share != name {
			t.Errorf("process %d of share %s is not among the clients %+v", pid, name, d.Clients)
		}
	}
	s.keep("computing.txt", []byte(s.agent("inventory")))
	s.keep("ps.txt", []byte(s.run("sh", "-c", "echo ps | CUDA_MPS_PIPE_DIRECTORY="+d.PipeDir+" "+controlProgram)))
	s.measured(first, second)
	s.WantNoChanges()
	s.logs("computing")
	first.end()
	s.logs("first-ended")

	// A limit changes under a process that computes.
	s.wants(map[string]int{"notebook": 10, "batch": 40})
	s.OK("apply", "-auto-approve")
	if now := s.daemon("changed"); now.PID != d.PID || !alive(second.pid) {
		t.Errorf("process %d, or daemon %d, ended for another's limit: %+v", second.pid, d.PID, now)
	}
	third := s.compute(s.handed("notebook").Environment)
	s.part(third, whole, 10)
	third.end()

	// A share does not go from under its process, which goes on computing.
	said, code := s.Run("destroy", "-auto-approve")
	if code == 0 {
		t.Error("a share went from under a process")
	}
	s.keep("refused.txt", []byte(said))
	cli.WantSays(t, said, fmt.Sprintf("process %d (gpu-client)", second.pid))
	if !alive(second.pid) {
		t.Error("its process was ended")
	}

	// A share may be allowed to end its process, which ends it alone.
	s.wants(map[string]int{"notebook": 10, "batch": 40})
	s.OK("apply", "-auto-approve")
	idle := s.compute(s.handed("notebook").Environment, "64")
	s.ending("batch")
	s.keep("ending-plan.txt", []byte(s.OK("plan")))
	s.OK("apply", "-auto-approve")
	s.wants(map[string]int{"notebook": 10})
	s.keep("ending.txt", []byte(s.OK("apply", "-auto-approve")))
	cli.Eventually(t, "the process has noticed", func() bool { return !alive(second.pid) })
	cli.WantSays(t, second.failed(), "CUDA error 810") // CUDA_ERROR_MPS_CLIENT_TERMINATED
	s.logs("ending")
	idle.end()
	s.WantNoChanges()

	// The daemon is killed, and with it end its server and what its clients compute.
	idle = s.compute(s.handed("notebook").Environment, "64")
	if err := syscall.Kill(d.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cli.Eventually(t, "the daemon has ended", func() bool { return !alive(d.PID) })
	s.keep("killed-ps.txt",
		[]byte(s.run("sh", "-c", "ps -ef | grep -E 'mps|client' | grep -v grep; nvidia-smi --query-compute-apps=pid,name --format=csv")))
	s.logs("killed")
	s.inventory("killed")
	planned := s.OK("plan")
	s.keep("killed-plan.txt", []byte(planned))
	cli.WantSays(t, planned, "MPS daemon inference", "does not run: it has ended, and")
	s.keep("killed-apply.txt", []byte(s.OK("apply", "-auto-approve")))
	s.WantNoChanges()
	idle.end()
	fourth := s.compute(s.handed("notebook").Environment, "1024", "8192")
	s.part(fourth, whole, 10)
	s.limited(fourth.taken)
	fourth.end()
	s.logs("last")

	s.keep("destroy.txt", []byte(s.OK("destroy", "-auto-approve")))
	s.nothingLeft()
	s.inventory("after")
}

// leave takes away what a test that failed has left, and checks that no mode is another.
func (s *site) leave(before string) {
	s.T.Helper()
	if s.T.Failed() {
		s.Run("destroy", "-auto-approve")
	}
	if now := s.modes(); now != before {
		s.T.Errorf("the modes were\n%sand are\n%s", before, now)
	}
}

func (s *site) nothingLeft() {
	s.T.Helper()
	host := s.inventory("left")
	if len(host.Shares) > 0 || len(host.Claims) > 0 || host.MPS != nil && len(host.MPS.Daemons) > 0 {
		s.T.Errorf("something is left: %+v, %+v, %+v", host.Shares, host.Claims, host.MPS)
	}
	if specs, _ := filepath.Glob("/var/run/cdi/gpufleet.com-share_*"); len(specs) > 0 {
		s.T.Errorf("specifications are left: %v", specs)
	}
	cli.Eventually(s.T, "the daemon's processes have ended", func() bool {
		out, _ := exec.CommandContext(s.T.Context(), "pgrep", "nvidia-cuda-mps").Output()
		return !slices.ContainsFunc(strings.Fields(string(out)), func(pid string) bool { n, _ := strconv.Atoi(pid); return alive(n) })
	})
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestUsers has processes of two users compute through one daemon.
func TestUsers(t *testing.T) {
	s := newSite(t)
	s.users = "multi_user = true"
	whole := s.multiprocessors()
	s.wants(map[string]int{"notebook": 25})
	defer s.leave(s.modes())
	s.OK("apply", "-auto-approve")
	s.WantNoChanges()
	environment := s.handed("notebook").Environment
	const nobody = 65534
	first, second := s.compute(environment, "64"), s.computeAs(nobody, environment, "64")
	s.part(first, whole, 25)
	s.part(second, whole, 25)
	d := s.daemon("computing")
	for _, p := range []*process{first, second} {
		if !slices.ContainsFunc(d.Clients, func(c gpu.Process) bool { return c.PID == p.pid && c.Share == "notebook" }) {
			t.Errorf("process %d is not among the clients %+v", p.pid, d.Clients)
		}
	}
	s.logs("computing")
	s.keep("ps.txt", []byte(s.run("sh", "-c", "echo ps | CUDA_MPS_PIPE_DIRECTORY="+d.PipeDir+" "+controlProgram+"; ps -ef | grep mps")))
	first.end()
	second.end()
	s.OK("destroy", "-auto-approve")
	s.nothingLeft()
}

// TestContainer computes in a container that has a share by CDI, with the driver's libraries from
// the specification that NVIDIA's container toolkit wrote.
func TestContainer(t *testing.T) {
	s := newSite(t)
	for _, program := range []string{"nvidia-ctk", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("containers are not tested: there is no %s", program)
		}
	}
	whole := s.multiprocessors()
	s.wants(map[string]int{"notebook": 25})
	defer s.leave(s.modes())
	s.OK("apply", "-auto-approve")
	handed := s.handed("notebook")
	if handed.Note != "" {
		t.Logf("the share's note: %s", handed.Note)
	}
	s.keep("cdi.json", []byte(s.run("cat", "/var/run/cdi/gpufleet.com-share_notebook.json")))
	said := make(chan string, 1)
	go func() {
		defer close(said)
		said <- fakecdi.Run(t, "/", "env | grep -E 'GPUFLEET|CUDA|MEMORY' >/seen; sleep 5 | /gpu-client 1024 8192; cat /seen",
			s.rootfs, handed.CDIDevice)
	}()
	// The host sees the container's process as one of the share.
	cli.Eventually(t, "the daemon has a client", func() bool {
		select {
		case out, ok := <-said:
			if said = nil; ok {
				t.Fatalf("the container has ended: %s", out)
			}
		default:
		}
		return len(s.daemon("container").Clients) > 0
	})
	host := s.inventory("container")
	for _, g := range host.GPUs {
		for _, p := range g.Processes {
			t.Logf("on the GPU: %+v", p)
		}
	}
	d, _ := host.Daemon("inference")
	if len(d.Clients) != 1 || d.Clients[0].Share != "notebook" || d.Clients[0].Name != "gpu-client" {
		t.Errorf("the daemon has the clients %+v", d.Clients)
	}
	s.keep("container.txt", []byte(s.agent("inventory")))
	s.keep("ps.txt",
		[]byte(s.run("sh", "-c", "echo ps | CUDA_MPS_PIPE_DIRECTORY="+d.PipeDir+" "+controlProgram+
			"; ps -ef | grep -E 'mps|client'; nvidia-smi")))
	out, destroyed := s.Run("destroy", "-auto-approve")
	if destroyed == 0 {
		t.Error("a share went from under a container")
	}
	s.keep("refused.txt", []byte(out))
	cli.WantSays(t, out, fmt.Sprintf("process %d (gpu-client", d.Clients[0].PID))
	text := <-said
	s.keep("said.txt", []byte(text))
	lines := json.NewDecoder(strings.NewReader(text))
	var p process
	var got [2]taken
	for _, into := range []any{&p.seen, &got[0], &got[1]} {
		if err := lines.Decode(into); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	s.part(&p, whole, 25)
	s.limited(got[:])
	if !strings.Contains(text, "GPUFLEET_SHARE=notebook\n") {
		t.Errorf("the container is in no share: %s", text)
	}
	s.OK("destroy", "-auto-approve")
	s.nothingLeft()
}

// rootfs gives a container files of its own, as an image does: the hooks of the driver's
// specification write to it.
func (s *site) rootfs(c *oci.Spec) {
	s.T.Helper()
	root := s.T.TempDir()
	client := filepath.Join(s.bin, "gpu-client")
	files := map[string]string{client: "/gpu-client"}
	for _, program := range []string{"/bin/sh", "/bin/cat", "/usr/bin/env", "/bin/grep", "/bin/sleep"} {
		files[program] = program
	}
	for program := range files {
		for word := range strings.FieldsSeq(s.run("ldd", program)) {
			if filepath.IsAbs(word) {
				files[word] = word
			}
		}
	}
	// What the driver's libraries take from an image.
	for _, name := range []string{"libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"} {
		found, err := filepath.Glob("/lib/*-linux-gnu/" + name)
		if err != nil || len(found) == 0 {
			s.T.Fatalf("there is no %s: %v", name, err)
		}
		files[found[0]] = found[0]
	}
	for from, to := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			s.T.Fatal(err)
		}
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			s.T.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o755); err != nil { //nolint:gosec // They are programs.
			s.T.Fatal(err)
		}
	}
	for _, dir := range []string{"etc", "tmp", "usr/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			s.T.Fatal(err)
		}
	}
	c.Root = &oci.Root{Path: root}
	c.Mounts = slices.DeleteFunc(c.Mounts, func(m oci.Mount) bool { return m.Type == "bind" })
}
