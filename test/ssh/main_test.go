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

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
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
	if cli.Path() == "" {
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

// rig is a fleet, an SSH server for each of its hosts, and a folder in which the CLI
// runs.
type rig struct {
	*cli.Folder
	fleet  *others.Fleet
	server map[string]*sshd.Server
}

// newRig starts a server for each host. edit may change what it does.
func newRig(t *testing.T, hosts []gpu.Host, edit func(host string, o *sshd.Options)) *rig {
	t.Helper()
	fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Folder: cli.New(t, binaries, "ssh-tests"), fleet: fleet, server: map[string]*sshd.Server{}}
	for _, h := range hosts {
		r.server[h.Name] = r.serve(h.Name, edit)
	}
	return r
}

func (r *rig) serve(host string, edit func(string, *sshd.Options)) *sshd.Server {
	r.T.Helper()
	o := sshd.Options{
		Dir: r.T.TempDir(), Env: []string{"GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET=" + r.fleet.Path(), "GPU_AGENT_HOST=" + host},
	}
	if edit != nil {
		edit(host, &o)
	}
	s, err := sshd.Start(r.T.Context(), o)
	if err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() {
		if r.T.Failed() {
			r.T.Logf("sshd of %s:\n%s", host, s.Log())
		}
		s.Close()
	})
	return s
}

// reach is the ssh block of a host, with further arguments that win over the usual ones.
func (r *rig) reach(host string, arguments ...string) string {
	s := r.server[host]
	usual := map[string]string{
		"address": `"127.0.0.1"`, "port": fmt.Sprint(s.Port), "user": fmt.Sprintf("%q", s.User),
		"private_key_file": fmt.Sprintf("%q", s.ClientKey()),
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

func (r *rig) snapshot() gpu.Snapshot {
	r.T.Helper()
	s, err := r.fleet.Snapshot(context.Background())
	if err != nil {
		r.T.Fatal(err)
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
	r.T.Helper()
	h, err := r.fleet.Host(host)
	if err != nil {
		r.T.Fatal(err)
	}
	s, err := h.Load(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}
	return s
}

// agents are the processes that work on this rig's fleet.
func (r *rig) agents() []string {
	r.T.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		r.T.Fatal(err)
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
	r.T.Helper()
	cli.Eventually(r.T, "no agent is left", func() bool { return len(r.agents()) == 0 })
	for _, h := range r.snapshot().Hosts {
		if s := r.state(h.Name); s.Lease != nil || len(s.Journal) > 0 {
			r.T.Errorf("host %s: lease %+v, %d changes in the journal", h.Name, s.Lease, len(s.Journal))
		}
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
	r.T.Helper()
	data, err := os.ReadFile(r.fleet.Path())
	if err != nil {
		r.T.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		r.T.Fatal(err)
	}
	hosts, ok := doc["hosts"].([]any)
	if !ok {
		r.T.Fatal("the fleet has no hosts")
	}
	for _, h := range hosts {
		if fields, ok := h.(map[string]any); ok && fields["name"] == host {
			fields["simulation"] = map[string]any{"latency_ms": ms}
		}
	}
	if data, err = json.Marshal(doc); err != nil {
		r.T.Fatal(err)
	}
	cli.WriteFile(r.T, r.fleet.Path(), string(data))
}
