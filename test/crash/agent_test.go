//go:build linux || darwin

package crash_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
)

// disaster is what strikes at a write.
type disaster string

const (
	nothing       disaster = ""
	agentKilled   disaster = "agent killed"
	connectionCut disaster = "connection cut"
	clientKilled  disaster = "client killed"
	recordsFull   disaster = "disk of the records full"
	disksFull     disaster = "all disks full"
	rebooted      disaster = "host rebooted"
	rebootedBare  disaster = "host rebooted, no VM starts by itself"
	// meddled is what the test does to the agent process or its records, which then goes on.
	meddled disaster = "meddled with"
)

// listening is what an agent that listens reports first, with its address.
const listening = "listening "

// The files of a place: the fleet, the records, and the socket where the agent reports.
const (
	fleetName   = "fleet.json"
	stateName   = "state"
	controlName = "control"
)

// agentJob is what an agent process is told, in its environment.
type agentJob struct {
	Dir      string   `json:"dir"`
	Disaster disaster `json:"disaster,omitempty"`
	At       int      `json:"at,omitempty"`
	When     moment   `json:"when,omitempty"`
	// FailAt is the write to the host that fails, counted from 1, so that what was done before
	// is put back.
	FailAt int `json:"fail_at,omitempty"`
	// Identity has the agent listen with TLS instead, with this certificate and key in
	// PEM, which is also the authority of its clients.
	Identity string `json:"identity,omitempty"`
}

// patience is how long something that has to happen is waited for. A busy machine takes
// its time.
const patience = time.Minute

// startPatience is how long an undo tries to start a VM: the disks of a disaster stay full
// for as long as the process lives.
const startPatience = 64 * time.Millisecond

// ended is what an agent says of itself before it ends.
type ended struct {
	Writes []string `json:"writes"`
	Error  string   `json:"error,omitempty"`
	// Deaf is true when the agent was not told that its client is gone.
	Deaf bool `json:"deaf,omitempty"`
}

// serveAgent is the agent process: what `gpu-agent serve --stdio` does, with a breaker
// between it and its host.
func serveAgent(job agentJob) error {
	// Writing to a client that is gone must not end the process.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGXFSZ)
	// A test that fails leaves no process behind, and what keeps one can be read.
	time.AfterFunc(3*patience, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(1)
	})
	ctx := context.Background()
	control, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(job.Dir, controlName))
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }() // the end of the process closes it
	fleet, err := others.Open(filepath.Join(job.Dir, fleetName))
	if err != nil {
		return err
	}
	sim, err := fleet.Host(host)
	if err != nil {
		return err
	}
	store, err := statedir.Open(filepath.Join(job.Dir, stateName))
	if err != nil {
		return err
	}
	v := &victim{job: job, control: control}
	b := &breaker{
		HyperV: sim, MIG: sim, Sharing: sim, store: store, platform: sim.Platform, at: job.At, when: job.When,
		failAt: job.FailAt, strike: v.strike, write: v.write,
	}
	server := agent.NewServer(b, b, agent.WithHostName(host), agent.WithStartPatience(startPatience))
	serve := v.overStdio
	if job.Identity != "" {
		serve = v.overTLS
	}
	err = serve(ctx, server)
	recovering, stop := context.WithTimeout(ctx, patience)
	defer stop()
	server.AwaitRecovery(recovering)
	err = errors.Join(err, server.Shutdown(ctx))
	end := ended{Writes: b.made(), Deaf: v.deaf.Load()}
	if err != nil {
		end.Error = err.Error()
	}
	return json.NewEncoder(control).Encode(end)
}

func (v *victim) overStdio(ctx context.Context, server *agent.Server) error {
	g := grpc.NewServer(append(connect.ServerOptions(connect.DefaultDeadAfter), grpc.UnaryInterceptor(v.unary),
		grpc.StreamInterceptor(v.stream))...)
	server.Register(g)
	return connect.ServeStdio(ctx, os.Stdin, os.Stdout, g)
}

// overTLS serves until it is told to end, or the test has ended without a word.
func (v *victim) overTLS(ctx context.Context, server *agent.Server) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	id := v.job.Identity
	options, err := connect.TLSServerOptions(id, id, id, connect.DefaultDeadAfter)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := grpc.NewServer(options...)
	server.Register(g)
	defer context.AfterFunc(ctx, g.Stop)()
	if _, err := fmt.Fprintln(v.control, listening+listener.Addr().String()); err != nil {
		return err
	}
	err = g.Serve(listener)
	g.Stop() // waits for the calls
	return err
}

// victim is an agent process as seen by what strikes it.
type victim struct {
	job     agentJob
	control net.Conn
	call    atomic.Pointer[context.Context] // the call in progress
	struck  atomic.Bool
	deaf    atomic.Bool
}

func (v *victim) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	v.call.Store(&ctx)
	return next(ctx, req)
}

func (v *victim) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := s.Context()
	v.call.Store(&ctx)
	return next(srv, s)
}

// strike lets the disaster happen. It returns when the agent lives on and knows all
// that it will know of it.
func (v *victim) strike() {
	v.struck.Store(true)
	switch v.job.Disaster {
	case meddled:
		if err := v.askForCut(); err != nil {
			panic(err)
		}
	case agentKilled, rebooted, rebootedBare:
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			panic(err)
		}
		select {} // until the signal arrives
	case connectionCut, clientKilled:
		if err := v.askForCut(); err != nil {
			panic(err)
		}
		select {
		case <-(*v.call.Load()).Done():
		case <-time.After(patience):
			v.deaf.Store(true)
		}
	}
}

// askForCut asks the test to cut the agent off, and waits until it has.
func (v *victim) askForCut() error {
	if _, err := fmt.Fprintln(v.control, "strike"); err != nil {
		return err
	}
	_, err := bufio.NewReader(v.control).ReadString('\n')
	return err
}

// write makes a write, on a disk that may be full by now.
func (v *victim) write(to target, do func() error) error {
	full := v.struck.Load() && (v.job.Disaster == disksFull || v.job.Disaster == recordsFull && to == toRecords)
	if !full {
		return do()
	}
	// The system itself refuses to write to files from here on.
	if err := limitFiles(0); err != nil {
		return err
	}
	return errors.Join(do(), limitFiles(unix.RLIM_INFINITY))
}

// limitFiles says how large a file this process may write.
func limitFiles(size uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(size, limit.Max)
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
}
