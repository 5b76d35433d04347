package mps_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakenvml "github.com/gpufleet/terraform-provider-gpu/internal/fake/nvml"
)

// readVariable has the test binary print the daemons below a directory.
const readVariable = "MPS_TEST_READ"

func printDaemons(runDir string) {
	all, err := mps.New(mps.Options{RunDir: runDir}).Read(context.Background())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestReadByOthers does not take a daemon for dead that its reader may not see.
func TestReadByOthers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may become another user: run this test as root")
	}
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		h.ensure(training())
		if err := os.Chmod(h.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		// The binary's own directory is for root. Another process copies it: one that is started
		// while this one writes would hold the file open, and then it cannot be run.
		copied := filepath.Join(h.dir, "read")
		if out, err := exec.CommandContext(t.Context(), "cp", self, copied).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.Chmod(copied, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), copied)
		cmd.Env = []string{readVariable + "=" + h.opt.RunDir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var all []mps.Daemon
		if err := json.Unmarshal(out, &all); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(d mps.Daemon) bool { return d.Name == "training" })
		if i < 0 || !strings.Contains(all[i].Problem, "only root and user id 0 can tell whether it runs, and the agent runs as 1000") {
			t.Errorf("another user reads %+v", all)
		}
		pid := h.daemon("training").PID
		if !slices.ContainsFunc(all, func(d mps.Daemon) bool { return d.PID == pid && d.Hidden && d.Devices == nil }) {
			t.Errorf("another user reads %+v, of which process %d is to hide what it serves", all, pid)
		}
	})
}

// TestReadOfOneThatEnds does not take a daemon whose environment is gone already for one of every GPU: the kernel shows
// both as an empty file.
func TestReadOfOneThatEnds(t *testing.T) {
	t.Parallel()
	tree := fakenvml.NewProcTree(t)
	tree.Add(fakenvml.Proc{PID: 4242, Args: []string{"nvidia-cuda-mps-control", "-d"}})
	host := newHost(t, "nvidia-cuda-mps-control", func(o *mps.Options) { o.ProcDir = tree.Proc() })
	if all, err := host.Read(t.Context()); err != nil || len(all) != 1 {
		t.Fatalf("a daemon without an environment: %+v, %v", all, err)
	}
	dir := filepath.Join(tree.Proc(), "4242")
	environ := filepath.Join(dir, "environ")
	if err := errors.Join(os.Remove(environ), syscall.Mkfifo(environ, 0o600)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		file, err := os.OpenFile(environ, os.O_WRONLY, 0) // waits for the reader
		ended <- errors.Join(err, os.WriteFile(filepath.Join(dir, "cmdline"), nil, 0o600), file.Close())
	}()
	all, err := host.Read(t.Context())
	if err := errors.Join(err, <-ended); err != nil || len(all) != 0 {
		t.Errorf("of one that ends: %+v, %v", all, err)
	}
}
