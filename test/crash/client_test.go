//go:build linux || darwin

package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// The test binary runs itself with one of these set to be another process.
const (
	agentVariable  = "GPU_CRASH_AGENT"
	clientVariable = "GPU_CRASH_CLIENT"
)

// clientJob is what a client process is told, in its environment.
type clientJob struct {
	Agent  agentJob     `json:"agent"`
	Change agent.Change `json:"change"`
}

// serveClient is the client process, which stands for terraform: it starts an agent and
// makes a change.
func serveClient(job clientJob) error {
	command, err := agentCommand(job.Agent)
	if err != nil {
		return err
	}
	ctx := context.Background()
	conn, err := connect.Process(ctx, host, command, connect.Options{})
	if err != nil {
		return err
	}
	return errors.Join(makeChange(ctx, agent.NewClient(conn, host), job.Change), conn.Close())
}

func agentCommand(job agentJob) (connect.Command, error) {
	binary, err := os.Executable()
	if err != nil {
		return connect.Command{}, err
	}
	env, err := variable(agentVariable, job)
	return connect.Command{Path: binary, Env: []string{env}}, err
}

func variable(name string, job any) (string, error) {
	doc, err := json.Marshal(job)
	return name + "=" + string(doc), err
}

// makeChange is what a provider does on one host.
func makeChange(ctx context.Context, c *agent.Client, ch agent.Change) error {
	return makeChangeUnder(ctx, c, lease("run-1"), ch)
}

func makeChangeUnder(ctx context.Context, c *agent.Client, lease agent.LeaseRequest, ch agent.Change) error {
	fence, err := c.AcquireLease(ctx, lease)
	if err != nil {
		return err
	}
	ch.Keep = true
	_, err = c.Apply(ctx, fence, ch, "", nil)
	return errors.Join(err, c.ReleaseLease(ctx, fence))
}

func lease(run string) agent.LeaseRequest {
	return agent.LeaseRequest{Run: run, Owner: owner, Holder: "tester", TTL: leaseTTL}
}

// leaseTTL is longer than any change here takes, so that renewing it adds no write.
const leaseTTL = 5 * time.Minute

// link is a connection to an agent process over bare pipes, which can be cut.
type link struct {
	cmd  *exec.Cmd
	in   *os.File // the agent's standard input
	out  *os.File // and output
	conn *grpc.ClientConn
	// close ends the connection to an agent that listens.
	close func() error
}

func startAgent(ctx context.Context, job agentJob) (_ *link, err error) {
	command, err := agentCommand(job)
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	l := &link{cmd: exec.CommandContext(ctx, command.Path), in: in, out: out}
	l.cmd.Env = append(os.Environ(), command.Env...)
	l.cmd.Stdin, l.cmd.Stdout, l.cmd.Stderr = theirIn, theirOut, os.Stderr
	err = l.cmd.Start()
	if err := errors.Join(err, theirIn.Close(), theirOut.Close()); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	if err := l.connect(); err != nil {
		l.cut()
		return nil, errors.Join(err, l.cmd.Wait())
	}
	return l, nil
}

func (l *link) connect() error {
	greeting := make([]byte, len(connect.Preamble))
	if _, err := io.ReadFull(l.out, greeting); err != nil || string(greeting) != connect.Preamble {
		return fmt.Errorf("the agent greeted with %q: %w", greeting, err)
	}
	pipe := connect.Pipe(l.out, l.in)
	var err error
	l.conn, err = grpc.NewClient("passthrough:///agent", append(agent.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if pipe == nil {
				return nil, io.ErrClosedPipe
			}
			p := pipe
			pipe = nil
			return p, nil
		}))...)
	return err
}

// cut closes both pipes, as the end of an ssh session does. The client may be closing
// them at the same time, because it has seen that one of them ended.
func (l *link) cut() {
	if l.close != nil {
		_ = l.close() // the agent sees the end of it
		return
	}
	_, _ = l.in.Close(), l.out.Close()
}

// end hangs up and waits for the agent.
func (l *link) end() error {
	_ = l.conn.Close() // fails when it is closed already
	l.cut()
	if l.close != nil {
		_ = l.cmd.Process.Signal(syscall.SIGTERM) // unless it has ended
	}
	return l.cmd.Wait()
}

// startListening starts an agent that listens with TLS, and connects to it.
func startListening(ctx context.Context, job agentJob, c *control) (*link, error) {
	command, err := agentCommand(job)
	if err != nil {
		return nil, err
	}
	id, err := os.ReadFile(job.Identity)
	if err != nil {
		return nil, err
	}
	l := &link{cmd: exec.CommandContext(ctx, command.Path)}
	l.cmd.Env, l.cmd.Stderr = append(os.Environ(), command.Env...), os.Stderr
	if _, err := l.cmd.StdinPipe(); err != nil { // it ends with the test
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	select {
	case address := <-c.address:
		conn, err := connect.DialTLS(ctx, host, connect.TLS{Address: address, CA: id, Cert: id, Key: id}, connect.Options{})
		if err == nil {
			l.conn, l.close = conn.ClientConn, conn.Close
			return l, nil
		}
		return nil, errors.Join(err, l.cmd.Process.Kill(), l.cmd.Wait())
	case <-time.After(patience):
		return nil, errors.Join(errors.New("the agent does not listen"), l.cmd.Process.Kill(), l.cmd.Wait())
	}
}
