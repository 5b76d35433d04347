// Package cli runs the real Terraform or OpenTofu with a provider that was built, for
// tests: a folder with a configuration, and what a command in it must answer.
package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Path is the CLI to test with, "" for none: the one of the environment, or one that is
// installed.
func Path() string {
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

// Folder is a folder in which the CLI runs.
type Folder struct {
	T   *testing.T
	Dir string
	Env []string
	// Owner is the owner in the provider's configuration.
	Owner string
}

// New makes a folder whose CLI takes the provider from a directory.
func New(t *testing.T, provider, owner string) *Folder {
	t.Helper()
	dir := t.TempDir()
	f := &Folder{T: t, Dir: filepath.Join(dir, "work"), Owner: owner}
	home := filepath.Join(dir, "home")
	for _, d := range []string{f.Dir, home} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	rc := filepath.Join(dir, "cli.rc")
	WriteFile(t, rc, fmt.Sprintf("provider_installation {\n dev_overrides {\n  \"gpufleet/gpu\" = %q\n }\n direct {}\n}\n", provider))
	f.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1",
		"HOME="+home, "SSH_AUTH_SOCK=")
	return f
}

// Write replaces the configuration: hosts are elements of the provider's map.
func (f *Folder) Write(hosts []string, resources string) {
	f.T.Helper()
	WriteFile(f.T, filepath.Join(f.Dir, "main.tf"),
		fmt.Sprintf("terraform {\n  required_providers {\n    gpu = { source = \"gpufleet/gpu\" }\n  }\n}\n"+
			"provider \"gpu\" {\n  owner = %q\n  hosts = {\n    %s\n  }\n}\n%s", f.Owner, strings.Join(hosts, "\n    "), resources))
}

// Command is a command of the CLI.
func (f *Folder) Command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(f.T.Context(), Path(), append(args, "-no-color")...)
	cmd.Dir, cmd.Env = f.Dir, f.Env
	return cmd
}

// Run runs a command and returns what it printed and its exit code.
func (f *Folder) Run(args ...string) (string, int) {
	f.T.Helper()
	cmd := f.Command(args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		f.T.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// OK runs a command that must succeed.
func (f *Folder) OK(args ...string) string {
	f.T.Helper()
	out, code := f.Run(args...)
	if code != 0 {
		f.T.Fatalf("%v: exit code %d\n%s", args, code, out)
	}
	return out
}

// Fails runs a command that must end with one error of a title.
func (f *Folder) Fails(title string, args ...string) string {
	f.T.Helper()
	out, code := f.Run(args...)
	if code != 1 {
		f.T.Fatalf("%v: exit code %d, want 1\n%s", args, code, out)
	}
	if n := strings.Count(out, "Error: "); n != 1 || !strings.Contains(out, "Error: "+title) {
		f.T.Errorf("%v: %d errors, want one %q:\n%s", args, n, title, out)
	}
	return out
}

// WantNoChanges asserts that a second plan is empty.
func (f *Folder) WantNoChanges() {
	f.T.Helper()
	if out, code := f.Run("plan", "-detailed-exitcode"); code != 0 {
		f.T.Errorf("a second plan has exit code %d, want 0 (no changes)\n%s", code, out)
	}
}

// WantSays asserts that an output has texts, whatever the line breaks.
func WantSays(t *testing.T, out string, texts ...string) {
	t.Helper()
	joined := strings.Join(strings.Fields(out), " ")
	for _, s := range texts {
		if !strings.Contains(joined, s) {
			t.Errorf("the output does not say %q:\n%s", s, out)
		}
	}
}

// WriteFile writes a file that only its owner may read.
func WriteFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// patience is how long a test waits for what has to happen. A busy machine takes its time.
const patience = time.Minute

// Eventually waits until something has come about.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come about within %s: %s", patience, what)
		}
	}
}
