package connect_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/agent/agentpb"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// sshServer is an SSH server in this process. Every command starts an agent and there
// are no subsystems, unless a test wants it otherwise.
type sshServer struct {
	config    ssh.ServerConfig
	hostKeys  []ssh.Signer
	exec      func(command string, c ssh.Channel) (exit int)
	subsystem map[string]func(ssh.Channel)
	// refuses is why no session is opened.
	refuses string
	// unanswered is the kind of request that gets no answer: session, subsystem or exec.
	unanswered string
	// wrap is put around connections.
	wrap func(net.Conn) net.Conn

	address   string
	port      int
	client    ed25519.PrivateKey // it lets in
	clientPEM string

	mu          sync.Mutex
	open        []net.Conn
	connections int
	sessions    int
	asked       []string // such as "exec gpu-agent serve --stdio"
	users       []string
	forwards    []string
}

// newSSHServer starts a server that lets in one key.
func newSSHServer(t *testing.T, change func(*sshServer)) *sshServer {
	t.Helper()
	s := &sshServer{
		hostKeys: []ssh.Signer{signer(t, newSecret(t))}, client: newSecret(t),
		exec: func(_ string, c ssh.Channel) int { return serveAgent(c) },
	}
	s.clientPEM = keyPEM(t, s.client, "")
	authorized := signer(t, s.client).PublicKey()
	s.config.PublicKeyCallback = func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(authorized.Marshal()) {
			return nil, errors.New("another key")
		}
		return nil, nil
	}
	if change != nil {
		change(s)
	}
	for _, key := range s.hostKeys {
		s.config.AddHostKey(key)
	}
	l := newListener(t)
	s.address = l.Addr().String()
	s.port = portOf(t, s.address)
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(raw)
		}
	}()
	t.Cleanup(s.hangUp)
	return s
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// hangUp ends all connections.
func (s *sshServer) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		_ = c.Close() // the client may have closed it
	}
}

func (s *sshServer) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *sshServer) serve(raw net.Conn) {
	if s.wrap != nil {
		raw = s.wrap(raw)
	}
	s.note(func() { s.connections, s.open = s.connections+1, append(s.open, raw) })
	defer func() { _ = raw.Close() }() // the client may have closed it
	conn, channels, requests, err := ssh.NewServerConn(raw, &s.config)
	if err != nil {
		return // it is the client that is tested
	}
	s.note(func() { s.users = append(s.users, conn.User()) })
	go ssh.DiscardRequests(requests)
	for c := range channels {
		switch {
		case c.ChannelType() == "direct-tcpip":
			go s.forward(c)
		case s.refuses != "":
			_ = c.Reject(ssh.Prohibited, s.refuses)
		case s.unanswered == "session":
		default:
			go s.session(c)
		}
	}
}

// forward is what a jump host does.
func (s *sshServer) forward(c ssh.NewChannel) {
	var to struct {
		Host   string
		Port   uint32
		From   string
		FromAt uint32
	}
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	address := net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
	s.note(func() { s.forwards = append(s.forwards, address) })
	out, err := net.Dial("tcp", address) //nolint:noctx // on this machine
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer func() { _ = out.Close() }() // the other end may have closed it
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	go func() {
		_, _ = io.Copy(out, channel) // its end counts
		_ = out.Close()
	}()
	_, _ = io.Copy(channel, out)
	_ = channel.Close()
}

func (s *sshServer) session(c ssh.NewChannel) {
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	s.note(func() { s.sessions++ })
	started := false
	for r := range requests {
		var named struct{ Name string }
		if err := ssh.Unmarshal(r.Payload, &named); err != nil {
			continue
		}
		s.note(func() { s.asked = append(s.asked, r.Type+" "+named.Name) })
		if r.Type == s.unanswered {
			continue
		}
		run := s.subsystem[named.Name]
		if r.Type == "exec" {
			run = func(c ssh.Channel) {
				exit := s.exec(named.Name, c)
				_, _ = c.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(exit)})) // the client may be gone
			}
		}
		ok := run != nil && !started && (r.Type == "exec" || r.Type == "subsystem")
		if r.WantReply {
			_ = r.Reply(ok, nil) // the client may be gone
		}
		if ok {
			started = true
			go func() {
				run(channel)
				_ = channel.Close()
			}()
		}
	}
}

// counts are the connections and sessions so far.
func (s *sshServer) counts() (connections, sessions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections, s.sessions
}

func (s *sshServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *sshServer) seen() (users, forwards []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.users), slices.Clone(s.forwards)
}

// way reaches the server with the client's key.
func (s *sshServer) way() connect.SSH {
	return connect.SSH{
		Address: "127.0.0.1", Port: s.port, User: "svc", PrivateKey: s.clientPEM,
		HostKey: line(s.hostKeys[0]),
	}
}

// line is a public key as authorized_keys has it.
func line(key ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
}

// serveAgent is an agent on a channel.
func serveAgent(c ssh.Channel) int { return serveProtocol(c, agent.Protocol) }

func serveProtocol(c ssh.Channel, protocol int) int {
	g := grpc.NewServer(connect.ServerOptions(connect.DefaultDeadAfter)...)
	agentpb.RegisterAgentServer(g, otherAgent{protocol: protocol})
	if err := connect.ServeStdio(context.Background(), c, c, g); err != nil {
		return 1
	}
	return 0
}

// says writes a text to the standard output and error and ends with a status.
func says(out, stderr string, exit int) func(string, ssh.Channel) int {
	return func(_ string, c ssh.Channel) int {
		_, _ = io.WriteString(c, out) // the client may be gone
		_, _ = io.WriteString(c.Stderr(), stderr)
		return exit
	}
}

// hangs waits for the end of its input.
func hangs(_ string, c ssh.Channel) int {
	_, _ = io.Copy(io.Discard, c) // its end counts
	return 0
}

func newSecret(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// keyPEM is a key as ssh-keygen writes it.
func keyPEM(t *testing.T, secret any, passphrase string) string {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(secret, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(secret, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func signer(t *testing.T, secret any) ssh.Signer {
	t.Helper()
	s, err := ssh.NewSignerFromKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newHome gives this process a home directory of its own, without an SSH agent.
func newHome(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("USERPROFILE", dir)
	t.Setenv("SSH_AUTH_SOCK", "")
	return dir
}

// write writes a file, with the directories that it needs.
func write(t *testing.T, text string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// reaches connects and hangs up.
func reaches(t *testing.T, way connect.SSH) {
	t.Helper()
	conn, err := connect.DialSSH(t.Context(), host, way, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// refuses checks that there is no connection, and what the error tells.
func refuses(t *testing.T, way connect.SSH, o connect.Options, code connect.Code, says ...string) {
	t.Helper()
	_ = refusal(t, way, o, code, says...) // what it says was checked
}

// refusal is the error of refuses.
func refusal(t *testing.T, way connect.SSH, o connect.Options, code connect.Code, says ...string) error {
	t.Helper()
	conn, err := connect.DialSSH(t.Context(), host, way, o)
	if err == nil {
		_ = conn.Close() // the test has failed
		t.Fatal("there is a connection")
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e.Code != code || e.Host != host {
		t.Fatalf("%v\nwant a connect.Error with code %s for %s", err, code, host)
	}
	if e.Fix == "" && code != connect.Ended {
		t.Errorf("no fix: %v", err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v\ndoes not say %q", err, text)
		}
	}
	return err
}
