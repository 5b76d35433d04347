package connect_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// recorder is an SSH server that writes down all that it is sent to be let in, and asks
// for whatever it likes.
type recorder struct {
	*sshServer
	mu   sync.Mutex
	sent []string // such as "password hunter2"
}

func (r *recorder) record(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, what)
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

// question is what a server asks besides or instead of a password.
type question struct {
	texts []string
	echos []bool
}

// newRecorder starts a server that asks questions, one after the other, and lets in who
// comes with one of the keys.
func newRecorder(t *testing.T, lets []ssh.PublicKey, asks ...question) *recorder {
	t.Helper()
	r := &recorder{}
	nobody := errors.New("not you")
	r.sshServer = newSSHServer(t, func(s *sshServer) {
		s.config.MaxAuthTries = 50
		s.config.PasswordCallback = func(_ ssh.ConnMetadata, given []byte) (*ssh.Permissions, error) {
			r.record("password " + string(given))
			return nil, nobody
		}
		s.config.PublicKeyCallback = func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			r.record("key " + ssh.FingerprintSHA256(key))
			if slices.ContainsFunc(lets, func(k ssh.PublicKey) bool { return string(k.Marshal()) == string(key.Marshal()) }) {
				return nil, nil
			}
			return nil, nobody
		}
		s.config.KeyboardInteractiveCallback = func(_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			for _, q := range asks {
				answers, err := ask("", "", q.texts, q.echos)
				for _, a := range answers {
					r.record("answer " + a)
				}
				if err != nil {
					return nil, err
				}
			}
			return nil, nobody
		}
	})
	return r
}

// interrogations are what servers ask to come by a password.
var interrogations = map[string][]question{
	"a password":      {{[]string{"Password: "}, []bool{false}}},
	"in the open":     {{[]string{"Favourite colour: "}, []bool{true}}},
	"many at once":    {{[]string{"Password: ", "Again: ", "Code: "}, []bool{false, false, false}}},
	"one after other": {{[]string{"Password: "}, []bool{false}}, {[]string{"Code: "}, []bool{false}}, {[]string{"Colour: "}, []bool{true}}},
	"after a notice":  {{nil, nil}, {[]string{"Password: "}, []bool{false}}},
}

// TestJumpHostIsSentNothingOfTheHost has a jump host of somebody else ask for everything,
// while the host behind it has every way to be let in.
func TestJumpHostIsSentNothingOfTheHost(t *testing.T) {
	of := func(secret any) string { return "key " + ssh.FingerprintSHA256(signer(t, secret).PublicKey()) }
	for asked, questions := range interrogations {
		for _, test := range []struct {
			name string
			way  func(t *testing.T, home string, w *connect.SSH, hostKey, ownKey any)
			// lets tells whether the jump host's own key is there, and config what ssh_config
			// says of it.
			lets   bool
			config string
		}{
			{"password", func(_ *testing.T, _ string, w *connect.SSH, _, _ any) { w.Password = password }, false, ""},
			{"private_key", func(t *testing.T, _ string, w *connect.SSH, k, _ any) {
				w.Password, w.PrivateKey = password, keyPEM(t, k, "")
			}, false, ""},
			{"private_key_file", func(t *testing.T, home string, w *connect.SSH, k, _ any) {
				w.Password, w.PrivateKeyFile = password, write(t, keyPEM(t, k, ""), home, "deploy")
			}, false, ""},
			{"no agent is to be asked", func(t *testing.T, _ string, w *connect.SSH, k, _ any) {
				w.Password, w.UseAgent = password, new(false)
				t.Setenv("SSH_AUTH_SOCK", newAgent(t, k))
			}, false, ""},
			{"the agent has both, the file says which", func(t *testing.T, home string, w *connect.SSH, k, own any) {
				w.Password, w.UseAgent = password, new(true)
				t.Setenv("SSH_AUTH_SOCK", newAgent(t, k, own))
				write(t, line(signer(t, own)), home, "bastion.pub")
			}, true, "IdentityFile ~/bastion\n  IdentitiesOnly yes"},
			{"a file of its own", func(t *testing.T, home string, w *connect.SSH, k, own any) {
				w.Password, w.PrivateKey = password, keyPEM(t, k, "")
				write(t, keyPEM(t, own, ""), home, "bastion")
			}, true, "IdentityFile ~/bastion"},
			{"proxy_jump_private_key", func(t *testing.T, _ string, w *connect.SSH, k, own any) {
				w.Password, w.PrivateKey, w.ProxyJumpPrivateKey = password, keyPEM(t, k, ""), keyPEM(t, own, "")
			}, true, ""},
		} {
			t.Run(asked+"/"+test.name, func(t *testing.T) {
				home := newHome(t)
				own := newSecret(t)
				target := newSSHServer(t, nil)
				bastion := newRecorder(t, []ssh.PublicKey{signer(t, own).PublicKey()}, questions...)
				way := target.way()
				way.PrivateKey, way.ProxyJump = "", "alice@bastion"
				way.KnownHostsFile = knownHosts(t, bastion.sshServer)
				test.way(t, home, &way, target.client, own)
				config := fmt.Sprintf("Host bastion\n  HostName 127.0.0.1\n  Port %d\n", bastion.port)
				if test.config != "" {
					config += "  " + test.config + "\n"
				}
				write(t, config, home, ".ssh", "config")
				if test.lets {
					reaches(t, way)
				} else {
					err := refusal(t, way, options, connect.Authentication, "jump host "+bastion.address, "proxy_jump_private_key")
					if strings.Contains(err.Error(), password) {
						t.Errorf("the message holds the password: %v", err)
					}
				}
				for _, sent := range bastion.take() {
					if sent != of(own) {
						t.Errorf("the jump host was sent: %s", sent)
					}
				}
				if asked := bastion.requests(); len(asked) > 0 {
					t.Errorf("the jump host was asked for %q", asked)
				}
			})
		}
	}
}

// TestPasswordAnswersOneQuestion has the host itself ask. It may have the password, once
// by each method that there is for it; it gets no answer to anything else.
func TestPasswordAnswersOneQuestion(t *testing.T) {
	for asked, questions := range interrogations {
		t.Run(asked, func(t *testing.T) {
			newHome(t)
			h := newRecorder(t, nil, questions...)
			way := h.way()
			way.PrivateKey, way.Password = "", password
			want, says := []string{"password " + password}, "asks "
			switch asked {
			case "a password", "after a notice":
				want, says = append(want, "answer "+password), "does not let user"
			case "one after other":
				want, says = append(want, "answer "+password), "asks a second question (\"Code: \")"
			case "in the open":
				says = "asks a question whose answer would be shown (\"Favourite colour: \")"
			case "many at once":
				says = "asks 3 questions at once"
			}
			err := refusal(t, way, options, connect.Authentication, says, h.address)
			if strings.Contains(err.Error(), password) {
				t.Errorf("the message holds the password: %v", err)
			}
			if sent := h.take(); !slices.Equal(sent, want) {
				t.Errorf("it was sent %q, want %q", sent, want)
			}
		})
	}
}
