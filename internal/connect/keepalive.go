package connect

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// DefaultDeadAfter is how long an agent waits for the sign of life of a client.
const DefaultDeadAfter = 50 * time.Second

// maxIdle is how long a connection over TLS may have no call. A client connects again
// when it needs to; one over SSH or a pipe keeps its agent, which has no other.
const maxIdle = 15 * time.Minute

// handshakeTimeout is how long a client may take to show its certificate and to say its
// first word.
const handshakeTimeout = 20 * time.Second

// clientKeepalive finds out that a host has vanished. SSH has its own, and a child
// process cannot vanish.
var clientKeepalive = keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 20 * time.Second, PermitWithoutStream: true}

// ServerOptions are the options of an agent's server whose clients may vanish: one that
// answers nothing for so long is taken for dead, and its changes are put back.
func ServerOptions(deadAfter time.Duration) []grpc.ServerOption {
	return serverOptions(deadAfter, 0)
}

// serverOptions leaves idle connections alone when idle is 0.
func serverOptions(deadAfter, idle time.Duration) []grpc.ServerOption {
	return append(agent.ServerOptions(),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: deadAfter / 2, Timeout: deadAfter / 2, MaxConnectionIdle: idle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientKeepalive.Time / 2, PermitWithoutStream: true}))
}
