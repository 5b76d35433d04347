package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// Options are what all ways to a host share.
type Options struct {
	// Version is the provider's, for Hello.
	Version string
}

// Conn is the connection to one agent. It never connects again by itself: after it has
// ended, every call fails as unavailable.
type Conn struct {
	*grpc.ClientConn
	// Hello is what the agent said of itself. In process nobody asks.
	Hello agent.Hello

	once  sync.Once
	close func() error
	err   error
}

// Close hangs up, and waits for what belongs to the connection on this machine.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.err = c.ClientConn.Close()
		if status.Code(c.err) == codes.Canceled {
			c.err = nil // it was closed before
		}
		c.err = errors.Join(c.err, c.close())
	})
	return c.err
}

// ServerOptions are the options of an agent's server whose clients may vanish: one that
// answers nothing for so long is taken for dead, and its changes are put back.
func ServerOptions(deadAfter time.Duration) []grpc.ServerOption {
	return append(agent.ServerOptions(),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: deadAfter / 2, Timeout: deadAfter / 2}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
}

// DefaultDeadAfter is how long an agent waits for the sign of life of a client.
const DefaultDeadAfter = 50 * time.Second

// helloTimeout bounds the first call.
const helloTimeout = 30 * time.Second

// overConn makes a client over an open connection and introduces both ends.
func overConn(ctx context.Context, host string, raw net.Conn, o Options, dial ...grpc.DialOption) (*Conn, error) {
	w := &watched{Conn: raw, done: make(chan struct{})}
	var used atomic.Bool
	options := append(agent.DialOptions(), dial...)
	options = append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // what is secure is underneath
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errEnded
			}
			return w, nil
		}),
		grpc.WithIdleTimeout(0), // an idle connection would be closed and could not be opened again
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig())
	client, err := grpc.NewClient("passthrough:///agent", options...)
	if err != nil {
		_ = raw.Close() // the first error counts
		return nil, fmt.Errorf("could not make a client for host %s: %w", host, err)
	}
	c := &Conn{ClientConn: client, close: func() error { _ = w.Close(); return nil }} // the other end may have closed it
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	c.Hello, err = agent.NewClient(client, host, agent.WithClientVersion(o.Version)).Hello(ctx)
	if err != nil {
		_ = c.Close() // the first error counts
		return nil, greeting(host, err, w)
	}
	return c, nil
}

var errEnded = errors.New("the connection to the agent has ended")

// greeting is the error of a first call.
func greeting(host string, err error, w *watched) error {
	var ae *agent.Error
	alert, isAlert := errors.AsType[tls.AlertError](w.failure())
	switch {
	case isAlert:
		// In TLS 1.3 the client learns only now that its certificate was refused.
		return &Error{Host: host, Kind: Certificate, Found: "the host did not accept the client's certificate", Err: alert,
			Fix: "use a certificate of the authority that the agent was started with (--client-ca), not expired, for client authentication"}
	case errors.As(err, &ae) && ae.Kind == agent.VersionMismatch:
		return &Error{Host: host, Kind: Version, Found: ae.Message, Fix: "install the gpu-agent that belongs to this version of the provider, or set upload = \"auto\""}
	case errors.As(err, &ae) && ae.Kind == agent.Unavailable:
		return &Error{Host: host, Kind: Ended, Found: "the connection ended before the agent had answered", Err: err,
			Fix: "look at the agent's log on the host"}
	}
	return err
}

// watched is a connection that tells when it has ended, and why.
type watched struct {
	net.Conn
	once sync.Once
	done chan struct{}
	mu   sync.Mutex
	err  error
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.mu.Lock()
		if w.err == nil {
			w.err = err
		}
		w.mu.Unlock()
	}
	return n, err
}

func (w *watched) Close() error {
	defer w.once.Do(func() { close(w.done) })
	return w.Conn.Close()
}

func (w *watched) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
