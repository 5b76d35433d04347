package connect

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Command is an agent to start.
type Command struct {
	Path string
	Args []string // such as serve --stdio
	// Env is what the agent gets besides what every agent gets of this process's environment.
	Env []string
}

// agentVariables is how the names of variables begin that are an agent's own.
const agentVariables = "GPU_AGENT_"

// childEnvironment is what an agent on this machine gets of an environment: what any program needs here, and what
// is an agent's own. Which program is started may be a pull request's idea, and the environment of a pipeline has
// keys of other hosts, of clouds and of state backends.
func childEnvironment(environment []string) []string {
	var out []string
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, agentVariables) ||
			slices.ContainsFunc(programVariables, func(n string) bool { return strings.EqualFold(n, name) }) {
			out = append(out, variable)
		}
	}
	return out
}

// exitGrace is how long the exit status of a process whose output has ended is waited
// for.
const exitGrace = 2 * time.Second

// Process starts an agent as a child process. The child has its own process session:
// it outlives a parent that is killed for as long as it has a change to end.
func Process(ctx context.Context, host string, command Command, o Options) (*Conn, error) {
	cmd := exec.Command(command.Path, command.Args...) //nolint:noctx // it ends when its standard input does, with no change half done
	cmd.Env = append(childEnvironment(os.Environ()), command.Env...)
	cmd.SysProcAttr = ownSession()
	cmd.WaitDelay = exitGrace
	said := &tail{}
	cmd.Stderr = said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, &Error{Host: host, Code: Settings, Found: "could not make a pipe for the agent", Err: err}
	}
	stdout, childOut, err := os.Pipe()
	if err != nil {
		return nil, &Error{Host: host, Code: Settings, Found: "could not make a pipe for the agent", Err: err}
	}
	cmd.Stdout = childOut
	err = cmd.Start()
	_ = childOut.Close() // the child has its own
	if err != nil {
		_, _ = stdin.Close(), stdout.Close()
		return nil, notStarted(host, command.Path, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd
		close(exited)
	}()
	conn, err := overStdio(ctx, host, stdout, stdin, func() (string, int, bool) {
		select {
		case <-exited:
		case <-time.After(exitGrace):
			return said.String(), 0, false
		}
		state := cmd.ProcessState
		if !state.Exited() {
			return said.String() + "\n" + state.String(), 0, false // such as "signal: killed"
		}
		return said.String(), state.ExitCode(), true
	}, o)
	if err != nil {
		// Nothing was asked of it, and it may not be an agent at all.
		_ = cmd.Process.Kill()
		<-exited
		return nil, err
	}
	// An agent whose input has ended ends by itself: at once, or when the change in
	// flight is put back. It is never killed.
	conn.close = func() error { <-exited; return nil }
	return conn, nil
}

// notStarted is the error of an agent that the operating system did not start.
func notStarted(host, path string, err error) *Error {
	code, found, fix := explain(err.Error(), 0, false)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		code, found, fix = NoAgent, "there is no agent at "+path, "install gpu-agent, or say in agent_path where it is"
	case code == Ended:
		code, found, fix = Blocked, "the agent could not be started",
			"see that agent_path is a gpu-agent for this platform that this user may run"
	}
	return &Error{Host: host, Code: code, Found: found, Fix: fix, Err: err}
}
