// Package ssh_test applies configurations with the real CLI through a real OpenSSH
// server and the real agent, on simulated hosts.
package ssh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

// binaries is the directory with the provider and the agents that are shipped with it.
var binaries string

func TestMain(m *testing.M) {
	if why := missing(); why != "" {
		fmt.Fprintln(os.Stderr, "SKIPPED: the tests over SSH did not run:", why)
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "gpu-test-ssh")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func missing() string {
	if why := sshd.Missing(); why != "" {
		return why
	}
	if cliPath() == "" {
		return "neither terraform nor tofu is installed: `make test-ssh` builds OpenTofu"
	}
	return ""
}

func build(dir string) error {
	for out, pkg := range map[string]string{"terraform-provider-gpu": ".", connect.AgentFile("linux", "amd64"): "./cmd/gpu-agent"} {
		cmd := exec.Command("go", "build", "-ldflags", "-X main.version=1.2.3-test", "-o", filepath.Join(dir, out), pkg) //nolint:noctx // bounded by go test's timeout
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", pkg, err, said)
		}
	}
	sum, err := exec.Command("sh", "-c", "cd "+dir+" && sha256sum gpu-agent_* >"+connect.ChecksumsFile).CombinedOutput() //nolint:noctx // it ends at once
	if err != nil {
		return fmt.Errorf("sha256sum: %w: %s", err, sum)
	}
	return os.Symlink(connect.AgentFile("linux", "amd64"), filepath.Join(dir, "installed-agent"))
}

func agentPath() string { return filepath.Join(binaries, connect.AgentFile("linux", "amd64")) }

func cliPath() string {
	if p := os.Getenv("TF_ACC_TERRAFORM_PATH"); p != "" {
		return p
	}
	for _, name := range []string{"terraform", "tofu"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	return ""
}

// rig is a fleet, an SSH server for each of its hosts, and a folder in which the CLI
// runs.
type rig struct {
	t      *testing.T
	dir    string
	fleet  *simulated.Fleet
	server map[string]*sshd.Server
	env    []string
}

// newRig starts a server for each host. edit may change what it does.
func newRig(t *testing.T, hosts []gpu.Host, edit func(host string, o *sshd.Options)) *rig {
	t.Helper()
	dir := t.TempDir()
	fleet, err := simulated.Create(filepath.Join(dir, "fleet.json"), gpu.Snapshot{Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: filepath.Join(dir, "work"), fleet: fleet, server: map[string]*sshd.Server{}}
	for _, h := range hosts {
		r.server[h.Name] = r.serve(h.Name, edit)
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	rc := filepath.Join(dir, "cli.rc")
	write(t, rc, fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", binaries))
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	r.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1", "HOME="+home, "SSH_AUTH_SOCK=")
	return r
}

func (r *rig) serve(host string, edit func(string, *sshd.Options)) *sshd.Server {
	r.t.Helper()
	o := sshd.Options{Dir: r.t.TempDir(), Env: []string{"GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET=" + r.fleet.Path(), "GPU_AGENT_HOST=" + host}}
	if edit != nil {
		edit(host, &o)
	}
	s, err := sshd.Start(r.t.Context(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("sshd of %s:\n%s", host, s.Log())
		}
		s.Close()
	})
	return s
}

// reach is the ssh block of a host, with further arguments that win over the usual ones.
func (r *rig) reach(host string, arguments ...string) string {
	s := r.server[host]
	usual := map[string]string{
		"address": `"127.0.0.1"`, "port": fmt.Sprint(s.Port), "user": fmt.Sprintf("%q", s.User), "private_key_file": fmt.Sprintf("%q", s.ClientKey()),
		"known_hosts_file": fmt.Sprintf("%q", s.KnownHosts()), "agent_path": fmt.Sprintf("%q", agentPath()),
	}
	for _, a := range arguments {
		name, value, _ := strings.Cut(a, " = ")
		if usual[name] = value; value == "null" {
			delete(usual, name)
		}
	}
	var b strings.Builder
	for name, value := range usual {
		fmt.Fprintf(&b, "%s = %s, ", name, value)
	}
	return fmt.Sprintf("%s = { ssh = { %s } }", host, strings.TrimSuffix(b.String(), ", "))
}

// write replaces the configuration.
func (r *rig) write(hosts []string, resources string) {
	r.t.Helper()
	write(r.t, filepath.Join(r.dir, "main.tf"), fmt.Sprintf("terraform {\n  required_providers {\n    gpu = { source = \"gpufleet/gpu\" }\n  }\n}\n"+
		"provider \"gpu\" {\n  owner = \"ssh-tests\"\n  hosts = {\n    %s\n  }\n}\n%s", strings.Join(hosts, "\n    "), resources))
}

func (r *rig) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), cliPath(), append(args, "-no-color")...)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

func (r *rig) run(args ...string) (string, int) {
	r.t.Helper()
	cmd := r.command(args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		r.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (r *rig) ok(args ...string) string {
	r.t.Helper()
	out, code := r.run(args...)
	if code != 0 {
		r.t.Fatalf("%v: exit code %d\n%s", args, code, out)
	}
	return out
}

// fails runs a command that must end with one error of a title, and returns its text
// without line breaks.
func (r *rig) fails(title string, args ...string) string {
	r.t.Helper()
	out, code := r.run(args...)
	if code != 1 {
		r.t.Fatalf("%v: exit code %d, want 1\n%s", args, code, out)
	}
	if n := strings.Count(out, "Error: "); n != 1 || !strings.Contains(out, "Error: "+title) {
		r.t.Errorf("%v: %d errors, want one %q:\n%s", args, n, title, out)
	}
	return out
}

func (r *rig) wantNoChanges() {
	r.t.Helper()
	if out, code := r.run("plan", "-detailed-exitcode"); code != 0 {
		r.t.Errorf("a second plan has exit code %d, want 0 (no changes)\n%s", code, out)
	}
}

// says asserts that an output has texts, whatever the line breaks.
func says(t *testing.T, out string, texts ...string) {
	t.Helper()
	joined := strings.Join(strings.Fields(out), " ")
	for _, s := range texts {
		if !strings.Contains(joined, s) {
			t.Errorf("the output does not say %q:\n%s", s, out)
		}
	}
}

func (r *rig) snapshot() gpu.Snapshot {
	r.t.Helper()
	s, err := r.fleet.Snapshot(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// running are the names of the VMs that run.
func (r *rig) running() map[string]bool {
	out := map[string]bool{}
	for _, h := range r.snapshot().Hosts {
		for _, vm := range h.VMs {
			if vm.State == gpu.VMRunning {
				out[vm.Name] = true
			}
		}
	}
	return out
}

func (r *rig) state(host string) backend.State {
	r.t.Helper()
	h, err := r.fleet.Host(host)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := h.Load(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come about within %s: %s", patience, what)
		}
	}
}

// agents are the processes that work on this rig's fleet.
func (r *rig) agents() []string {
	r.t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, file := range environs {
		dir := filepath.Dir(file)
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || !strings.Contains(filepath.Base(exe), "gpu-agent") {
			continue
		}
		for _, where := range []string{file, filepath.Join(dir, "cmdline")} {
			text, err := os.ReadFile(where)
			if err == nil && strings.Contains(string(text), r.fleet.Path()) {
				out = append(out, filepath.Base(dir))
				break
			}
		}
	}
	return out
}

// wantQuiet waits until no agent is left, and asserts that nothing is in a journal and
// nobody holds a lease.
func (r *rig) wantQuiet() {
	r.t.Helper()
	eventually(r.t, "no agent is left", func() bool { return len(r.agents()) == 0 })
	for _, h := range r.snapshot().Hosts {
		if s := r.state(h.Name); s.Lease != nil || len(s.Journal) > 0 {
			r.t.Errorf("host %s: lease %+v, %d changes in the journal", h.Name, s.Lease, len(s.Journal))
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// example are the hosts of the example of the README.
func example(t *testing.T) []gpu.Host {
	t.Helper()
	data, err := os.ReadFile("../../examples/azure-local-vdi/fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := gpu.ParseSnapshot(data)
	if err != nil {
		t.Fatal(err)
	}
	return s.Hosts
}

// delay makes operations of a host take time, in milliseconds.
func (r *rig) delay(host string, ms map[string]int) {
	r.t.Helper()
	data, err := os.ReadFile(r.fleet.Path())
	if err != nil {
		r.t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		r.t.Fatal(err)
	}
	hosts, ok := doc["hosts"].([]any)
	if !ok {
		r.t.Fatal("the fleet has no hosts")
	}
	for _, h := range hosts {
		if fields, ok := h.(map[string]any); ok && fields["name"] == host {
			fields["simulation"] = map[string]any{"latency_ms": ms}
		}
	}
	if data, err = json.Marshal(doc); err != nil {
		r.t.Fatal(err)
	}
	write(r.t, r.fleet.Path(), string(data))
}
