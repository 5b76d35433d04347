package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A program that is linked as usual asks for the C library that it was built with, and the
// check says so by the symbol; with glibc.h it does not.
func TestGlibc(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("there is no gcc: apt-get install --no-install-recommends gcc libc6-dev")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "a.c")
	text := "#include <dlfcn.h>\n#include <pthread.h>\nint main(void) { return dlopen(\"x\", 1) == 0 && pthread_detach(pthread_self()); }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	header, err := filepath.Abs("glibc.h")
	if err != nil {
		t.Fatal(err)
	}
	build := func(name string, options ...string) string {
		out := filepath.Join(dir, name)
		if said, err := exec.CommandContext(t.Context(), gcc, append([]string{source, "-shared", "-fPIC", "-o", out}, options...)...).
			CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		return out
	}
	if err := checkGlibc(build("usual.so")); err == nil || !strings.Contains(err.Error(), "dlopen@GLIBC_2.34") {
		t.Skipf("this machine's glibc is older than 2.34: %v", err)
	}
	if err := checkGlibc(build("old.so", "-include", header)); err != nil {
		t.Error(err)
	}
	if err := checkGlibc(source); err == nil {
		t.Error("a text passes for a program")
	}
}

// The packages ask for the glibc that the agents are checked against.
func TestPackagesDeclareGlibc(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", ".goreleaser.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var release struct {
		Nfpms []struct {
			IDs       []string `yaml:"ids"`
			Formats   []string
			Overrides map[string]struct{ Dependencies []string }
		}
	}
	if err := yaml.Unmarshal(text, &release); err != nil {
		t.Fatal(err)
	}
	oldest := fmt.Sprintf("%d.%d", newestGlibc[0], newestGlibc[1])
	want := map[string]string{"deb": "libc6 (>= " + oldest + ")", "rpm": "glibc >= " + oldest}
	agents := 0
	for _, p := range release.Nfpms {
		if !slices.Contains(p.IDs, "agent") {
			continue
		}
		agents++
		for _, format := range p.Formats {
			if w, known := want[format]; !known || !slices.Contains(p.Overrides[format].Dependencies, w) {
				t.Errorf("the %s asks for %q, want %q", format, p.Overrides[format].Dependencies, w)
			}
		}
	}
	if agents == 0 {
		t.Error("no package has the agent")
	}
}
