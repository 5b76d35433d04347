package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/semaphore"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// dialer opens one connection, on the network or through a jump host.
type dialer func(ctx context.Context, address string) (net.Conn, error)

// dial connects, through jump hosts where there are any.
func (s SSH) dial(ctx context.Context, host string, o Options) (*sshClient, error) {
	config, err := readSSHConfig()
	if err != nil {
		return nil, &Error{Host: host, Code: Settings, Found: "the SSH configuration cannot be read", Err: err, Fix: "mend the file"}
	}
	target, err := s.resolve(host, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait())
	defer cancel()
	// Handshakes know no context, and ending one that goes through a jump host would
	// wait for that host. So what ends is the connection underneath them all.
	stop := func() bool { return true }
	var next dialer = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}
	out := &sshClient{done: make(chan struct{})}
	for _, hop := range append(target.jumps, target) {
		client, err := hop.connect(ctx, host, next)
		if err != nil {
			out.Close()
			return nil, err
		}
		out.hops, out.Client = append(out.hops, client), client
		next = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := client.DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, fmt.Errorf("through %s: %w", hop.address(), foreign{err})
			}
			return conn, nil
		}
	}
	if !stop() {
		out.Close()
		return nil, unreachable(host, target.address(), ctx.Err())
	}
	go out.keepAlive(cmp.Or(o.beat, sshBeat))
	return out, nil
}

// connect opens one connection over what dial gives: more than one after the other only
// while the server's key is not the one that is meant, and it may have others.
func (e endpoint) connect(ctx context.Context, host string, dial dialer) (*ssh.Client, error) {
	keys, err := e.hostKeys()
	if err != nil {
		return nil, &Error{
			Host: host, Code: Settings, Found: "the known hosts cannot be read", Err: err, Fix: "mend the file, or set known_hosts_file or host_key",
		}
	}
	login, err := e.login(ctx, host)
	if err != nil {
		return nil, err
	}
	defer login.close()
	var refused error
	for _, offer := range keys.offers {
		client, err := e.fewAtOnce(ctx, host, func() (*ssh.Client, error) {
			return e.handshake(ctx, host, dial, keys, offer, login)
		})
		if err == nil {
			return client, nil
		}
		var ours *Error
		var none *ssh.AlgorithmNegotiationError
		switch {
		case errors.As(err, &ours) && ours.Code == HostKey:
			refused = err
		case !errors.As(err, &none):
			return nil, err
		case refused == nil:
			refused = err
		}
	}
	return nil, refused
}

// handshakesAtOnce is how many logins one server gets at once from this process, such as
// a jump host from a run with many hosts. A stock sshd begins to hang up on callers at ten.
const handshakesAtOnce = 8

// handshakes holds a *semaphore.Weighted for each address.
var handshakes sync.Map

// fewAtOnce logs in when few others do, and once more when the server hung up
// before it said who it is: others may be logging in as well.
func (e endpoint) fewAtOnce(ctx context.Context, host string, login func() (*ssh.Client, error)) (*ssh.Client, error) {
	found, _ := handshakes.LoadOrStore(e.address(), semaphore.NewWeighted(handshakesAtOnce))
	slots, _ := found.(*semaphore.Weighted)
	var last error
	client, err := backoff.Retry(ctx, func() (*ssh.Client, error) {
		if err := slots.Acquire(ctx, 1); err != nil {
			return nil, backoff.Permanent(err)
		}
		defer slots.Release(1)
		var client *ssh.Client
		if client, last = login(); last != nil && !errors.Is(last, errHungUp) {
			return nil, backoff.Permanent(last)
		}
		return client, last
	}, backoff.WithMaxTries(handshakeTries))
	switch {
	case err == nil:
		return client, nil
	case last != nil: // and not that time ran out before the next try
		return nil, last
	}
	return nil, unreachable(host, e.address(), err)
}

// handshakeTries is how often a server is asked that hangs up, over some five seconds.
const handshakeTries = 5

// errHungUp is that a server ended the connection before it had shown its key, as sshd
// does when too many log in at once.
var errHungUp = errors.New("the server hung up")

// handshake opens one connection.
func (e endpoint) handshake(ctx context.Context, host string, dial dialer, keys hostKeys, algorithms []string,
	login *login,
) (*ssh.Client, error) {
	raw, err := dial(ctx, e.address())
	if err != nil {
		return nil, unreachable(host, e.address(), err)
	}
	shown, verified := false, false
	conn, channels, requests, err := ssh.NewClientConn(raw, e.address(), &ssh.ClientConfig{
		User: e.user, Auth: login.methods, HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(name string, remote net.Addr, key ssh.PublicKey) error {
			shown = true
			err := keys.check(host, name, remote, key)
			verified = err == nil
			return err
		},
	})
	if err == nil {
		return ssh.NewClient(conn, channels, requests), nil
	}
	_ = raw.Close() // the first error counts
	var ours *Error
	var network net.Error
	switch {
	case errors.As(err, &ours):
		return nil, ours
	case ctx.Err() != nil:
		return nil, &Error{
			Host: host, Code: Unreachable, Found: e.address() + " accepts connections, but no SSH server there answered in time",
			Err: ctx.Err(), Fix: "look at the address and at the load of the host",
		}
	case verified && !errors.As(err, &network) && !errors.Is(err, io.EOF):
		refused := &Error{
			Host: host, Code: Authentication,
			Found: fmt.Sprintf("%s does not let user %q in; tried: %s", e.address(), e.user, login.tried()),
			Fix:   "see that the user is right, and that one of its authorized_keys is a key that was tried",
		}
		if e.isJump {
			refused.Found = "jump host " + refused.Found
			refused.Fix = "give the jump host a key of its own: IdentityFile for it in ~/.ssh/config, the SSH agent, or proxy_jump_private_key. " +
				"What private_key, private_key_file and password say is for the host behind it alone"
		}
		if !strings.Contains(err.Error(), "unable to authenticate") {
			refused.Err = foreign{err} // it was hung up on, such as for too many keys
		}
		return nil, refused
	}
	if !shown && (errors.Is(err, io.EOF) || errors.Is(err, errReset)) {
		err = fmt.Errorf("%w: %w", errHungUp, err)
	}
	return nil, &Error{
		Host: host, Code: Unreachable, Found: "no SSH connection could be made to " + e.address(), Err: foreign{err},
		Fix: "see that sshd answers at this address, and look at its log",
	}
}

// foreign is an error with words of the other end, which need not be the host that is
// meant. A terminal must not obey them.
type foreign struct{ error }

func (f foreign) Error() string { return gpu.Said(f.error.Error(), 2*maxQuote) }

func (f foreign) Unwrap() error { return f.error }

// sshClient is a connection with the jump hosts that it goes through.
type sshClient struct {
	*ssh.Client
	hops []*ssh.Client // the last one is the client
	once sync.Once
	done chan struct{}
}

// Close ends the connection. It begins underneath, with the network: to end what goes
// through a jump host needs that host, which may be gone.
func (c *sshClient) Close() {
	c.once.Do(func() {
		close(c.done)
		for _, hop := range c.hops {
			_ = hop.Close() // the other end may have closed it
		}
	})
}

// within closes the connection when the caller gives up, or when what is asked of the
// host takes longer than it may: requests know no context. What it returns ends the
// watch, and says why it was closed.
func (c *sshClient) within(ctx context.Context, limit time.Duration) func() error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(ctx, c.Close)
	return func() error {
		defer cancel()
		if stop() {
			return nil
		}
		return ctx.Err()
	}
}

// keepAlive closes the connection when the host does not answer any more.
func (c *sshClient) keepAlive(every time.Duration) {
	answered := make(chan error, 1)
	missed := 0
	for {
		select {
		case <-time.After(every):
		case <-c.done:
			return
		}
		if missed == 0 {
			go func() {
				_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
				answered <- err
			}()
		}
		select {
		case err := <-answered:
			if err != nil {
				c.Close()
				return
			}
			missed = 0
		default:
			if missed++; missed > keepaliveMisses {
				c.Close()
				return
			}
		}
	}
}
