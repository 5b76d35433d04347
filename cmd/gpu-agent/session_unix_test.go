//go:build unix

package main_test

import (
	"os/exec"
	"syscall"
	"testing"
)

// inOneProcess is for Windows, where a second process outlives the session's job.
const inOneProcess = "GPU_AGENT_OUTSIDE_JOB="

// asJob starts an agent as a job of a shell.
func asJob() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endings are the ways in which a session ends. The agent ends with each, in its own
// time.
var endings = map[string]func(t *testing.T, cmd *exec.Cmd, hangUp func()){
	"the connection is cut": func(t *testing.T, cmd *exec.Cmd, hangUp func()) {
		t.Helper()
		hangUp()
		wantEnd(t, cmd)
	},
	"SIGTERM": func(t *testing.T, cmd *exec.Cmd, _ func()) {
		t.Helper()
		signal(t, cmd.Process.Pid, syscall.SIGTERM)
		wantEnd(t, cmd)
	},
	"SIGHUP to its group, and the connection is cut": func(t *testing.T, cmd *exec.Cmd, hangUp func()) {
		t.Helper()
		signal(t, -cmd.Process.Pid, syscall.SIGHUP)
		hangUp()
		wantEnd(t, cmd)
	},
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}
