package connect_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

const password = "correct horse battery staple"

// newAgent is an SSH agent with keys, and tells where it listens.
func newAgent(t *testing.T, secrets ...any) (socket string) {
	t.Helper()
	ring := agent.NewKeyring()
	for _, secret := range secrets {
		if err := ring.Add(agent.AddedKey{PrivateKey: secret}); err != nil {
			t.Fatal(err)
		}
	}
	return listenAsAgent(t, func(c net.Conn) {
		_ = agent.ServeAgent(ring, c) // it ends with the connection
	})
}

func listenAsAgent(t *testing.T, serve func(net.Conn)) (socket string) {
	t.Helper()
	// A socket's path may have some hundred characters, and a test's directory has more.
	dir, err := os.MkdirTemp("", "agent") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket = filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // it may be closed
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				serve(c)
				_ = c.Close() // the client may have closed it
			}()
		}
	}()
	return socket
}

// onlyPassword lets nobody in with a key.
func onlyPassword(s *sshServer) {
	s.config.PublicKeyCallback = nil
	s.config.PasswordCallback = func(_ ssh.ConnMetadata, given []byte) (*ssh.Permissions, error) {
		if string(given) != password {
			return nil, errors.New("another password")
		}
		return nil, nil
	}
}

// onlyQuestions asks for the password as PAM does.
func onlyQuestions(s *sshServer) {
	s.config.PublicKeyCallback = nil
	s.config.KeyboardInteractiveCallback = func(_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
		answers, err := ask("", "", []string{"Password: "}, []bool{false})
		if err != nil || !slices.Equal(answers, []string{password}) {
			return nil, errors.New("another password")
		}
		if _, err := ask("", "Welcome", nil, nil); err != nil {
			return nil, err
		}
		return nil, nil
	}
}

// TestLogin checks every way to log in that a server may ask for.
func TestLogin(t *testing.T) {
	for _, test := range []struct {
		name   string
		server func(*sshServer)
		way    func(t *testing.T, home string, w *connect.SSH, s *sshServer)
	}{
		{"key", nil, func(*testing.T, string, *connect.SSH, *sshServer) {}},
		{"file with a key", nil, func(t *testing.T, home string, w *connect.SSH, s *sshServer) {
			w.PrivateKey, w.PrivateKeyFile = "", "~/"+filepath.Base(write(t, s.clientPEM, home, "key"))
		}},
		{"password", onlyPassword, func(_ *testing.T, _ string, w *connect.SSH, _ *sshServer) { w.PrivateKey, w.Password = "", password }},
		{
			"password, asked for", onlyQuestions, func(_ *testing.T, _ string, w *connect.SSH, _ *sshServer) {
				w.PrivateKey, w.Password = "", password
			},
		},
		{
			"a key is tried before the password", onlyPassword, func(_ *testing.T, _ string, w *connect.SSH, _ *sshServer) { w.Password = password },
		},
		{"SSH agent", nil, func(t *testing.T, _ string, w *connect.SSH, s *sshServer) {
			w.PrivateKey = ""
			t.Setenv("SSH_AUTH_SOCK", newAgent(t, newSecret(t), s.client))
		}},
		{"SSH agent beside a key", nil, func(t *testing.T, _ string, w *connect.SSH, s *sshServer) {
			w.PrivateKey, w.UseAgent = keyPEM(t, newSecret(t), ""), new(true)
			t.Setenv("SSH_AUTH_SOCK", newAgent(t, s.client))
		}},
		{"SSH agent with what the locked key is", nil, func(t *testing.T, home string, w *connect.SSH, s *sshServer) {
			w.PrivateKey, w.UseAgent = "", new(true)
			w.PrivateKeyFile = write(t, keyPEM(t, s.client, "secret"), home, "locked")
			t.Setenv("SSH_AUTH_SOCK", newAgent(t, s.client))
		}},
		{"an SSH agent that is gone does not matter", nil, func(t *testing.T, home string, w *connect.SSH, s *sshServer) {
			w.PrivateKey = ""
			write(t, s.clientPEM, home, ".ssh", "id_ed25519")
			t.Setenv("SSH_AUTH_SOCK", filepath.Join(home, "gone"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := newHome(t)
			s := newSSHServer(t, test.server)
			way := s.way()
			test.way(t, home, &way, s)
			reaches(t, way)
		})
	}
}

// TestNoLogin checks that an error says what was tried, and no secret.
func TestNoLogin(t *testing.T) {
	file := write(t, keyPEM(t, newSecret(t), ""), t.TempDir(), "key")
	for _, test := range []struct {
		name   string
		server func(*sshServer)
		way    func(t *testing.T, home string, w *connect.SSH)
		says   []string
	}{
		{
			"another key", nil, func(t *testing.T, _ string, w *connect.SSH) { w.PrivateKey = keyPEM(t, newSecret(t), "") },
			[]string{"tried: the private key"},
		},
		{
			"another file", nil, func(_ *testing.T, _ string, w *connect.SSH) { w.PrivateKey, w.PrivateKeyFile = "", file }, []string{"key " + file},
		},
		{
			"another password", onlyPassword, func(_ *testing.T, _ string, w *connect.SSH) { w.PrivateKey, w.Password = "", "hunter2" },
			[]string{"tried: the password"},
		},
		{
			"another answer", onlyQuestions, func(_ *testing.T, _ string, w *connect.SSH) { w.PrivateKey, w.Password = "", "hunter2" },
			[]string{"tried: the password"},
		},
		{"an agent with other keys", nil, func(t *testing.T, _ string, w *connect.SSH) {
			w.PrivateKey = ""
			t.Setenv("SSH_AUTH_SOCK", newAgent(t, newSecret(t), newSecret(t)))
		}, []string{"the SSH agent with 2 keys"}},
		{"nothing", nil, func(_ *testing.T, _ string, w *connect.SSH) { w.PrivateKey = "" }, []string{"tried: nothing"}},
		{"a locked key and an agent that is gone", nil, func(t *testing.T, home string, w *connect.SSH) {
			w.PrivateKey = ""
			write(t, keyPEM(t, newSecret(t), "hunter2"), home, ".ssh", "id_ed25519")
			t.Setenv("SSH_AUTH_SOCK", filepath.Join(home, "gone"))
		}, []string{"id_ed25519, which is encrypted with a passphrase", "not the SSH agent, which does not answer"}},
		{"too many keys", func(s *sshServer) { s.config.MaxAuthTries = 1 }, func(t *testing.T, _ string, w *connect.SSH) {
			w.PrivateKey = ""
			t.Setenv("SSH_AUTH_SOCK", newAgent(t, newSecret(t), newSecret(t), newSecret(t)))
		}, []string{"the SSH agent with 3 keys", "too many authentication failures"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := newHome(t)
			s := newSSHServer(t, test.server)
			way := s.way()
			test.way(t, home, &way)
			err := refusal(t, way, options, connect.Authentication, append(test.says, `"svc"`, s.address)...)
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("the message holds a secret: %v", err)
			}
			if _, sessions := s.counts(); sessions != 0 {
				t.Error("it was let in")
			}
		})
	}
}

// TestKeysThatCannotBeUsed checks that the host is not asked with half of what was
// wanted.
func TestKeysThatCannotBeUsed(t *testing.T) {
	home := newHome(t)
	s := newSSHServer(t, nil)
	locked := keyPEM(t, s.client, "hunter2")
	for _, test := range []struct {
		name string
		way  func(t *testing.T, w *connect.SSH)
		says []string
	}{
		{
			"an encrypted key", func(_ *testing.T, w *connect.SSH) { w.PrivateKey = locked },
			[]string{"private_key is encrypted", "SSH agent", "use_agent = true"},
		},
		{"a file with an encrypted key", func(t *testing.T, w *connect.SSH) {
			w.PrivateKey, w.PrivateKeyFile = "", write(t, locked, home, "locked")
		}, []string{"locked is encrypted", "use_agent = true"}},
		{"no key", func(_ *testing.T, w *connect.SSH) { w.PrivateKey = "hunter2" }, []string{"private_key cannot be used"}},
		{
			"no file", func(_ *testing.T, w *connect.SSH) { w.PrivateKey, w.PrivateKeyFile = "", "~/absent" },
			[]string{filepath.Join(home, "absent")},
		},
		{
			"a key for the name of a file", func(_ *testing.T, w *connect.SSH) { w.PrivateKey, w.PrivateKeyFile = "", s.clientPEM },
			[]string{"private_key_file"},
		},
		{"no SSH agent", func(t *testing.T, w *connect.SSH) {
			w.UseAgent = new(true)
			t.Setenv("SSH_AUTH_SOCK", filepath.Join(home, "gone"))
		}, []string{"SSH agent does not answer", "gone", "use_agent = false"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			way := s.way()
			test.way(t, &way)
			err := refusal(t, way, options, connect.Settings, test.says...)
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "BEGIN") {
				t.Errorf("the message holds a secret: %v", err)
			}
		})
	}
	if connections, _ := s.counts(); connections != 0 {
		t.Errorf("%d connections were made", connections)
	}
}

// TestSilentAgent checks that an SSH agent which waits for its user is not waited for
// without end.
func TestSilentAgent(t *testing.T) {
	newHome(t)
	s := newSSHServer(t, nil)
	t.Setenv("SSH_AUTH_SOCK", listenAsAgent(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); <-t.Context().Done() }))
	way := s.way()
	way.UseAgent = new(true)
	begun := time.Now()
	refuses(t, way, options.WithPatience(300*time.Millisecond), connect.Settings, "SSH agent does not answer")
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("it took %s", took)
	}
}
