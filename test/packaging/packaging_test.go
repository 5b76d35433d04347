// Package packaging checks what is shipped beside the binaries: units, examples,
// command lines in scripts and guides, and the release's list of files.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

const root = "../.."

// commandLine finds what the agent is called with in units, scripts, guides and
// configuration files.
var commandLine = regexp.MustCompile(`(?m)(?:^|[\s"'=/\\])gpu-agent(?:\.exe)?['"]?[ \t]+((?:--|serve|inventory|assert|claims|reconcile|selftest|version|completion)[^\n"'` + "`" + `|#]*)`)

// scripted finds the arguments that a PowerShell script gives.
var scripted = regexp.MustCompile(`-Argument '([^']+)'`)

func TestCommandLinesAreValid(t *testing.T) {
	agent := build(t)
	files := []string{"README.md", "SECURITY.md"}
	for _, pattern := range []string{"packaging/*", "packaging/*/*", "docs/guides/*.md", "docs/index.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if rel, err := filepath.Rel(root, f); err == nil {
				files = append(files, rel)
			}
		}
	}
	lines := 0
	for _, file := range files {
		info, err := os.Stat(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			continue
		}
		text := read(t, file)
		for _, m := range append(commandLine.FindAllStringSubmatch(text, -1), scripted.FindAllStringSubmatch(text, -1)...) {
			lines++
			args := strings.Fields(m[1])
			// With --help the flags are read, and nothing is done.
			if out, err := exec.CommandContext(t.Context(), agent, append(args, "--help")...).CombinedOutput(); err != nil {
				t.Errorf("%s: gpu-agent %s: %v\n%s", file, strings.Join(args, " "), err, out)
			}
		}
	}
	if lines < 15 {
		t.Errorf("only %d command lines were found", lines)
	}
}

func TestUnitsAreValid(t *testing.T) {
	verify := need(t, "systemd-analyze", "systemd")
	agent := build(t)
	for _, unit := range []string{"gpu-agent.service", "gpu-agent-reconcile.service"} {
		// The binary is not installed here; the rest of the unit is as it is shipped.
		text := strings.ReplaceAll(read(t, "packaging/linux/"+unit), "/usr/bin/gpu-agent", agent)
		path := filepath.Join(t.TempDir(), unit)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), verify, "verify", "--man=no", path).CombinedOutput()
		if complaint := about(string(out), unit); err != nil || complaint != "" {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}

// about keeps the lines of a message that concern a file: systemd-analyze also speaks
// of the units of the machine that it runs on.
func about(message, file string) string {
	var out []string
	for line := range strings.Lines(message) {
		if strings.Contains(line, file) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func TestServersTakeTheExamples(t *testing.T) {
	t.Run("sshd", func(t *testing.T) {
		sshd := need(t, "/usr/sbin/sshd", "openssh-server")
		keygen := need(t, "ssh-keygen", "openssh-client")
		dir := t.TempDir()
		key := filepath.Join(dir, "key")
		if out, err := exec.CommandContext(t.Context(), keygen, "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		config := filepath.Join(dir, "sshd_config")
		if err := os.WriteFile(config, []byte("HostKey "+key+"\n"+read(t, "packaging/linux/sshd.conf")), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/run/sshd"); err != nil && os.Geteuid() == 0 {
			if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.CommandContext(t.Context(), sshd, "-t", "-f", config).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("sudo", func(t *testing.T) {
		visudo := need(t, "visudo", "sudo")
		path := filepath.Join(t.TempDir(), "sudoers")
		if err := os.WriteFile(path, []byte(read(t, "packaging/linux/sudoers")), 0o440); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), visudo, "-c", "-f", path).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// TestReleaseShipsTheAgents holds the release against what the provider looks for.
func TestReleaseShipsTheAgents(t *testing.T) {
	var release struct {
		Before struct{ Hooks []string }
		Builds []struct {
			ID           string
			Binary       string
			Goos, Goarch []string
		}
		Archives []struct {
			ID    string
			IDs   []string
			Files []any
		}
		Nfpms []struct{ Contents []struct{ Src, Dst string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, ".goreleaser.yml")), &release); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(release.Before.Hooks, func(h string) bool { return strings.Contains(h, "./tools/agents -out bin/agents") }) {
		t.Errorf("nothing builds the agents: %v", release.Before.Hooks)
	}
	shipped := ""
	for _, a := range release.Archives {
		if a.ID != "provider" {
			continue
		}
		for _, f := range a.Files {
			if m, ok := f.(map[string]any); ok && m["strip_parent"] == true {
				shipped, _ = m["src"].(string)
			}
		}
	}
	wanted := []string{connect.ChecksumsFile}
	for _, b := range release.Builds {
		if b.ID != "agent" {
			continue
		}
		if b.Binary != "gpu-agent" {
			t.Errorf("the agent is called %q", b.Binary)
		}
		for _, goos := range b.Goos {
			for _, goarch := range b.Goarch {
				wanted = append(wanted, connect.AgentFile(goos, goarch))
			}
		}
	}
	if len(wanted) != 5 {
		t.Errorf("the release has the agents %v", wanted)
	}
	for _, name := range wanted {
		if ok, err := filepath.Match(shipped, "bin/agents/"+name); err != nil || !ok {
			t.Errorf("the provider's archives lack %s: they have %q", name, shipped)
		}
	}
	for _, p := range release.Nfpms {
		for _, c := range p.Contents {
			if _, err := os.Stat(filepath.Join(root, c.Src)); err != nil {
				t.Errorf("the packages want %s: %v", c.Src, err)
			}
		}
	}
}

var agentPath string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "packaging-")
	if err != nil {
		panic(err)
	}
	agentPath = filepath.Join(dir, "gpu-agent")
	if runtime.GOOS == "windows" {
		agentPath += ".exe"
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build builds the agent, once.
func build(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(agentPath); err == nil {
		return agentPath
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", agentPath, root+"/cmd/gpu-agent").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return agentPath
}

// need finds a program, or skips the test.
func need(t *testing.T, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed, so this was not checked; install the package %s", program, pkg)
	}
	return path
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
