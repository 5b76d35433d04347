package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// Options are what all ways to a host share.
type Options struct {
	// Version is the provider's, for Hello.
	Version string

	// patience replaces defaultPatience, pulse clientKeepalive, and beat sshBeat.
	patience time.Duration
	pulse    keepalive.ClientParameters
	beat     time.Duration
}

// defaultPatience is how long an agent may take to start, and then to answer the first
// call. Whoever runs Terraform should not have to guess which host it waits for.
const defaultPatience = 30 * time.Second

func (o Options) wait() time.Duration { return cmp.Or(o.patience, defaultPatience) }

// Conn is the connection to one agent. It never connects again by itself: after it has
// ended, every call fails as unavailable.
type Conn struct {
	*grpc.ClientConn
	// Hello is what the agent said of itself. In process nobody asks.
	Hello agent.Hello
	// Older tells that the agent is one that another version of the provider uploaded,
	// which Upload.LookOnly puts up with.
	Older bool

	link  *link
	once  sync.Once
	close func() error
	err   error
}

// newConn makes a client over an open connection. finish waits for what ends with it.
func newConn(l *link, finish func() error, extra ...grpc.DialOption) (*Conn, error) {
	options := append(agent.DialOptions(), extra...)
	options = append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // what is secure is underneath
		grpc.WithContextDialer(l.dial),
		grpc.WithIdleTimeout(0), // an idle connection would be closed and could not be opened again
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig())
	client, err := grpc.NewClient("passthrough:///agent", options...)
	if err != nil {
		_ = l.Close() // the first error counts
		return nil, err
	}
	return &Conn{ClientConn: client, link: l, close: finish}, nil
}

// Done is closed when the connection has ended, from either side.
func (c *Conn) Done() <-chan struct{} { return c.link.done }

// Close hangs up, and waits for what belongs to the connection on this machine.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.err = errors.Join(c.ClientConn.Close(), c.link.Close(), c.close())
	})
	return c.err
}

// overConn makes a client over an open connection and introduces both ends. Its errors
// are *Error, or *agent.Error when the caller gave up.
func overConn(ctx context.Context, host string, raw net.Conn, o Options, dial ...grpc.DialOption) (*Conn, error) {
	c, err := newConn(newLink(raw), func() error { return nil }, dial...)
	if err != nil {
		return nil, fmt.Errorf("could not make a client for host %s: %w", host, err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait())
	defer cancel()
	c.Hello, err = agent.NewClient(c.ClientConn, host, agent.WithClientVersion(o.Version)).Hello(ctx)
	if err != nil {
		_ = c.Close() // the first error counts
		return nil, refusal(host, err, o.wait())
	}
	return c, nil
}

// refusal is the error of a first call.
func refusal(host string, err error, waited time.Duration) error {
	ae, ok := errors.AsType[*agent.Error](err)
	switch {
	case !ok:
		return err
	case ae.Code == agent.VersionMismatch:
		return &Error{Host: host, Code: Version, Found: ae.Message, Fix: "upgrade the older of the two, gpu-agent on the host or the provider"}
	case ae.Code == agent.Denied:
		return &Error{Host: host, Code: Authentication, Found: ae.Message, Fix: "use a key or certificate that the host gives a role"}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{
			Host: host, Code: Unreachable, Found: fmt.Sprintf("gpu-agent started, but did not answer the first call within %s", waited), Err: err,
			Fix: "look at the load of the host and at the agent's log there",
		}
	case ae.Code == agent.Unavailable:
		return &Error{
			Host: host, Code: Ended, Found: "the connection ended before the agent had answered the first call", Err: err,
			Fix: "look at the agent's log on the host",
		}
	}
	return err
}
