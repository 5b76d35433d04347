package connect_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// hop is a server as proxy_jump names it.
func (s *sshServer) hop() string { return "jump@" + s.address }

// TestProxyJump checks a host behind two jump hosts: each is asked for the next one
// only, and each one's key is checked.
func TestProxyJump(t *testing.T) {
	newHome(t)
	target := newSSHServer(t, nil)
	sameKey := func(s *sshServer) { s.config.PublicKeyCallback = target.config.PublicKeyCallback }
	first, second := newSSHServer(t, sameKey), newSSHServer(t, sameKey)
	way := target.way() // host_key is of the target
	way.ProxyJump, way.ProxyJumpPrivateKey = first.hop()+", "+second.hop(), target.clientPEM
	way.KnownHostsFile = knownHosts(t, first, second)
	reaches(t, way)
	for _, test := range []struct {
		name     string
		server   *sshServer
		users    []string
		forwards []string
	}{
		{"first", first, []string{"jump"}, []string{second.address}},
		{"second", second, []string{"jump"}, []string{target.address}},
		{"target", target, []string{"svc"}, nil},
	} {
		users, forwards := test.server.seen()
		if diff := cmp.Diff(test.users, users); diff != "" {
			t.Errorf("users of the %s (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(test.forwards, forwards); diff != "" {
			t.Errorf("forwards of the %s (-want +got):\n%s", test.name, diff)
		}
		if connections, _ := test.server.counts(); connections != 1 {
			t.Errorf("%d connections to the %s, want 1", connections, test.name)
		}
	}

	t.Run("unknown jump host", func(t *testing.T) {
		way := way
		way.KnownHostsFile = knownHosts(t, first)
		refuses(t, way, options, connect.HostKey, "jump host "+second.address, "\n  "+second.knownLine(second.hostKeys[0]))
		if connections, _ := target.counts(); connections != 1 {
			t.Error("the target was reached through a host that is not known")
		}
	})
	t.Run("the target's key on a jump host does not count", func(t *testing.T) {
		way := way
		way.HostKey = line(first.hostKeys[0])
		way.KnownHostsFile = knownHosts(t, second)
		refuses(t, way, options, connect.HostKey, "jump host "+first.address)
	})
	t.Run("another target behind the jump hosts", func(t *testing.T) {
		way := way
		way.HostKey = line(first.hostKeys[0])
		refuses(t, way, options, connect.HostKey, target.address)
	})
	t.Run("unreachable jump host", func(t *testing.T) {
		l := newListener(t)
		gone := l.Addr().String()
		_ = l.Close() // no one listens from here on
		way := way
		way.ProxyJump = gone
		refuses(t, way, options, connect.Unreachable, "nothing answers at "+gone)
		way.ProxyJump = first.hop() + "," + gone
		refuses(t, way, options, connect.Unreachable, "nothing answers at "+gone, "through "+first.address)
	})
	t.Run("no jump host", func(t *testing.T) {
		for _, text := range []string{",", "a,,b", "jump@", "a:0", "a:70000", "a:ssh"} {
			way := way
			way.ProxyJump = text
			refuses(t, way, options, connect.Settings, "proxy_jump")
		}
	})
}

// TestJumpHostThatVanishes checks that a jump host which goes away in the middle of the
// target's handshake is not waited for without end.
func TestJumpHostThatVanishes(t *testing.T) {
	newHome(t)
	frozen := make(chan struct{})
	jump := newSSHServer(t, func(s *sshServer) {
		s.wrap = func(c net.Conn) net.Conn { return freezable(c, frozen) }
	})
	var once sync.Once
	target := newSSHServer(t, func(s *sshServer) {
		s.config.PublicKeyCallback = jump.config.PublicKeyCallback
		s.wrap = func(c net.Conn) net.Conn {
			once.Do(func() { close(frozen) })
			return c
		}
	})
	way := target.way()
	way.ProxyJumpPrivateKey = jump.clientPEM
	way.ProxyJump, way.KnownHostsFile = jump.hop(), knownHosts(t, jump)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := connect.DialSSH(t.Context(), host, way, options.WithPatience(500*time.Millisecond))
		if err == nil {
			t.Error("there is a connection")
			_ = conn.Close() // the test has failed
		}
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it still waits")
	}
}

// TestManyThroughOneJumpHost has a run reach many hosts through a jump host that hangs
// up when more than nine callers are not logged in, as a stock sshd does, and on the
// first ones whatever they do.
func TestManyThroughOneJumpHost(t *testing.T) {
	newHome(t)
	target := newSSHServer(t, nil)
	var mu sync.Mutex
	coming, most, hungUp := 0, 0, 0
	jump := newSSHServer(t, func(s *sshServer) {
		s.config.PublicKeyCallback = target.config.PublicKeyCallback
		s.wrap = func(c net.Conn) net.Conn {
			mu.Lock()
			defer mu.Unlock()
			if coming >= 9 || hungUp < 2 {
				hungUp++
				_ = c.Close() // what is refused is not served
				return c
			}
			coming++
			most = max(most, coming)
			return c
		}
		s.config.AuthLogCallback = func(_ ssh.ConnMetadata, _ string, err error) {
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				coming--
			}
		}
	})
	way := target.way()
	way.ProxyJump, way.ProxyJumpPrivateKey, way.HostKey = jump.hop(), target.clientPEM, ""
	way.KnownHostsFile = knownHosts(t, target, jump)
	var hosts sync.WaitGroup
	for range 30 {
		hosts.Go(func() {
			c, err := connect.DialSSH(t.Context(), host, way, options)
			if err != nil {
				t.Error(err)
				return
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	hosts.Wait()
	mu.Lock()
	defer mu.Unlock()
	t.Logf("at most %d logged in at once, and %d were hung up on", most, hungUp)
	if hungUp < 2 {
		t.Error("nobody was hung up on")
	}
}

// TestAServerThatHangsUp ends the connection whenever it is called, which is no reason
// to call it for ever.
func TestAServerThatHangsUp(t *testing.T) {
	newHome(t)
	var calls atomic.Int32
	s := newSSHServer(t, func(s *sshServer) {
		s.wrap = func(c net.Conn) net.Conn {
			calls.Add(1)
			_ = c.Close() // what is refused is not served
			return c
		}
	})
	refuses(t, s.way(), options, connect.Unreachable, s.address, "hung up")
	if n := calls.Load(); n < 2 || n > 5 {
		t.Errorf("it was called %d times", n)
	}
}
