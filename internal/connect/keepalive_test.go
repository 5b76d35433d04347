package connect_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// freezing is a connection that can vanish: nothing arrives any more, and nobody is
// told.
type freezing struct {
	net.Conn
	frozen <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func freezable(c net.Conn, frozen <-chan struct{}) *freezing {
	return &freezing{Conn: c, frozen: frozen, closed: make(chan struct{})}
}

func (f *freezing) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	select {
	case <-f.frozen:
		<-f.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (f *freezing) Write(b []byte) (int, error) {
	select {
	case <-f.frozen:
		return len(b), nil
	default:
		return f.Conn.Write(b)
	}
}

func (f *freezing) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}

// freezingListener gives such connections.
type freezingListener struct {
	net.Listener
	frozen <-chan struct{}
}

func (l freezingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return freezable(c, l.frozen), nil
}

// waiting is a service whose call ends with its client.
type waiting struct {
	*health.Server
	begun, ended chan struct{}
}

func (w *waiting) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	close(w.begun)
	<-ctx.Done()
	close(w.ended)
	return nil, ctx.Err()
}

// TestDeadClient checks that an agent ends the calls of a client that has vanished
// without a word, over a pipe and over a network.
func TestDeadClient(t *testing.T) {
	t.Parallel()
	const deadAfter = 2 * time.Second // gRPC's shortest
	for _, test := range []struct {
		name  string
		serve func(t *testing.T, server *grpc.Server) net.Conn
	}{
		{"stdio", func(t *testing.T, server *grpc.Server) net.Conn {
			agentIn, toAgent := io.Pipe()
			fromAgent, agentOut := io.Pipe()
			go func() { _ = connect.ServeStdio(t.Context(), agentIn, agentOut, server) }() // its calls count
			if _, err := io.ReadFull(fromAgent, make([]byte, len(connect.Preamble))); err != nil {
				t.Fatal(err)
			}
			return connect.Pipe(fromAgent, toAgent)
		}},
		{"network", func(t *testing.T, server *grpc.Server) net.Conn {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", serve(t, server, newListener(t)))
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := &waiting{Server: health.NewServer(), begun: make(chan struct{}), ended: make(chan struct{})}
			server := grpc.NewServer(connect.ServerOptions(deadAfter)...)
			healthpb.RegisterHealthServer(server, w)
			frozen := make(chan struct{})
			conn := freezable(test.serve(t, server), frozen)
			client, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return conn, nil }))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()                                                                      // it is dead
			go func() { _, _ = healthpb.NewHealthClient(client).Check(t.Context(), &healthpb.HealthCheckRequest{}) }() // its end counts
			<-w.begun
			select {
			case <-w.ended:
				t.Fatal("the call of a living client was ended")
			case <-time.After(2 * deadAfter):
			}
			close(frozen)
			select {
			case <-w.ended:
			case <-time.After(patience):
				t.Error("the agent does not notice that its client is dead")
			}
		})
	}
}

// TestDeadHost checks that a client over TLS notices that its host has vanished.
func TestDeadHost(t *testing.T) {
	t.Parallel()
	frozen := make(chan struct{})
	conn := dialOwn(t, freezingListener{newListener(t), frozen}, options.WithKeepalive(10*time.Second, time.Second)) // gRPC's shortest
	close(frozen)
	select {
	case <-conn.Done():
	case <-time.After(patience):
		t.Fatal("the client does not notice that its host is dead")
	}
	_, err := agent.NewClient(conn, host).Inventory(t.Context())
	if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.Unavailable {
		t.Errorf("%v, want an agent.Error of kind unavailable", err)
	}
}

// TestIdle checks that an agent that listens hangs up on a client without calls, and
// that this client knows.
func TestIdle(t *testing.T) {
	t.Parallel()
	conn := dialOwn(t, newListener(t), options, connect.ServerOptionsWithIdle(connect.DefaultDeadAfter, 300*time.Millisecond)...)
	select {
	case <-conn.Done():
	case <-time.After(patience):
		t.Error("an idle connection stays")
	}
}

// dialOwn connects over TLS to an agent of its own.
func dialOwn(t *testing.T, listener net.Listener, o connect.Options, extra ...grpc.ServerOption) *connect.Conn {
	t.Helper()
	ca := newAuthority(t, "the fleet's authority")
	l := listenOn(t, listener, ca, ca.issue(nil), extra...)
	conn, err := connect.DialTLS(t.Context(), host, l.client(ca, ca.issue(nil)), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the other end may have done so
	return conn
}

// TestNothingStays checks that connections that were closed leave no goroutine.
func TestNothingStays(t *testing.T) {
	ca := newAuthority(t, "the fleet's authority")
	l := listen(t, ca, ca.issue(nil))
	settings, dir := l.client(ca, ca.issue(nil)), newHost(t, 0)
	ways := []func() (*connect.Conn, error){
		func() (*connect.Conn, error) { return connect.InProcess() },
		func() (*connect.Conn, error) {
			return connect.Process(t.Context(), host, job{Dir: dir}.command(t), options)
		},
		func() (*connect.Conn, error) { return connect.DialTLS(t.Context(), host, settings, options) },
	}
	round := func() {
		for _, dial := range ways {
			conn, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			<-conn.Done()
		}
		for _, bad := range []job{{Says: "hello\n"}, {Exits: new(127)}, {Protocol: agent.Protocol + 1}} {
			if _, err := connect.Process(t.Context(), host, bad.command(t), options); err == nil {
				t.Error("it is taken for an agent")
			}
		}
	}
	round()
	before := stacks()
	for range 5 {
		round()
	}
	var after string
	// goroutines of gRPC and of the kernel's pipes end by themselves
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if after = stacks(); strings.Count(after, "goroutine ") <= strings.Count(before, "goroutine ") {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	t.Errorf("goroutines stay:\n%s", after)
}

func stacks() string {
	b := make([]byte, 4<<20)
	return string(bytes.TrimSpace(b[:runtime.Stack(b, true)]))
}
