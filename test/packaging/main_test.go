// Package packaging_test holds what is shipped beside the binaries against the agent
// itself, and against the programs that read it.
package packaging_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// root is where the repository begins.
const root = "../.."

// binary is the agent.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "packaging-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "gpu-agent.exe")                              // the suffix does no harm elsewhere
	build := exec.Command("go", "build", "-o", binary, root+"/cmd/gpu-agent") //nolint:noctx // bounded by go test's timeout
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// need finds a program, or skips the test.
func need(t *testing.T, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("there is no %s: apt-get install --no-install-recommends %s", program, pkg)
	}
	return path
}

// read is a file of the repository.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// write makes a file in a directory of its own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
