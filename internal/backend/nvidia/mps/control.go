package mps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// Control speaks to one control daemon.
type Control struct {
	// Name is the daemon's, for errors.
	Name string
	// Program is nvidia-cuda-mps-control.
	Program string
	// PipeDir and LogDir are the daemon's directories.
	PipeDir, LogDir string
	// Timeout bounds one command.
	Timeout time.Duration
}

const (
	noDaemon       = "Cannot find MPS control daemon process"
	unknownCommand = "Unknown command"
	defaultTimeout = 10 * time.Second
)

// answer is what a command printed, and what the log says beyond it. That is
// whole once the daemon has answered the next command: it answers before it writes.
type answer struct {
	text   string
	reason func() string
}

// environment is what every invocation of the program runs with, and nothing of ours.
func environment(pipeDir, logDir string) []string {
	env := []string{
		"LC_ALL=C",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CUDA_MPS_PIPE_DIRECTORY=" + pipeDir,
	}
	if logDir != "" {
		env = append(env, "CUDA_MPS_LOG_DIRECTORY="+logDir)
	}
	return env
}

// command gives one command.
func (c *Control) command(ctx context.Context, words ...string) (answer, error) {
	command := strings.Join(words, " ")
	log := filepath.Join(c.LogDir, controlLog)
	before := logSize(log)
	text, err := c.invoke(ctx, c.timeout(), command+"\n")
	if err != nil {
		return answer{}, err
	}
	a := answer{text: text, reason: func() string { return reasonFor(logSince(log, before), command, text) }}
	switch {
	case strings.HasPrefix(text, unknownCommand):
		return a, refuse(backend.NotSupported, words[0], c.Name, "this driver's MPS does not know the command")
	case strings.HasPrefix(text, "Insufficient privileges"), strings.HasPrefix(text, "Not enough privilege"):
		return a, refuse(backend.AccessDenied, words[0], c.Name, "%s", text)
	case strings.HasPrefix(text, "Server ") && strings.HasSuffix(text, " not found"):
		return a, refuse(backend.NotFound, words[0], c.Name, "%s", text)
	}
	return a, nil
}

func (c *Control) timeout() time.Duration { return cmp.Or(c.Timeout, defaultTimeout) }

// invoke runs the program. It fails only when no daemon answers.
func (c *Control) invoke(ctx context.Context, timeout time.Duration, stdin string, args ...string) (string, error) {
	op := strings.TrimSpace(stdin + " " + strings.Join(args, " "))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Program, args...)
	cmd.Env = environment(c.PipeDir, c.LogDir)
	cmd.Dir = string(filepath.Separator)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	said := strings.TrimSpace(stdout.String())
	if err == nil {
		return said, nil
	}
	problem := strings.TrimSpace(stderr.String())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", refuse(backend.Timeout, op, c.Name, "the control daemon in %s has not answered for %s", c.PipeDir, timeout)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", missingProgram(op, c.Name, c.Program)
	case strings.Contains(problem, noDaemon):
		return "", refuse(backend.Unavailable, op, c.Name, "no control daemon answers in %s", c.PipeDir)
	}
	return "", refuse(backend.Failed, op, c.Name, "%s", sentence(said, problem, err.Error()))
}

func missingProgram(op, name, program string) error {
	return refuse(backend.NotSupported, op, name,
		"%s is not installed: it comes with the driver (Debian: package nvidia-cuda-mps in non-free, Ubuntu: nvidia-compute-utils-BRANCH, "+
			"RHEL: nvidia-driver-cuda)", program)
}
