package main_test

import (
	"os/exec"
	"syscall"
	"testing"
)

// inOneProcess keeps the agent in the process that was started, so that a test can kill
// it.
const inOneProcess = "GPU_AGENT_OUTSIDE_JOB=1"

func asJob() *syscall.SysProcAttr { return nil }

// endings are the ways in which a session ends. sshd kills what it started; the agent
// has left that job.
var endings = map[string]func(t *testing.T, cmd *exec.Cmd, hangUp func()){
	"the connection is cut": func(t *testing.T, cmd *exec.Cmd, hangUp func()) {
		t.Helper()
		hangUp()
		wantEnd(t, cmd)
	},
	"the session's process is killed, and the connection is cut": func(t *testing.T, cmd *exec.Cmd, hangUp func()) {
		t.Helper()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		hangUp()
	},
}
