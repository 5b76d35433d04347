package connect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// TestSSH checks what a connection costs the host: one login and one session, which end
// with it.
func TestSSH(t *testing.T) {
	newHome(t)
	for _, test := range []struct {
		name      string
		subsystem bool
		asked     []string
	}{
		{"command", false, []string{"subsystem gpu-agent", "exec gpu-agent serve --stdio"}},
		{"subsystem", true, []string{"subsystem gpu-agent"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ended := make(chan struct{})
			s := newSSHServer(t, func(s *sshServer) {
				run := func(c ssh.Channel) int {
					defer close(ended)
					return serveAgent(c)
				}
				s.exec = func(_ string, c ssh.Channel) int { return run(c) }
				if test.subsystem {
					s.subsystem = map[string]func(ssh.Channel){"gpu-agent": func(c ssh.Channel) { run(c) }}
				}
			})
			conn, err := connect.DialSSH(t.Context(), host, s.way(), options)
			if err != nil {
				t.Fatal(err)
			}
			if conn.Hello.Protocol != agent.Protocol || conn.Hello.AgentVersion != "9.9.9" {
				t.Errorf("the agent says %+v", conn.Hello)
			}
			if diff := cmp.Diff(test.asked, s.requests()); diff != "" {
				t.Errorf("asked of the host (-want +got):\n%s", diff)
			}
			if connections, sessions := s.counts(); connections != 1 || sessions != 1 {
				t.Errorf("%d connections and %d sessions, want one of each", connections, sessions)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("the agent outlives its connection")
			}
			<-conn.Done()
		})
	}
}

// TestCommand checks what a shell on the host is given.
func TestCommand(t *testing.T) {
	newHome(t)
	for _, test := range []struct {
		path string
		sudo bool
		want string
	}{
		{"", false, "gpu-agent serve --stdio"},
		{"", true, "sudo -n -- gpu-agent serve --stdio"},
		{"/opt/gpu-agent/gpu-agent", false, "/opt/gpu-agent/gpu-agent serve --stdio"},
		{"~/bin/gpu-agent", true, "sudo -n -- ~/bin/gpu-agent serve --stdio"},
		{`C:\Program Files (x86)\gpu-agent.exe`, false, `"C:\Program Files (x86)\gpu-agent.exe" serve --stdio`},
	} {
		t.Run(test.want, func(t *testing.T) {
			s := newSSHServer(t, nil)
			way := s.way()
			way.AgentPath, way.Sudo = test.path, test.sudo
			reaches(t, way)
			if got := s.requests(); !slices.Contains(got, "exec "+test.want) {
				t.Errorf("asked %q, want the command %q", got, test.want)
			}
		})
	}
}

// TestBadAgentPath checks that nothing a shell could take for more than a path gets
// near one.
func TestBadAgentPath(t *testing.T) {
	newHome(t)
	s := newSSHServer(t, nil)
	for _, path := range []string{
		"gpu-agent; reboot", "gpu-agent && id", "gpu-agent | sh", "$(id)", "`id`", "$HOME/gpu-agent", `a"b`, "a'b", "a\nb", "a\x00b",
		"*", "a?b", "%COMSPEC%", "a^b", "a!b", "a{b}", "a>b", "a=b", "-rf", "a#b", "ä", "a\u00a0b",
	} {
		way := s.way()
		way.AgentPath = path
		refuses(t, way, options, connect.Settings, "agent_path")
		if connect.ValidAgentPath(path) {
			t.Errorf("%q is called valid", path)
		}
	}
	if connect.ValidAgentPath("") {
		t.Error("an empty path is called valid")
	}
	if connections, _ := s.counts(); connections != 0 {
		t.Errorf("%d connections were made", connections)
	}
}

// TestSessionThatIsNoAgent checks the error for each thing that a session can be
// instead.
func TestSessionThatIsNoAgent(t *testing.T) {
	newHome(t)
	agentAfter := func(text string) func(string, ssh.Channel) int {
		return func(_ string, c ssh.Channel) int {
			_, _ = io.WriteString(c, text) // the client may be gone
			return serveAgent(c)
		}
	}
	for _, test := range []struct {
		name string
		exec func(string, ssh.Channel) int
		code connect.Code
		says []string
	}{
		{
			"not there", says("", "bash: line 1: gpu-agent: command not found\n", 127), connect.NoAgent,
			[]string{"command not found", "127", "upload"},
		},
		{
			"not allowed", says("", "bash: line 1: /opt/gpu-agent: Permission denied\n", 126), connect.Blocked,
			[]string{"Permission denied", "126", "noexec"},
		},
		{
			"another architecture", says("", "bash: line 1: gpu-agent: cannot execute binary file: Exec format error\n", 126),
			connect.WrongPlatform,
			[]string{"Exec format error"},
		},
		{"sudo", says("", "sudo: a password is required\n", 1), connect.Authentication, []string{"NOPASSWD"}},
		{"a locked account", says("This account is currently not available.\n", "", 1), connect.Garbage, []string{"currently not available"}},
		{"an agent that fails", says("", "Error: the state directory is not ours\n", 1), connect.Ended, []string{"not ours", "status 1"}},
		{"a banner", agentAfter("Authorized use only\n"), connect.Garbage, []string{`"Authorized use only\n" before`}},
		{"half a preamble", says(connect.Preamble[:4], "", 0), connect.Ended, []string{"status 0"}},
		{"the end after the preamble", says(connect.Preamble, "panic: out of memory\n", 2), connect.Ended, []string{"out of memory", "status 2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSSHServer(t, func(s *sshServer) { s.exec = test.exec })
			refuses(t, s.way(), options, test.code, test.says...)
			if _, sessions := s.counts(); sessions != 1 {
				t.Errorf("%d sessions, want 1", sessions)
			}
		})
	}
}

// TestHostThatRefuses checks that the words of another machine are quoted, and do
// nothing to a terminal.
func TestHostThatRefuses(t *testing.T) {
	newHome(t)
	s := newSSHServer(t, func(s *sshServer) { s.refuses = "no more sessions \x1b[2J\r\n\u202e" + strings.Repeat("x", 5000) })
	err := refusal(t, s.way(), options, connect.Unreachable, `no more sessions \x1b[2J\r\n\u202e`, "MaxSessions", "(cut)")
	if strings.ContainsAny(err.Error(), "\x1b\r\n\u202e") || len(err.Error()) > 2000 {
		t.Errorf("%q goes to a terminal", err)
	}
}

// TestSilence checks that no host is waited for without end, whatever it does not
// answer, and that the connection is given up.
func TestSilence(t *testing.T) {
	newHome(t)
	const short = 2 * time.Second // for a handshake on a busy machine
	var wg sync.WaitGroup         // they mostly wait
	defer wg.Wait()
	for _, test := range []struct {
		name   string
		change func(*sshServer)
		says   string
	}{
		{"a port that says nothing", func(s *sshServer) {
			s.wrap = func(c net.Conn) net.Conn {
				frozen := make(chan struct{})
				close(frozen)
				return freezable(c, frozen)
			}
		}, "no SSH server"},
		{"no session is opened", func(s *sshServer) { s.unanswered = "session" }, "2s"},
		{"the subsystem is not answered", func(s *sshServer) { s.unanswered = "subsystem" }, "2s"},
		{"the command is not answered", func(s *sshServer) { s.unanswered = "exec" }, "2s"},
		{"the command says nothing", func(s *sshServer) { s.exec = hangs }, "2s"},
		{"the agent does not speak", func(s *sshServer) {
			s.exec = func(_ string, c ssh.Channel) int {
				_, _ = io.WriteString(c, connect.Preamble) // the client may be gone
				return hangs("", c)
			}
		}, "first call"},
	} {
		s := newSSHServer(t, test.change)
		wg.Go(func() {
			t.Run(test.name, func(t *testing.T) {
				begun := time.Now()
				refuses(t, s.way(), options.WithPatience(short), connect.Unreachable, test.says)
				if took := time.Since(begun); took > patience/2 {
					t.Errorf("it took %s", took)
				}
			})
		})
		wg.Go(func() {
			t.Run(test.name+", and the caller gives up", func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), short/4)
				defer cancel()
				begun := time.Now()
				_, err := connect.DialSSH(ctx, host, s.way(), options)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want the error of the caller's context", err)
				}
				if took := time.Since(begun); took > patience/2 {
					t.Errorf("a caller that gave up waited %s", took)
				}
			})
		})
	}
}

// TestNobodyThere checks an address at which nothing listens, and one at which
// something else does.
func TestNobodyThere(t *testing.T) {
	newHome(t)
	s := newSSHServer(t, nil)
	way := s.way()
	l := newListener(t)
	way.Port = portOf(t, l.Addr().String())
	go func() {
		for { // the client comes back, with what the first answer says
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") // the client may be gone
			_ = c.Close()
		}
	}()
	refuses(t, way, options, connect.Unreachable, fmt.Sprintf("127.0.0.1:%d", way.Port))
	_ = l.Close() // no one listens from here on
	refuses(t, way, options, connect.Unreachable, fmt.Sprintf("127.0.0.1:%d", way.Port), "refused")
}

// TestSSHLeavesNothing checks that connections, whether they worked or not, leave no
// goroutine.
func TestSSHLeavesNothing(t *testing.T) {
	newHome(t)
	good := newSSHServer(t, nil)
	jump := newSSHServer(t, func(s *sshServer) { s.config.PublicKeyCallback = good.config.PublicKeyCallback })
	silent := newSSHServer(t, func(s *sshServer) { s.unanswered = "exec" })
	missing := newSSHServer(t, func(s *sshServer) { s.exec = says("", "not found", 127) })
	throughJump := good.way()
	throughJump.ProxyJump, throughJump.ProxyJumpPrivateKey, throughJump.HostKey = jump.hop(), throughJump.PrivateKey, ""
	throughJump.KnownHostsFile = knownHosts(t, good, jump)
	round := func() {
		reaches(t, good.way())
		reaches(t, throughJump)
		refuses(t, silent.way(), options.WithPatience(50*time.Millisecond), connect.Unreachable)
		refuses(t, missing.way(), options, connect.NoAgent)
	}
	round()
	before := stacks()
	for range 3 {
		round()
	}
	var after string
	// goroutines of real connections end by themselves
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if after = stacks(); strings.Count(after, "goroutine ") <= strings.Count(before, "goroutine ") {
			return
		}
	}
	t.Errorf("goroutines stay:\n%s", after)
}
