//go:build linux

// Package windows_test applies configurations with the real CLI on Linux, through a real
// OpenSSH server, to the agent for Windows, which runs under Wine with the production
// backend for Hyper-V. Behind COM stands a host of a fleet file instead of Hyper-V.
package windows_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
	"github.com/gpufleet/terraform-provider-gpu/test/sshd"
)

// enabled is set by `make test-windows`.
const enabled = "GPU_TEST_WINDOWS"

// What is built for the tests, in one directory.
var (
	binaries string
	// fixtureAgent is the agent with a Hyper-V host behind COM; shippedAgent is the one
	// that lies beside the provider.
	fixtureAgent, shippedAgent string
	// windowsProvider is a directory with the provider for Windows and, beside it, the
	// agent with a host behind COM.
	windowsProvider string
)

func TestMain(m *testing.M) {
	if why := missing(); why != "" {
		fmt.Fprintln(os.Stderr, "SKIPPED: the agent for Windows was not tested end to end:", why)
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "gpu-test-windows")
	if err == nil {
		binaries, err = dir, build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func missing() string {
	if os.Getenv(enabled) == "" {
		return "`make test-windows` runs these tests, with the Wine that they need"
	}
	if why := sshd.Missing(); why != "" {
		return why
	}
	if cli.Path() == "" {
		return "neither terraform nor tofu is installed: `make test-windows` builds OpenTofu"
	}
	if out, err := exec.Command(tool("prepare")).CombinedOutput(); err != nil { //nolint:noctx // bounded by go test's timeout
		return string(out)
	}
	return ""
}

// tool is a program of tools/wine.
func tool(name string) string {
	path, err := filepath.Abs(filepath.Join("../../tools/wine", name))
	if err != nil {
		return name
	}
	return path
}

func build(dir string) error {
	windowsProvider = filepath.Join(dir, "windows")
	fixtureAgent, shippedAgent = filepath.Join(windowsProvider, connect.AgentFile("windows", "amd64")),
		filepath.Join(dir, connect.AgentFile("windows", "amd64"))
	for _, b := range []struct{ goos, tags, out, pkg string }{
		{"linux", "", filepath.Join(dir, "terraform-provider-gpu"), "."},
		{"windows", "", filepath.Join(windowsProvider, "provider.exe"), "."},
		{"windows", "grpcnotrace", shippedAgent, "./cmd/gpu-agent"},
		{"windows", "grpcnotrace,wmifixture", fixtureAgent, "./cmd/gpu-agent"},
	} {
		cmd := exec.Command("go", "build", "-tags", b.tags, "-trimpath", "-ldflags", "-s -w -X main.version=1.2.3-test", "-o", b.out, b.pkg) //nolint:noctx // bounded by go test's timeout
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOOS="+b.goos, "GOARCH=amd64")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s for %s: %w: %s", b.pkg, b.goos, err, said)
		}
	}
	// What the CLI, which is a program for Linux, can start.
	script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", tool("exec"), filepath.Join(windowsProvider, "provider.exe"))
	return os.WriteFile(filepath.Join(windowsProvider, "terraform-provider-gpu"), []byte(script), 0o700)
}

// TestReleaseHasNoFixture looks into the agents for what stands behind COM in tests. The
// names of functions are in a binary even when its symbols are stripped.
func TestReleaseHasNoFixture(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		agent string
		has   bool
	}{{shippedAgent, false}, {fixtureAgent, true}} {
		data, err := os.ReadFile(c.agent)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"fake/wmi/comserver.Register", "fake/wmi.New"} {
			if has := bytes.Contains(data, []byte(name)); has != c.has {
				t.Errorf("%s has the function %s: %t, want %t", c.agent, name, has, c.has)
			}
		}
	}
	for _, file := range []string{"../../.goreleaser.yml", "../../tools/agents/main.go", "../../GNUmakefile"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			tested := bytes.Contains(line, []byte("go vet")) || bytes.Contains(line, []byte("$(TOOLS)/gotestsum"))
			if bytes.Contains(line, []byte("wmifixture")) && !tested {
				t.Errorf("%s builds with the tag of the fixture: %s", file, line)
			}
		}
	}
}
