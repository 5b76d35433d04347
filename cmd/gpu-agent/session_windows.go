package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// outsideJob marks the copy of this process that has left the session's job.
const outsideJob = "GPU_AGENT_OUTSIDE_JOB"

// leaveSession starts a copy of this process outside of the session's job, with the
// same standard input and output, and waits for it: sshd ends all processes of the job
// with the session.
func leaveSession() (done bool, err error) {
	if os.Getenv(outsideJob) != "" {
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.Command(self, os.Args[1:]...) //nolint:noctx // it has to outlive this process
	cmd.Env = append(os.Environ(), outsideJob+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_BREAKAWAY_FROM_JOB | windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW, HideWindow: true,
	}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return true, &codedError{code: exit.ExitCode()} // the copy has said why
	case errors.Is(err, windows.ERROR_ACCESS_DENIED):
		return true,
			fmt.Errorf("the session's job does not let the agent outlive the session, so a change could be cut off half done; use the agent as a "+
				"service (serve --listen): %w", err)
	}
	return true, err
}

func stdio() (in io.ReadCloser, out io.WriteCloser) { return os.Stdin, os.Stdout }
