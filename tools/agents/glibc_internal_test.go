package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
		if said, err := exec.CommandContext(t.Context(), gcc, append([]string{source, "-shared", "-fPIC", "-o", out}, options...)...).CombinedOutput(); err != nil {
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
