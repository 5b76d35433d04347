package connect_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// TestDeadSSHHost checks that a client notices that its host, or the jump host before
// it, has vanished, that calls then say so, and that closing does not wait for it.
func TestDeadSSHHost(t *testing.T) {
	newHome(t)
	const beat = 600 * time.Millisecond // a living host on a busy machine answers one in three
	for _, dead := range []string{"host", "jump host"} {
		t.Run(dead, func(t *testing.T) {
			frozen := make(chan struct{})
			freeze := func(s *sshServer) {
				s.wrap = func(c net.Conn) net.Conn { return freezable(c, frozen) }
			}
			var target, jump *sshServer
			if dead == "host" {
				target = newSSHServer(t, freeze)
			} else {
				target = newSSHServer(t, nil)
				jump = newSSHServer(t, func(s *sshServer) {
					freeze(s)
					s.config.PublicKeyCallback = target.config.PublicKeyCallback
				})
			}
			way := target.way()
			if jump != nil {
				way.ProxyJump, way.ProxyJumpPrivateKey, way.KnownHostsFile = jump.hop(), way.PrivateKey, knownHosts(t, jump)
			}
			conn, err := connect.DialSSH(t.Context(), host, way, options.WithBeat(beat))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }() // it is dead
			select {
			case <-conn.Done():
				t.Fatal("a living host is taken for dead")
			case <-time.After(5 * beat):
			}
			close(frozen)
			begun := time.Now()
			select {
			case <-conn.Done():
			case <-time.After(patience):
				t.Fatal("the client does not notice that its host is dead")
			}
			if took := time.Since(begun); took > 50*beat {
				t.Errorf("it took %s, with a sign of life every %s", took, beat)
			}
			_, err = agent.NewClient(conn, host).Inventory(t.Context())
			if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.Unavailable {
				t.Errorf("%v, want an agent.Error of kind unavailable", err)
			}
		})
	}
}
