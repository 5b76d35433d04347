package vgpu_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	fakevgpu "github.com/gpufleet/terraform-provider-gpu/internal/fake/vgpu"
)

// A user other than root does not see what other users' processes have open, and nothing
// is taken away by somebody who cannot see.
func TestUnseenHolders(t *testing.T) {
	k, h := ready(t, l40s())
	s := vgpu.Spec{Type: 1153}
	create(t, h, s)
	unseen(t, k)
	if g := read(t, h); !g.HoldersHidden {
		t.Error("nothing is hidden")
	}
	refused(t, h.remove(t, s), backend.AccessDenied, "run as root", k.Proc())
	if got := types(read(t, h))[0]; got != "L40S-12Q" {
		t.Errorf("function 0 has %q", got)
	}
}

func TestUnseenHoldersOfFunctions(t *testing.T) {
	k, h := ready(t, l40s())
	unseen(t, k)
	refused(t, h.disableVFs(t), backend.AccessDenied, "run as root", k.Proc())
	if g := read(t, h); !g.VFsOn() {
		t.Error("the virtual functions went")
	}
}

// unseen makes a process whose files the test cannot see.
func unseen(t *testing.T, k *fakevgpu.Kernel) {
	t.Helper()
	k.HoldVM(4242, "0000:41:00.9", "other")
	dir := filepath.Join(k.Proc(), "4242", "fd")
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Error(err)
		}
	})
	if os.Geteuid() == 0 {
		asNobody(t)
	}
}

// asNobody lets this thread, to which the test is bound, see files as nobody does.
func asNobody(t *testing.T) {
	t.Helper()
	if err := os.Chmod(filepath.Dir(t.TempDir()), 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	root, err := unix.SetfsuidRetUid(65534)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := unix.SetfsuidRetUid(root); err != nil {
			t.Error(err)
		}
	})
}
