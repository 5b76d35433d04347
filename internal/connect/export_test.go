package connect

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// WithPatience replaces how long an agent may take to answer.
func (o Options) WithPatience(d time.Duration) Options {
	o.patience = d
	return o
}

// ServerOptionsWithIdle are the server's options with another idle time.
func ServerOptionsWithIdle(deadAfter, idle time.Duration) []grpc.ServerOption {
	return serverOptions(deadAfter, idle)
}

// WithKeepalive replaces how a client over TLS finds out that its host has vanished.
func (o Options) WithKeepalive(every, timeout time.Duration) Options {
	o.pulse = keepalive.ClientParameters{Time: every, Timeout: timeout, PermitWithoutStream: true}
	return o
}

// WithBeat replaces how often a client over SSH asks its host for a sign of life.
func (o Options) WithBeat(every time.Duration) Options {
	o.beat = every
	return o
}

// Authorities asks a server's files for the authority of its clients at a time.
type Authorities struct{ trust *trust }

// ReadAuthorities reads the files for the first time.
func ReadAuthorities(certFile, keyFile, caFile string) (Authorities, error) {
	t, err := newTrust(certFile, keyFile, caFile, nil)
	return Authorities{t}, err
}

// At reads them again.
func (a Authorities) At(now time.Time) error {
	_, err := a.trust.authoritiesAt(now)
	return err
}

// AwaitPreamble reads what an agent writes first, of a process that ends so.
func AwaitPreamble(ctx context.Context, host string, stream net.Conn, stderr string, exit int) error {
	return awaitPreamble(ctx, host, stream, func() (string, int, bool) { return stderr, exit, true }, defaultPatience)
}
