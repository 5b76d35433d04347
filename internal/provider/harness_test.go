package provider_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider"
)

// rig is a simulated fleet of one test and the provider that talks to it.
type rig struct {
	t     *testing.T
	fleet *simulated.Fleet
	calls calls
}

// calls counts what the provider asks of hosts: host → method → times.
type calls struct {
	mu sync.Mutex
	n  map[string]map[string]int
}

func (c *calls) hear(host, method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]map[string]int{}
	}
	if c.n[host] == nil {
		c.n[host] = map[string]int{}
	}
	c.n[host][method]++
}

// take returns the counts since the last take.
func (c *calls) take() map[string]map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = nil
	return n
}

func newRig(t *testing.T, s gpu.Snapshot) *rig {
	t.Helper()
	f, err := simulated.Create(filepath.Join(t.TempDir(), "fleet.json"), s)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, fleet: f}
}

// factories serve the provider inside the test process, counting calls to hosts.
func (r *rig) factories() map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"gpu": func() (tfprotov6.ProviderServer, error) {
			server, err := provider.Server("test", r.calls.hear)
			if err != nil {
				return nil, err
			}
			return server(), nil
		},
	}
}

// block is a provider block for the rig's fleet, owner "test", with more arguments.
func (r *rig) block(more ...string) string {
	return fmt.Sprintf("provider \"gpu\" {\n  simulated_fleet = %q\n  owner = \"test\"\n  %s\n}\n", r.fleet.Path(), strings.Join(more, "\n  "))
}

// snapshot reads the fleet file.
func (r *rig) snapshot() gpu.Snapshot {
	r.t.Helper()
	s, err := r.fleet.Snapshot(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// host is one host as the fleet file has it now.
func (r *rig) host(name string) *gpu.Host {
	r.t.Helper()
	s := r.snapshot()
	for i := range s.Hosts {
		if s.Hosts[i].Name == name {
			return &s.Hosts[i]
		}
	}
	r.t.Fatalf("the fleet has no host %q", name)
	return nil
}

// vm is one VM, by name, and the host that owns it.
func (r *rig) vm(name string) (gpu.VM, string) {
	r.t.Helper()
	for _, h := range r.snapshot().Hosts {
		for _, v := range h.VMs {
			if v.Name == name {
				return v, h.Name
			}
		}
	}
	r.t.Fatalf("the fleet has no VM %q", name)
	return gpu.VM{}, ""
}

// counts are the partition counts of a host's GPUs, by GPU id.
func (r *rig) counts(host string) map[string]int {
	out := map[string]int{}
	for _, g := range r.host(host).GPUs {
		if g.Partitionable != nil {
			out[g.ID] = g.Partitionable.Count
		}
	}
	return out
}

// wantCounts asserts that every partitionable GPU of the hosts has a count.
func (r *rig) wantCounts(count int, hosts ...string) {
	r.t.Helper()
	for _, h := range hosts {
		for id, n := range r.counts(h) {
			if n != count {
				r.t.Errorf("host %s, GPU %s has %d partitions, want %d", h, id, n, count)
			}
		}
	}
}

// wantVM asserts a VM's state and its number of partition adapters.
func (r *rig) wantVM(name string, state gpu.VMState, adapters int) {
	r.t.Helper()
	v, host := r.vm(name)
	if v.State != state || len(v.PartitionAdapters) != adapters {
		r.t.Errorf("VM %s on %s is %s with %d partition adapters, want %s with %d", name, host, v.State, len(v.PartitionAdapters), state, adapters)
	}
}

// claims lists the claims of a host as "kind id".
func (r *rig) claims(host string) []string {
	out := []string{}
	for _, c := range r.host(host).Claims {
		out = append(out, string(c.Kind)+" "+c.ID)
	}
	slices.Sort(out)
	return out
}

// must fails the test when arranging it fails.
func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// GPU ids of the hosts that node makes: every host has the same, as identical
// machines do.
const (
	gpu0 = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	gpu1 = "PCIROOT(B0)#PCI(0200)#PCI(0000)"
)

// usable is the memory that all partitions of an NVIDIA A2 have together.
const usable = 15168 * gpu.MiB

// a2 is an NVIDIA A2 with 16 partitions.
func a2(id string) gpu.GPU {
	part := uint64(usable / 16)
	capacity := func(total uint64) gpu.Capacity {
		return gpu.Capacity{Total: total, Available: total, Min: total / 16, Max: total / 16, Optimal: total / 16}
	}
	path := map[string]string{gpu0: "4&18416dc3&0&0000", gpu1: "4&5906f5e&0&0010"}[id]
	return gpu.GPU{
		ID: id, InstancePath: `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\` + path,
		Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"},
		VRAM: 16 * 1024 * gpu.MiB, Driver: gpu.Driver{Version: "573.39"}, Status: gpu.Partitioned,
		MMIO: gpu.MMIO{Low: 16 * gpu.MiB, High: 16*1024*gpu.MiB + 32*gpu.MiB},
		Partitionable: &gpu.Partitionable{
			Name:        `\\?\PCI#VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1#` + path + `#{064092b3-625e-43bf-9eb5-dc845897dd59}`,
			ValidCounts: []int{1, 2, 4, 8, 16}, Count: 16,
			VRAM:   gpu.Capacity{Total: uint64(usable), Available: uint64(usable), Min: part, Max: part, Optimal: part},
			Encode: capacity(1600), Decode: capacity(1600), Compute: capacity(16000),
		},
	}
}

// a16 is one GPU of an NVIDIA A16 board: it may not share a cluster with A2s.
func a16(id string) gpu.GPU {
	g := a2(id)
	g.Model, g.PCI.Subsystem = "NVIDIA A16", "14A910DE"
	return g
}

// vmID makes a VM id from a number.
func vmID(n int) string { return fmt.Sprintf("0F1E2D3C-0000-4000-8000-%012X", n) }

// desktop is a Generation 2 VM that runs.
func desktop(name string, n int) gpu.VM {
	low, high, cache, stop := 128*gpu.MiB, 512*gpu.MiB, false, gpu.StopSave
	return gpu.VM{
		ID: vmID(n), Name: name, State: gpu.VMRunning, Generation: 2, Checkpoints: gpu.CheckpointsDisabled,
		Settings: gpu.VMSettings{LowMemoryMappedIOSpace: &low, HighMemoryMappedIOSpace: &high, GuestControlledCache: &cache, AutomaticStopAction: &stop},
	}
}

// off turns a VM off.
func off(v gpu.VM) gpu.VM {
	v.State = gpu.VMOff
	return v
}

// node is a host with two A2 and some VMs.
func node(name string, vms ...gpu.VM) gpu.Host {
	return gpu.Host{
		Name: name, Platform: gpu.HyperV, OS: gpu.OS{Name: "Azure Local", Version: "24H2", Build: 26100},
		GPUs: []gpu.GPU{a2(gpu0), a2(gpu1)}, VMs: vms, Pools: []gpu.Pool{},
	}
}

// cluster joins hosts to a failover cluster and makes their VMs its roles.
func cluster(name string, hosts ...gpu.Host) gpu.Snapshot {
	c := &gpu.Cluster{Name: name}
	for _, h := range hosts {
		c.Nodes = append(c.Nodes, gpu.Node{Name: h.Name, State: gpu.NodeUp})
	}
	for i := range hosts {
		hosts[i].Cluster = &gpu.Cluster{Name: c.Name, Nodes: slices.Clone(c.Nodes)}
		for j := range hosts[i].VMs {
			action := gpu.OfflineForcedShutdown
			hosts[i].VMs[j].Clustered, hosts[i].VMs[j].Settings.OfflineAction = true, &action
		}
	}
	return gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: hosts}
}

// standalone is hosts without a cluster.
func standalone(hosts ...gpu.Host) gpu.Snapshot {
	return gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: hosts}
}

// twoNodes is the usual fleet: hv01 with avd-01 (runs), avd-02 (runs), avd-03 (off),
// hv02 with avd-04 (runs), avd-05 (runs), avd-06 (off).
func twoNodes() gpu.Snapshot {
	return cluster("azl",
		node("hv01", desktop("avd-01", 1), desktop("avd-02", 2), off(desktop("avd-03", 3))),
		node("hv02", desktop("avd-04", 4), desktop("avd-05", 5), off(desktop("avd-06", 6))))
}

// config4 is a partition config of four partitions on both nodes of twoNodes.
const config4 = `
resource "gpu_partition_config" "vdi" {
  name  = "vdi"
  hosts = ["hv01", "hv02"]
  gpu_p = { partition_count = 4 }
}
`

// cli runs a real Terraform or OpenTofu with the real provider binary, a new
// process for each command, in a folder of its own.
type cli struct {
	t   *testing.T
	dir string
	env []string
}

var (
	buildOnce sync.Once
	buildDir  string
	errBuild  error
)

// TestMain removes the binary that cli builds.
func TestMain(m *testing.M) {
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// cliPath finds the CLI that make test names, or else an installed one.
func cliPath(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("TF_ACC_TERRAFORM_PATH"); p != "" {
		return p
	}
	for _, name := range []string{"terraform", "tofu"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	t.Skip("neither terraform nor tofu is installed: `make test` builds OpenTofu and names it in TF_ACC_TERRAFORM_PATH")
	return ""
}

func newCLI(t *testing.T, hcl string) *cli {
	t.Helper()
	buildOnce.Do(func() {
		if buildDir, errBuild = os.MkdirTemp("", "terraform-provider-gpu"); errBuild != nil { //nolint:usetesting // all tests share it; TestMain removes it
			return
		}
		out, err := exec.Command("go", "build", "-o", filepath.Join(buildDir, "terraform-provider-gpu"), "../..").CombinedOutput() //nolint:noctx // bounded by go test's timeout
		if err != nil {
			errBuild = fmt.Errorf("%w: %s", err, out)
		}
	})
	if errBuild != nil {
		t.Fatal(errBuild)
	}
	c := &cli{t: t, dir: t.TempDir()}
	rc := filepath.Join(c.dir, "cli.rc")
	write(t, rc, fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", buildDir))
	c.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	c.write(hcl)
	return c
}

// write replaces the configuration.
func (c *cli) write(hcl string) {
	c.t.Helper()
	write(c.t, filepath.Join(c.dir, "main.tf"), "terraform {\n  required_providers {\n    gpu = { source = \"gpufleet/gpu\" }\n  }\n}\n"+hcl)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// command prepares one command of the CLI.
func (c *cli) command(args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), cliPath(c.t), args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	return cmd
}

// run runs one command and returns what it printed and its exit code.
func (c *cli) run(args ...string) (string, int) {
	c.t.Helper()
	cmd := c.command(append(args, "-no-color")...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		c.t.Fatalf("%v: %v", args, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// ok runs one command that must succeed.
func (c *cli) ok(args ...string) string {
	c.t.Helper()
	out, code := c.run(args...)
	if code != 0 {
		c.t.Fatalf("%v: exit code %d\n%s", args, code, out)
	}
	return out
}

// wantNoChanges asserts that a plan is empty.
func (c *cli) wantNoChanges() {
	c.t.Helper()
	if out, code := c.run("plan", "-detailed-exitcode", "-input=false"); code != 0 {
		c.t.Errorf("a second plan has exit code %d, want 0 (no changes)\n%s", code, out)
	}
}

// sentence joins wrapped output, so that a text can be looked for whatever the
// width: Terraform breaks lines and draws a border.
func sentence(out string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(out)), " ")
}

// wantSaid asserts that an output has texts, whatever the line breaks.
func wantSaid(t *testing.T, out string, texts ...string) {
	t.Helper()
	joined := sentence(out)
	for _, s := range texts {
		if !strings.Contains(joined, s) {
			t.Errorf("the output does not say %q:\n%s", s, out)
		}
	}
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
