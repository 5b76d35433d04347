package packaging_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestEveryCommandLineIsTheAgents gives the agent each command line that people or
// programs are told to use. Its fleet file, also that of the configuration where it runs,
// does not exist, so that a command line which is right fails for that reason and no other.
func TestEveryCommandLineIsTheAgents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file  string
		least int // command lines
	}{
		{"packaging/linux/gpu-agent.service", 1},
		{"packaging/linux/gpu-agent-reconcile.service", 1},
		{"packaging/linux/gpu-agent-starts.service", 1},
		{"packaging/linux/sudoers.example", 2},
		{"packaging/linux/sshd_config.example", 2},
		{"packaging/windows/register-reconcile.ps1", 1},
		{"packaging/windows/sshd_config.example", 1},
		{"docs/guides/agent.md", 9},
		{"docs/guides/hosts.md", 5},
		{"docs/guides/first-host.md", 5},
		{"docs/guides/adopt.md", 3},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			lines := commandLines(c.file, read(t, c.file))
			if len(lines) < c.least {
				t.Errorf("it has the command lines %q; there must be at least %d", lines, c.least)
			}
			for _, line := range lines {
				isTheAgents(t, line)
			}
		})
	}
}

// isTheAgents runs a command line.
func isTheAgents(t *testing.T, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " >")
	args := strings.Fields(line)
	if len(args) == 1 {
		args = append(args, "--help") // only a command is spoken of
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	configuration := "provider \"gpu\" {\n  hosts = { hv01 = { simulated = { file = \"fleet.json\" } } }\n}\n"
	if err := os.WriteFile(filepath.Join(cmd.Dir, "main.tf"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "GPU_AGENT_BACKEND=simulated", "GPU_AGENT_FLEET="+filepath.Join(cmd.Dir, "fleet.json"))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.ExitCode() == 1 && strings.Contains(string(out), "fleet.json"):
	default:
		t.Errorf("gpu-agent %s: %v\n%s", line, err, out)
	}
}

var (
	// called finds the agent where it is what is run: at the start of a line, or after
	// what runs it. Its arguments end with a quote.
	called = regexp.MustCompile(`(?:^|["=]\s*|NOPASSWD: |sudo -n |Subsystem gpu-agent |ForceCommand )` +
		`[\w:/~.-]*gpu-agent(?:\.exe)?[ \t]+([^"'#|]+)`)
	// argument is what a PowerShell script gives to the agent.
	argument = regexp.MustCompile(`-Argument '([^']+)'`)
	codeSpan = regexp.MustCompile("`([^`]+)`")
	variable = regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`)
)

// commandLines are the arguments that a file gives to the agent, comments left out.
func commandLines(file, text string) []string {
	for _, v := range variable.FindAllStringSubmatch(text, -1) {
		text = strings.ReplaceAll(text, "${"+v[1]+"}", v[2])
	}
	var out []string
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		parts := []string{line}
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
			continue
		case filepath.Ext(file) == ".md" && !fenced:
			parts = nil
			for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
				parts = append(parts, span[1])
			}
		case strings.HasPrefix(line, "#"):
			continue
		}
		for _, part := range parts {
			for _, found := range []*regexp.Regexp{called, argument} {
				if m := found.FindStringSubmatch(part); m != nil {
					out = append(out, strings.TrimSpace(m[1]))
				}
			}
		}
	}
	return out
}
