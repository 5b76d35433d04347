//go:build linux || darwin

package crash_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// control hears an agent process, also one that is no child of this process.
type control struct {
	listener net.Listener
	cut      chan func() // cuts the agent off
	address  chan string // where the agent listens, if it does
	done     chan struct{}
	struck   bool
	end      *ended
	err      error
}

// listen waits for the agent of a place.
func listen(ctx context.Context, dir place) (*control, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(string(dir), controlName))
	if err != nil {
		return nil, err
	}
	c := &control{listener: l, cut: make(chan func(), 1), address: make(chan string, 1), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = c.hear()
	}()
	return c, nil
}

func (c *control) hear() error {
	conn, err := c.listener.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the other end is gone
	in := bufio.NewScanner(conn)
	for in.Scan() {
		if address, ok := strings.CutPrefix(in.Text(), listening); ok {
			c.address <- address
			continue
		}
		if in.Text() != "strike" {
			c.end = &ended{}
			if err := json.Unmarshal(in.Bytes(), c.end); err != nil {
				return err
			}
			continue
		}
		c.struck = true
		(<-c.cut)()
		if _, err := fmt.Fprintln(conn, "go"); err != nil {
			return err
		}
	}
	// The end of the process is the end of the connection, however it came.
	if err := in.Err(); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	return nil
}

// wait waits until the agent process has ended, by itself.
func (c *control) wait() (*ended, error) {
	select {
	case <-c.done:
	case <-time.After(patience):
		_ = c.listener.Close() // nobody came, or the agent still runs
		return nil, fmt.Errorf("the agent process still runs after %s", patience)
	}
	_ = c.listener.Close() // it has served
	switch {
	case c.err != nil:
		return nil, c.err
	case c.end == nil:
		return nil, errors.New("the agent process died")
	}
	return c.end, nil
}

// strike makes the change up to the disaster, and waits for the end of the agent.
func (p point) strike(ctx context.Context, dir place) error {
	job := agentJob{Dir: string(dir), Disaster: p.disaster, At: p.at, When: p.when}
	if p.disaster == clientKilled {
		return p.strikeClient(ctx, job)
	}
	c, err := listen(ctx, dir)
	if err != nil {
		return err
	}
	l, err := startAgent(ctx, job)
	if err != nil {
		return err
	}
	c.cut <- l.cut
	made := makeChange(ctx, agent.NewClient(l.conn, host), p.change)
	left := l.end()
	end, err := c.wait()
	switch p.disaster {
	case agentKilled, rebooted, rebootedBare:
		if !wasKilled(left) {
			return errors.Join(errors.New("the agent was to be killed here, and was not"), left, made)
		}
		return nil
	case recordsFull, disksFull:
		if err == nil && len(end.Writes) < p.at {
			return errors.Join(fmt.Errorf("the disk was to be full at write %d, but there were %d", p.at, len(end.Writes)), made)
		}
		return err
	}
	return p.endedByItself(c, end, err)
}

func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (p point) strikeClient(ctx context.Context, job agentJob) error {
	env, err := variable(clientVariable, clientJob{Agent: job, Change: p.change})
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	client := exec.CommandContext(ctx, binary)
	client.Env = append(os.Environ(), env)
	c, err := listen(ctx, place(job.Dir))
	if err != nil {
		return err
	}
	if err := client.Start(); err != nil {
		return err
	}
	c.cut <- func() {
		_ = client.Process.Kill() // it may have ended, which the judge sees
		_ = client.Wait()         // its pipes are closed now
	}
	end, err := c.wait()
	return p.endedByItself(c, end, err)
}

func (p point) endedByItself(c *control, end *ended, err error) error {
	switch {
	case err != nil:
		return err
	case !c.struck:
		return errors.New("the agent did not come to this point")
	case end.Deaf:
		return errors.New("the agent was not told that its client is gone")
	case end.Error != "":
		return fmt.Errorf("the agent ended with: %s", end.Error)
	}
	return nil
}
