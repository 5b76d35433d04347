package mps_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	fakemps "github.com/gpufleet/terraform-provider-gpu/internal/fake/mps"
)

// TestFullRun has a clear error for want of room, nothing left, and success once there is
// some.
func TestFullRun(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small file system: run this test as root")
	}
	for name, room := range map[string]string{"no space": "size=4k,nr_inodes=64", "no files for the daemon": "size=1m,nr_inodes=7"} {
		t.Run(name, func(t *testing.T) {
			everyDaemon(t, nil, func(t *testing.T, h *host) {
				if err := os.Mkdir(h.opt.RunDir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := syscall.Mount("none", h.opt.RunDir, "tmpfs", 0, room+",mode=755"); err != nil {
					t.Skipf("no tmpfs can be mounted here: %v", err)
				}
				t.Cleanup(func() {
					if err := syscall.Unmount(h.opt.RunDir, syscall.MNT_DETACH); err != nil {
						t.Error(err)
					}
				})
				_, err := h.Ensure(t.Context(), training(), mps.KeepClients)
				refused(t, err, backend.Insufficient, "MPS daemon training", "The file system of "+h.opt.RunDir, "free some, and apply again")
				h.nothingLeft("training")
				if err := syscall.Mount("none", h.opt.RunDir, "tmpfs", syscall.MS_REMOUNT, "size=1m,nr_inodes=64,mode=755"); err != nil {
					t.Fatal(err)
				}
				h.ensure(training())
				h.settled(training())
			})
		})
	}
}

// TestNoSecondServerForUsers has an option that a driver's daemon does not know refused,
// about which the program says nothing.
func TestNoServerForSeveralUsers(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{}, nil)
	spec := training()
	spec.User, spec.MultiUser = nil, true
	_, err := h.Ensure(t.Context(), spec, mps.KeepClients)
	refused(t, err, backend.Failed, "perhaps this driver's MPS has no server for several users: state one user")
	h.nothingLeft("training")
}

func TestFailedStart(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{FailsToStart: true}, nil)
	_, err := h.Ensure(t.Context(), training(), mps.KeepClients)
	refused(t, err, backend.Failed, "could not start it (MPS daemon training)", "exit status 1")
	h.nothingLeft("training")

	// One that has run before is kept, and starts at the next apply.
	h.programs.Behave(fakemps.Behaviour{Driver: 550})
	h.ensure(training())
	h.kill("training")
	h.programs.Behave(fakemps.Behaviour{Driver: 550, FailsToStart: true})
	_, err = h.Ensure(t.Context(), training(), mps.KeepClients)
	refused(t, err, backend.Failed, "exit status 1")
	if d := h.daemon("training"); d.Spec == nil || d.PID != 0 || d.Problem == "" {
		t.Errorf("left: %+v", d)
	}
	h.programs.Behave(fakemps.Behaviour{Driver: 550})
	h.ensure(training())
	h.settled(training())
}

// TestDeafDaemon has a daemon that does not answer restarted by force.
func TestDeafDaemon(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{Deaf: true}, func(o *mps.Options) {
		o.StartTimeout, o.CommandTimeout = time.Second, 300*time.Millisecond
	})
	_, err := h.Ensure(t.Context(), training(), mps.KeepClients)
	refused(t, err, backend.Timeout, "it was started, and 1s later", "has not answered for 300ms")
	h.nothingLeft("training")
}

// TestStartThatHangs has the program itself, which returns once its daemon listens, not return.
func TestStartThatHangs(t *testing.T) {
	t.Parallel()
	h := newHost(t, hanging(t), func(o *mps.Options) {
		o.StartTimeout, o.CommandTimeout = 50*time.Millisecond, 50*time.Millisecond
	})
	_, err := h.Ensure(t.Context(), training(), mps.KeepClients)
	refused(t, err, backend.Timeout, "the control daemon has not come up for 50ms", "MPS daemon training")
	h.nothingLeft("training")
}

func TestMissingProgram(t *testing.T) {
	t.Parallel()
	h := newHost(t, "/nonexistent/nvidia-cuda-mps-control", nil)
	_, err := h.Ensure(t.Context(), training(), mps.KeepClients)
	refused(t, err, backend.NotSupported, "/nonexistent/nvidia-cuda-mps-control is not installed", "nvidia-cuda-mps")
	h.nothingLeft("training")
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	h := newFake(t, fakemps.Behaviour{}, func(o *mps.Options) { o.RunDir = filepath.Join(o.RunDir, strings.Repeat("d", 70)) })
	_, err := h.Plan(t.Context(), training())
	refused(t, err, backend.InvalidParameter, "a socket has at most 106")
}

// TestUntrustedDirectory has a directory that somebody else made refused.
func TestUntrustedDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may give a directory away: run this test as root")
	}
	h := newFake(t, fakemps.Behaviour{}, nil)
	if err := os.Mkdir(h.opt.RunDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(h.opt.RunDir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	_, err := h.Ensure(t.Context(), training(), mps.KeepClients)
	refused(t, err, backend.Failed, h.opt.RunDir+" belongs to user id 1000")
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	for content, words := range map[string]string{"{": "daemon.json is damaged", `{"format":"gpu-mps/v9"}`: `has format "gpu-mps/v9"`} {
		h := newFake(t, fakemps.Behaviour{}, nil)
		h.ensure(training())
		if err := os.WriteFile(filepath.Join(h.opt.RunDir, "training", "daemon.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := h.Ensure(t.Context(), training(), mps.KeepClients)
		refused(t, err, backend.Failed, words)
	}
}

// TestForeignDaemon has other people's daemons seen, and let alone.
func TestForeignDaemon(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, theirs *host) {
		theirs.ensure(training())
		ours := newHost(t, theirs.opt.Program, nil)
		all, err := ours.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen := false
		for _, d := range all {
			if d.PipeDir != theirs.PipeDir("training") {
				continue
			}
			seen = d.Name == "" && d.Spec == nil && d.PID == theirs.daemon("training").PID && strings.Join(d.Devices, ",") == gpu1+","+gpu2
		}
		if !seen {
			t.Errorf("seen are %+v", all)
		}
		if found, err := ours.Remove(t.Context(), "training", mps.EndClients); err != nil || found {
			t.Errorf("removed: %v, %v", found, err)
		}
		theirs.settled(training())
	})
}

// TestStaleFiles has what a dead daemon left behind not keep a new one from starting, and
// the directory of the pipes stay what containers have mounted.
func TestStaleFiles(t *testing.T) {
	t.Parallel()
	everyDaemon(t, nil, func(t *testing.T, h *host) {
		h.ensure(training())
		before := inode(t, h.PipeDir("training"))
		h.kill("training")
		// A socket that nobody listens on, of the size and name of the daemon's.
		path := filepath.Join(h.PipeDir("training"), "control")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		if d := h.daemon("training"); d.PID != 0 {
			t.Errorf("with a stale socket it is %+v", d)
		}
		h.ensure(training())
		h.settled(training())
		if inode(t, h.PipeDir("training")) != before {
			t.Error("the pipe directory is another one")
		}
	})
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var s syscall.Stat_t
	if err := syscall.Stat(path, &s); err != nil {
		t.Fatal(err)
	}
	return s.Ino
}

// TestHangingDaemons has daemons that hang cost the time of one of them, and not hide the
// one that works.
func TestHangingDaemons(t *testing.T) {
	t.Parallel()
	const hanging = 6
	h := newFake(t, fakemps.Behaviour{}, func(o *mps.Options) { o.CommandTimeout = 5 * time.Second })
	h.ensure(training())
	for i := range hanging {
		spec := training()
		spec.Name = fmt.Sprintf("hanging-%d", i)
		h.ensure(spec)
	}
	all, err := h.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if !strings.HasPrefix(d.Name, "hanging-") {
			continue
		}
		if err := syscall.Kill(d.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(d.PID, syscall.SIGCONT) }) // so that it ends when it is told to
	}
	begin := time.Now()
	all, err = h.Read(t.Context())
	if took := time.Since(begin); err != nil || took > hanging*5*time.Second/2 {
		t.Errorf("after %s: %v", took, err)
	}
	for _, d := range all {
		if silent := strings.Contains(d.Problem, "has not answered for 5s"); d.Name != "" && silent != strings.HasPrefix(d.Name, "hanging-") {
			t.Errorf("%s has the problem %q", d.Name, d.Problem)
		}
	}
}
