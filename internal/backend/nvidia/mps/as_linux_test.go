package mps_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// as gives a command to a daemon as another user, and returns what that user reads.
func (h *host) as(user int, name, command string) string {
	h.t.Helper()
	// The directories of tests are their owner's alone. Those above the daemon's are open.
	for dir := h.dir; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	program, err := filepath.EvalSymlinks(h.opt.Program)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(program)
	if h.programs != nil {
		cmd = h.programs.ControlFor(user)
	}
	cmd.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=" + h.PipeDir(name)}
	cmd.Stdin = strings.NewReader(command + "\n")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
	out, _ := cmd.CombinedOutput() // it ends with 1 when it may not reach the daemon
	return strings.TrimSpace(string(out))
}
