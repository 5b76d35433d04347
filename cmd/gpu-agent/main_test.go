package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// binary is the agent as it is released.
var binary string

// built names an agent to test instead of building it, where there is no Go: under Wine.
const built = "GPU_TEST_AGENT"

func TestMain(m *testing.M) {
	if binary = os.Getenv(built); binary != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "gpu-agent-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The suffix does no harm elsewhere.
	binary = filepath.Join(dir, "gpu-agent.exe")
	flags := []string{"build", "-tags", "grpcnotrace", "-ldflags", "-s -w -X main.version=1.2.3", "-o", binary, "."}
	build := exec.Command("go", flags...) //nolint:noctx // bounded by go test's timeout
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

const (
	gpu1 = "PCIROOT(16)#PCI(0000)#PCI(0000)"
	gpu2 = "PCIROOT(17)#PCI(0000)#PCI(0000)"
	vm1  = "00000000-0000-0000-0000-000000000001"
)

// host is a host with a partitionable GPU, one in a pool, and a VM that runs.
func host() gpu.Host {
	partitionable := func() *gpu.Partitionable {
		return &gpu.Partitionable{
			Name: `\\?\PCI#VEN_10DE`, ValidCounts: []int{1, 2, 4}, Count: 4,
			VRAM: gpu.Capacity{Total: 16 << 30, Available: 16 << 30, Min: 4 << 30, Max: 4 << 30, Optimal: 4 << 30},
		}
	}
	return gpu.Host{
		Name: "hv01", Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Build: 26100},
		GPUs: []gpu.GPU{
			{
				ID: gpu1, Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6"},
				VRAM: 16 << 30, Status: gpu.Partitioned, Partitionable: partitionable(),
			},
			{
				ID: gpu2, Model: "NVIDIA A2", Vendor: "NVIDIA", PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6"},
				VRAM: 16 << 30, Status: gpu.ReadyForDDA, Dismounted: true,
			},
		},
		VMs:   []gpu.VM{{ID: vm1, Name: "avd-01", State: gpu.VMRunning, Generation: 2, Checkpoints: gpu.CheckpointsDisabled}},
		Pools: []gpu.Pool{{Name: "render", GPUs: []string{gpu2}}},
		Claims: []gpu.Claim{
			{Kind: gpu.ClaimPool, ID: "render", Owner: "vdi-prod", Token: "t1", Revision: 1},
		},
	}
}

// rig is a fleet with one host, and the agent's command line.
type rig struct {
	t     *testing.T
	fleet *others.Fleet
	env   []string
}

func newRig(t *testing.T, hosts ...gpu.Host) *rig {
	t.Helper()
	if len(hosts) == 0 {
		hosts = []gpu.Host{host()}
	}
	fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, fleet: fleet, env: []string{"GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET=" + fleet.Path(), "GPU_AGENT_HOST=hv01"}}
}

func (r *rig) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), r.env...)
	return cmd
}

// run runs a command, which must end with an exit code, and returns what it printed.
func (r *rig) run(code int, args ...string) (stdout, stderr string) {
	r.t.Helper()
	cmd := r.command(args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		r.t.Fatalf("%v: exit code %d, want %d\n%s%s", args, got, code, out.String(), said.String())
	}
	return out.String(), said.String()
}

func (r *rig) host() *simulated.Host {
	r.t.Helper()
	h, err := r.fleet.Host("hv01")
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) file() string {
	r.t.Helper()
	data, err := os.ReadFile(r.fleet.Path())
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

func wantSaid(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if !strings.Contains(out, s) {
			t.Errorf("the output does not say %q:\n%s", s, out)
		}
	}
}

func TestInventory(t *testing.T) {
	r := newRig(t)
	before := r.file()
	out, _ := r.run(0, "inventory")
	wantSaid(t, out, "Host hv01, Windows Server 2025 Datacenter", "NVIDIA A2", gpu1, "4, 4 free", "1 2 4",
		"4.0 GiB", "render", "vdi-prod", "1 VMs in all")
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimRight(line, " \n"))); n > 120 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	doc, _ := r.run(0, "inventory", "--json")
	s, err := gpu.ParseSnapshot([]byte(doc))
	if err != nil || len(s.Hosts) != 1 || s.Hosts[0].Name != "hv01" || len(s.Hosts[0].Claims) != 1 {
		t.Errorf("snapshot %+v, %v", s, err)
	}
	if r.file() != before {
		t.Error("reading the host wrote to it")
	}
}

// Who else manages the host's GPUs or VMs is there to be read, with what it does.
func TestInventoryShowsOtherSoftware(t *testing.T) {
	h := host()
	h.Controllers = []gpu.Controller{
		{Name: "divider", Role: gpu.LayoutController}, {Name: "wssdagent (Azure Local VMs)", Role: gpu.BrokerController},
	}
	out, _ := newRig(t, h).run(0, "inventory")
	wantSaid(t, out, "Other software", "divider", "changes layouts by itself", `"wssdagent (Azure Local VMs)"`, "starts, stops or moves VMs")
}

func TestAssert(t *testing.T) {
	r := newRig(t)
	wanted := func(text string) string {
		file := filepath.Join(t.TempDir(), "layout.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	snapshot, _ := r.run(0, "inventory", "--json")
	for _, c := range []struct {
		name, layout string
		code         int
		says         []string
	}{
		{
			"matches", `{"format":"gpu-layout/v1","gpus":[{"id":"` + strings.ToLower(gpu1) +
				`","partition_count":4}],"pools":[{"name":"RENDER","gpus":["` + gpu2 + `"]}]}`, 0,
			[]string{"host hv01 has the layout; compared: partition count (1) and pool (1)"},
		},
		{
			"count", `{"format":"gpu-layout/v1","gpus":[{"id":"` + gpu1 + `","partition_count":2}]}`, 2,
			[]string{"GPU " + gpu1 + ": partition_count\n- 4\n+ 2"},
		},
		{
			"dismounted", `{"format":"gpu-layout/v1","gpus":[{"id":"` + gpu2 + `","partition_count":2,"dismounted":false}]}`,
			2,
			[]string{"cannot be partitioned now", "dismounted\n- true\n+ false"},
		},
		{"no such GPU", `{"format":"gpu-layout/v1","gpus":[{"id":"x","partition_count":2}]}`, 2, []string{"not on this host"}},
		{
			"pool", `{"format":"gpu-layout/v1","pools":[{"name":"render","gpus":[]},{"name":"more","gpus":["` + gpu2 + `"]}]}`,
			2,
			[]string{"pool more\n- no such pool", "pool render\n- " + gpu2},
		},
		{"its own snapshot", snapshot, 0, []string{"compared: partition count (1), dismounted (2) and pool (1)"}},
		{"nothing named", `{"format":"gpu-layout/v1","gpus":[{"id":"` + gpu1 + `"}]}`, 1, nil},
		{"a misspelt field", `{"format":"gpu-layout/v1","gpus":[{"id":"` + gpu1 + `","partition_count":4,"partitioncount":2}]}`, 1, nil},
		{
			"vGPUs of a GPU without", `{"format":"gpu-layout/v1","gpus":[{"id":"` + gpu1 + `","vgpu":{"places":[{"type":"A2-4Q","function":0}]}}]}`,
			2,
			[]string{"- no vGPUs"},
		},
		{
			"another snapshot", strings.Replace(snapshot, `"partition_count": 4`, `"partition_count": 1`, 1),
			2,
			[]string{"partition_count\n- 4\n+ 1"},
		},
		{"snapshot of others", strings.Replace(snapshot, `"hv01"`, `"hv09"`, 1), 1, nil},
		{"empty", `{"format":"gpu-layout/v1"}`, 1, nil},
		{"another format", `{"format":"x"}`, 1, nil},
		{"no JSON", `gpus:`, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, said := r.run(c.code, "assert", wanted(c.layout))
			wantSaid(t, out, c.says...)
			if c.code == 1 && said == "" {
				t.Error("no reason was given")
			}
		})
	}
	_, said := r.run(1, "assert", "/nowhere.json")
	wantSaid(t, said, "/nowhere.json")
}

// TestAssertWantsWholeInstances: a GPU instance is as declared only with one compute instance of all
// its slices, whatever form the layout has, as drift has it.
func TestAssertWantsWholeInstances(t *testing.T) {
	snapshot := ""
	for _, c := range []struct {
		name    string
		compute []gpu.ComputeInstance
		says    string
	}{
		{"whole", []gpu.ComputeInstance{{UUID: "MIG-1", Slices: 3}}, ""},
		{"empty", nil, "- 3g.40gb at 4 (has no compute instance)\n+ 3g.40gb at 4"},
		{"in part", []gpu.ComputeInstance{{UUID: "MIG-1", Slices: 1}}, "- 3g.40gb at 4 (is divided into 1c.3g.40gb)\n+ 3g.40gb at 4"},
		{
			"divided",
			[]gpu.ComputeInstance{{UUID: "MIG-1", Slices: 1}, {UUID: "MIG-2", Slices: 2}},
			"- 3g.40gb at 4 (is divided into 1c.3g.40gb, 2c.3g.40gb)\n+ 3g.40gb at 4",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := sharingHost()
			h.GPUs = h.GPUs[1:]
			h.Claims, h.Shares, h.MPS = nil, nil, nil
			h.GPUs[0].MIG.Instances[0].Compute = c.compute
			config := &gpu.PartitionConfig{Kind: gpu.KindMIG, MIG: &gpu.MIGLayout{Placements: []gpu.MIGPlacement{{Profile: "3g.40gb", Start: 4}}}}
			if as := change.HasLayout(config, &h.GPUs[0]); as != (c.says == "") {
				t.Fatalf("to drift it is as declared: %v", as)
			}
			r := newRig(t, h)
			if c.says == "" {
				snapshot, _ = r.run(0, "inventory", "--json")
			}
			code := map[bool]int{true: 0, false: 2}[c.says == ""]
			for _, form := range []struct {
				layout string
				args   []string
				says   string
			}{
				{
					`{"format":"gpu-layout/v1","gpus":[{"id":"` + uuid2 + `","mig":{"enabled":true,"placements":[{"profile":"3g.40gb","start":4}]}}]}`,
					nil, c.says,
				},
				{snapshot, nil, c.says},
				{
					"version: v1\nmig-configs:\n  half:\n  - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 1}}\n",
					[]string{"--label", "half"},
					"",
				},
			} {
				file := filepath.Join(t.TempDir(), "layout")
				if err := os.WriteFile(file, []byte(form.layout), 0o600); err != nil {
					t.Fatal(err)
				}
				out, _ := r.run(code, append([]string{"assert", file}, form.args...)...)
				wantSaid(t, out, form.says)
			}
			out, _ := r.run(0, "inventory")
			if _, state, broken := strings.Cut(c.says, "("); broken {
				state, _, _ = strings.Cut(state, ",")
				state, _, _ = strings.Cut(state, ")")
				wantSaid(t, out, state)
			}
		})
	}
}

func TestFleetNew(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "fleet.json")
	out, _ := r.run(0, "fleet", "new", file, "--hosts", "hv01,hv02", "--gpus", "A2,A2", "--vms", "avd-01,avd-02,avd-03:off",
		"--cluster", "azl-vdi")
	wantSaid(t, out, "2 hosts with 2 GPUs each, 3 VMs")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gpu.ParseSnapshot(data)
	if err != nil || len(s.Hosts) != 2 || s.Hosts[1].ClusterName() != "azl-vdi" || len(s.Hosts[0].VMs) != 2 ||
		s.Hosts[0].VMs[1].State != gpu.VMOff {
		t.Errorf("%+v, %v", s, err)
	}
	_, said := r.run(1, "fleet", "new", file, "--hosts", "hv01", "--gpus", "A2")
	wantSaid(t, said, "is there already")
	_, said = r.run(64, "fleet", "new", file+"2", "--hosts", "hv01", "--gpus", "Voodoo")
	wantSaid(t, said, "Voodoo", `"NVIDIA A2"`, "8 more", "the guide on GPU models")
	_, said = r.run(64, "fleet", "new", file+"2", "--hosts", "hv01", "--gpus", "A2", "--platform", "amiga")
	wantSaid(t, said, "amiga", "hyperv or linux")
}

func TestClaims(t *testing.T) {
	r := newRig(t)
	out, _ := r.run(0, "claims")
	wantSaid(t, out, "pool", "render", "vdi-prod", "complete")
	doc, _ := r.run(0, "claims", "list", "--json")
	var claims []gpu.Claim
	if err := json.Unmarshal([]byte(doc), &claims); err != nil || len(claims) != 1 {
		t.Errorf("%v: %s", err, doc)
	}
	_, said := r.run(64, "claims", "forget", "pool", "render")
	wantSaid(t, said, "--yes")
	_, said = r.run(1, "--role", "reader", "claims", "forget", "pool", "render", "--yes")
	wantSaid(t, said, "reader")
	_, said = r.run(1, "claims", "forget", "pool", "other", "--yes")
	wantSaid(t, said, `pool "other"`)
	out, _ = r.run(0, "claims", "forget", "pool", "render", "--yes")
	wantSaid(t, out, "forgot the claim pool render")
	h, err := r.host().Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := h.Pool("render"); !ok {
		t.Error("forgetting a claim deleted the pool")
	}
	out, _ = r.run(0, "claims")
	wantSaid(t, out, "no claims")
	if out, _ = r.run(0, "claims", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("without claims the list is %s", out)
	}
	if s, err := r.host().Load(t.Context()); err != nil || s.Lease != nil {
		t.Errorf("lease %+v, %v", s.Lease, err)
	}
}

// The claims of VMs that the host has no more are listed by themselves, and nothing is where a node cannot tell alone.
func TestOrphanedClaims(t *testing.T) {
	h, gone := host(), "00000000-0000-0000-0000-000000000002"
	for _, id := range []string{vm1, gone} {
		h.Claims = append(h.Claims, gpu.Claim{Kind: gpu.ClaimAssignment, ID: id, Owner: "vdi-prod", Token: id, Revision: 1})
	}
	h.Pools = nil // what its host lacks of a pool, its resource makes again
	r := newRig(t, h)
	before := r.file()
	for _, args := range [][]string{{"claims", "--orphaned"}, {"claims", "list", "--orphaned"}, {"--role", "reader", "claims", "--orphaned"}} {
		if out, _ := r.run(0, args...); !strings.Contains(out, gone) || strings.Contains(out, vm1) || strings.Contains(out, "render") {
			t.Errorf("%v: %s", args, out)
		}
	}
	doc, _ := r.run(0, "claims", "--orphaned", "--json")
	var claims []gpu.Claim
	if err := json.Unmarshal([]byte(doc), &claims); err != nil || len(claims) != 1 || claims[0].ID != gone {
		t.Errorf("%v: %s", err, doc)
	}
	if r.file() != before {
		t.Error("a list wrote to the host")
	}
	r.run(64, "claims", "forget", "--orphaned")
	r.run(0, "claims", "forget", "vm_assignment", gone, "--yes")
	out, _ := r.run(0, "claims", "--orphaned")
	wantSaid(t, out, "no orphaned claims")
	if out, _ = r.run(0, "claims", "--orphaned", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("without orphaned claims the list is %s", out)
	}

	clustered := func(h gpu.Host, name string) gpu.Host {
		h.Name, h.Cluster = name, &gpu.Cluster{
			Name: "azl", Nodes: []gpu.Node{{Name: "hv01", State: gpu.NodeUp}, {Name: "hv02", State: gpu.NodeUp}},
		}
		return h
	}
	other := host()
	other.VMs, other.Claims = nil, nil
	r = newRig(t, clustered(h, "hv01"), clustered(other, "hv02"))
	out, said := r.run(1, "claims", "--orphaned")
	wantSaid(t, said, gone, "node hv02 of cluster azl may have them", "gpu_inventory")
	if out != "" {
		t.Errorf("it lists %s", out)
	}
	h.Claims = h.Claims[:2]
	out, _ = newRig(t, clustered(h, "hv01"), clustered(other, "hv02")).run(0, "claims", "--orphaned")
	wantSaid(t, out, "no orphaned claims")
}

func TestSelftest(t *testing.T) {
	r := newRig(t)
	before := r.file()
	out, _ := r.run(0, "selftest")
	wantSaid(t, out, "ok      agent: version 1.2.3", "ok      inventory: host hv01, 2 GPUs, 1 VMs",
		"ok      lease: free", "ok      journal: 0 changes")
	if r.file() != before {
		t.Error("the self-test wrote to the host")
	}
	out, _ = r.run(0, "selftest", "--answers")
	wantSaid(t, out, "This host is simulated")
	out, _ = r.run(0, "selftest", "--write")
	wantSaid(t, out, "taken and given back")
	for _, args := range [][]string{{"--change"}, {"--gpu", "x"}, {"vm-1"}, {"--change", "--gpu", "x", "vm-1", "vm-2"}} {
		r.run(64, append([]string{"selftest"}, args...)...)
	}
	before = r.file()
	_, said := r.run(1, "selftest", "--change", "avd-01", "--gpu", "PCIROOT(16)")
	wantSaid(t, said, "nothing to try on this host")
	claimed := host()
	claimed.Claims[0].GPUs = []string{gpu2}
	_, said = newRig(t, claimed).run(1, "selftest", "--change", "avd-01", "--gpu", strings.ToLower(gpu2))
	wantSaid(t, said, "is managed by Terraform: pool render has it")
	if r.file() != before {
		t.Error("a trial that is refused wrote to the host")
	}

	gone := host()
	gone.Pools = nil
	out, said = newRig(t, gone).run(1, "selftest")
	wantSaid(t, out, "failed  claims: the claim for pool render has no pool")
	wantSaid(t, said, "1 checks failed")
}

func TestBadUse(t *testing.T) {
	r := newRig(t, host(), func() gpu.Host { h := host(); h.Name = "hv02"; return h }())
	for _, c := range []struct {
		name string
		args []string
		env  []string
		code int
		says string
	}{
		{"unknown backend", []string{"--backend", "xen", "inventory"}, nil, 64, "xen"},
		{"no fleet", []string{"inventory"}, []string{"GPU_AGENT_FLEET="}, 64, "--fleet"},
		{"missing fleet", []string{"--fleet", "/nowhere.json", "inventory"}, nil, 1, "nowhere.json"},
		{"which host", []string{"inventory"}, []string{"GPU_AGENT_HOST="}, 64, "[hv01 hv02]"},
		{"unknown host", []string{"--host", "hv09", "inventory"}, nil, 1, `no host "hv09"`},
		{"role", []string{"--role", "admin", "inventory"}, nil, 64, "admin"},
		{"role from the environment", []string{"inventory"}, []string{"GPU_AGENT_ROLE=admin"}, 64, "admin"},
		{"flag", []string{"--bogus"}, nil, 64, "bogus"},
		{"command", []string{"inventry"}, nil, 64, "did you mean inventory"},
		{"command", []string{"bogus"}, nil, 64, "bogus"},
		{"help of no command", []string{"help", "inventry"}, nil, 64, "did you mean inventory"},
		{"help of no command below one", []string{"help", "fleet", "bogus"}, nil, 64, "bogus"},
		{"command below one", []string{"fleet", "bogus"}, nil, 64, "bogus"},
		{"shell", []string{"completion", "tcsh"}, nil, 64, "tcsh"},
		{"arguments", []string{"assert"}, nil, 64, "accepts 1 arg"},
		{"serve", []string{"serve"}, nil, 64, "either --stdio or --listen"},
		{"serve both", []string{"serve", "--stdio", "--listen", ":0"}, nil, 64, "either --stdio or --listen"},
		{"serve without certificates", []string{"serve", "--listen", ":0"}, nil, 64, "--client-ca"},
		{"reconcile as a reader", []string{"--role", "reader", "reconcile"}, nil, 1, "reader"},
	} {
		t.Run(c.name, func(t *testing.T) {
			other := *r
			other.t, other.env = t, append(append([]string{}, r.env...), c.env...)
			out, said := other.run(c.code, c.args...)
			wantSaid(t, said, c.says)
			if out != "" {
				t.Errorf("an error was printed to standard output: %s", out)
			}
		})
	}
}

func TestVersionAndCompletion(t *testing.T) {
	r := newRig(t)
	out, _ := r.run(0, "version")
	wantSaid(t, out, "gpu-agent 1.2.3, protocol 1, ")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, _ := r.run(0, "completion", shell); !strings.Contains(out, "gpu-agent") {
			t.Errorf("%s: %q", shell, out)
		}
	}
	// A megabyte of it reaches other hosts as the provider does, for record --config, another reads
	// configurations, for check, and one draws and explains plans and finds what fits.
	info, err := os.Stat(binary)
	if err != nil || info.Size() > 24_000_000 {
		t.Errorf("the agent has %d bytes, want less than 24 MB (%v)", info.Size(), err)
	}
}

// TestStateDir keeps claims beside the fleet file instead of in it.
func TestStateDir(t *testing.T) {
	h := host()
	h.Claims = nil
	r := newRig(t, h)
	dir := filepath.Join(t.TempDir(), "state")
	r.env = append(r.env, "GPU_AGENT_STATE_DIR="+dir)
	before := r.file()
	r.run(0, "selftest", "--write")
	if r.file() != before {
		t.Error("the fleet file was written to")
	}
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err != nil {
		t.Error(err)
	}
}

// TestRecordsThatCannotBeRead has a claim that is damaged and a change that a newer agent
// began: all commands that look still do, none changes anything, and each says so.
func TestRecordsThatCannotBeRead(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(t.TempDir(), "state")
	r.env = append(r.env, "GPU_AGENT_STATE_DIR="+dir)
	store, err := statedir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Update(t.Context(), func(s *backend.State) error {
		s.Agent, s.Fence = "9.9.9", 3
		s.Claims = []gpu.Claim{{Kind: gpu.ClaimConfig, ID: "vdi", Token: "a"}, {Kind: gpu.ClaimPool, ID: "gold", Incomplete: true}}
		s.Journal = []json.RawMessage{
			json.RawMessage(
				`{"id":"a","subject":"gpu_thing.x","host":"hv01","run":"r","worker":"w","status":"running","steps":[{"op":"fold_gpu"}],"undo":[[]],` +
					`"begun":1}`),
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.json")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Replace(doc, []byte(`"id":"vdi"`), []byte(`"id":"vdk"`), 1)
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	both := []string{path, "record 1", "checksum", "change 1 of the journal, for gpu_thing.x", `op is "fold_gpu"`, "9.9.9"}

	for range 4 {
		_, said := r.run(1, "reconcile")
		wantSaid(t, said, append(slices.Clone(both), "install agent 9.9.9", "gpu-agent records drop")...)
	}
	_, said := r.run(1, "claims", "forget", "pool", "gold", "--yes")
	wantSaid(t, said, both...)
	out, said := r.run(1, "claims")
	wantSaid(t, out, append(slices.Clone(both), "gold")...)
	wantSaid(t, said, both...)
	out, _ = r.run(1, "claims", "--json")
	wantSaid(t, out, `"gold"`)
	out, _ = r.run(1, "selftest")
	wantSaid(t, out, append(slices.Clone(both), "failed  records")...)
	out, _ = r.run(0, "inventory", "--json")
	wantSaid(t, out, append(slices.Clone(both[1:3]), "unreadable_records", `"avd-01"`)...)
	out, _ = r.run(0, "inventory")
	wantSaid(t, out, both...)
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
		t.Fatalf("the file was changed, %v", err)
	}

	out, _ = r.run(1, "records")
	wantSaid(t, out, both...)
	ids := regexp.MustCompile(`(?m)^ *([0-9a-f]{12}) `).FindAllStringSubmatch(out, -1)
	if len(ids) != 2 {
		t.Fatalf("the records are %q in\n%s", ids, out)
	}
	r.run(64, "records", "drop", ids[0][1])
	_, said = r.run(1, "--role", "reader", "records", "drop", ids[0][1], "--yes")
	wantSaid(t, said, "reader")
	for i, want := range []string{`"id":"vdk"`, `"op":"fold_gpu"`} {
		out, _ = r.run(0, "records", "show", ids[i][1])
		wantSaid(t, out, want)
		out, _ = r.run(0, "records", "drop", ids[i][1], "--yes")
		wantSaid(t, out, want)
	}
	out, _ = r.run(0, "records")
	wantSaid(t, out, "all records can be read")
	out, _ = r.run(0, "reconcile")
	wantSaid(t, out, "nothing to settle")
	out, _ = r.run(0, "claims")
	wantSaid(t, out, "gold", "incomplete")
	kept, err := filepath.Glob(filepath.Join(dir, "dropped-*.json"))
	if err != nil || !slices.ContainsFunc(kept, func(f string) bool { b, _ := os.ReadFile(f); return bytes.Equal(b, damaged) }) {
		t.Errorf("the file as it was is not in %v, %v", kept, err)
	}
}

// patience is how long a test waits for what an agent process does.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come about within %s: %s", patience, what)
		}
	}
}

func (r *rig) vmState() gpu.VMState {
	r.t.Helper()
	h, err := r.host().Inventory(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	vm, ok := h.VM(vm1)
	if !ok {
		r.t.Fatal("the VM is gone")
	}
	return vm.State
}
