package mps_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// reaches tells whether another user gets at a daemon's socket.
func (h *host) reaches(user uint32, name string) bool {
	h.t.Helper()
	if err := os.Chmod(h.dir, 0o755); err != nil { // the directory of the test, above the daemon's
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), "test", "-w", filepath.Join(h.PipeDir(name), "control"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd.Run() == nil
}
