package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// SSH is a host whose sshd starts the agent.
type SSH struct {
	Address string // a name, an IP address or an alias of ssh_config
	Port    int    // 0: ssh_config, then 22
	User    string // "": ssh_config, then this process's user
	// PrivateKey is a key itself (PEM), PrivateKeyFile where it lies.
	PrivateKey, PrivateKeyFile string
	Password                   string
	// UseAgent says whether an SSH agent is asked for keys. Nil: unless a key or a
	// password is given.
	UseAgent *bool
	// KnownHostsFile takes the place of ssh_config's and OpenSSH's own.
	KnownHostsFile string
	// HostKey is the host's public key, or its fingerprint (SHA256:...). With it no
	// known_hosts file is read for this host.
	HostKey string
	// ProxyJump is a list of [user@]host[:port], separated by commas.
	ProxyJump string
	// Sudo starts the agent with sudo -n.
	Sudo bool
	// AgentPath is the agent on the host; "" means gpu-agent, found by the shell.
	AgentPath string
	// Upload brings the agent to a host that has none. Nil: it does not.
	Upload *Upload
}

const (
	subsystem        = "gpu-agent"
	defaultAgentPath = "gpu-agent"
	keepaliveEvery   = 15 * time.Second
	keepaliveMisses  = 3
)

// DialSSH connects to a host, starts the agent in one session, and speaks with it over
// that session's standard input and output.
func DialSSH(ctx context.Context, host string, s SSH, o Options) (*Conn, error) {
	command, err := s.command(host)
	if err != nil {
		return nil, err
	}
	client, err := s.dial(ctx, host, o.wait())
	if err != nil {
		return nil, err
	}
	conn, err := s.start(ctx, host, client, command, o)
	var ce *Error
	if errors.As(err, &ce) && ce.Kind == NoAgent && s.Upload != nil {
		conn, err = s.upload(ctx, host, client, o)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	conn.close = func() error {
		client.Close()
		return nil
	}
	return conn, nil
}

// upload installs the agent and starts it.
func (s SSH) upload(ctx context.Context, host string, client *sshClient, o Options) (*Conn, error) {
	path, err := s.Upload.install(ctx, host, client.Client)
	if err != nil {
		return nil, err
	}
	s.AgentPath = path
	command, err := s.command(host)
	if err != nil {
		return nil, err
	}
	return s.start(ctx, host, client, command, o)
}

// Paths are checked and not quoted by rules of shells: which shell the host has is not
// known.
var (
	plainPath  = regexp.MustCompile(`^[A-Za-z0-9_./:+~@-]+$`)
	quotedPath = regexp.MustCompile(`^[A-Za-z0-9_./:+~@() \\-]+$`)
)

// ValidAgentPath tells whether a path may be used in a command on the host.
func ValidAgentPath(path string) bool { return quotedPath.MatchString(path) && path[0] != '-' }

func (s SSH) command(host string) (string, error) {
	command, err := s.invoke(host, "serve --stdio")
	if err == nil && s.Sudo {
		command = "sudo -n -- " + command
	}
	return command, err
}

// invoke is the agent's path, as a shell takes it, with constant arguments.
func (s SSH) invoke(host, arguments string) (string, error) {
	path := s.AgentPath
	if path == "" {
		path = defaultAgentPath
	}
	if !ValidAgentPath(path) {
		return "", &Error{Host: host, Kind: Settings, Found: fmt.Sprintf("agent_path is %q", path), Fix: "use a path of letters, digits and _ . / \\ : + ~ @ ( ) - and spaces"}
	}
	if !plainPath.MatchString(path) {
		path = `"` + path + `"`
	}
	return path + " " + arguments, nil
}

// start opens a session and starts the agent: as the subsystem gpu-agent if the host
// has one, else by command. A host's forced command takes the place of both.
func (s SSH) start(ctx context.Context, host string, client *sshClient, command string, o Options) (*Conn, error) {
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		return nil, &Error{Host: host, Kind: Unreachable, Found: "the host opened no session", Err: err, Fix: "look at MaxSessions and at the host's log"}
	}
	sess := newSession(channel, requests)
	ok, err := channel.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{subsystem}))
	if err == nil && !ok {
		// Only one request of a channel can succeed, so another one may follow.
		ok, err = channel.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{command}))
	}
	if err != nil || !ok {
		_ = channel.Close() // the first error counts
		if err == nil {
			err = errors.New("the host refused to run a command")
		}
		return nil, &Error{Host: host, Kind: Blocked, Found: "the agent could not be started", Err: err, Fix: "see what the host allows this user (ForceCommand, the key's restrictions)"}
	}
	return overStdio(ctx, host, sess, sess.stdin(), sess.ended, o)
}

// session is one session channel with what its process says when it ends.
type session struct {
	ssh.Channel
	said   *tail
	exited chan struct{}
	exit   int
	known  bool
}

func newSession(channel ssh.Channel, requests <-chan *ssh.Request) *session {
	s := &session{Channel: channel, said: &tail{}, exited: make(chan struct{})}
	stderr := make(chan struct{})
	go func() {
		defer close(stderr)
		_, _ = io.Copy(s.said, channel.Stderr()) // it ends with the channel
	}()
	go func() {
		defer close(s.exited)
		for r := range requests {
			if r.Type == "exit-status" && len(r.Payload) >= 4 {
				var status struct{ Status uint32 }
				if ssh.Unmarshal(r.Payload, &status) == nil {
					s.exit, s.known = int(status.Status), true
				}
			}
			if r.WantReply {
				_ = r.Reply(false, nil) // the channel may be gone
			}
		}
		<-stderr
	}()
	return s
}

func (s *session) ended() (string, int, bool) {
	select {
	case <-s.exited:
		return s.said.String(), s.exit, s.known
	case <-time.After(exitGrace):
		return s.said.String(), 0, false
	}
}

// stdin is the channel as the process's standard input: closing it is an end of file.
func (s *session) stdin() io.WriteCloser { return channelInput{s.Channel} }

type channelInput struct{ ssh.Channel }

func (c channelInput) Close() error { return c.CloseWrite() }

// sshClient is a connection with the jump hosts that it goes through.
type sshClient struct {
	*ssh.Client
	through []*ssh.Client
	once    sync.Once
	done    chan struct{}
}

// Close ends the connection and those underneath it.
func (c *sshClient) Close() {
	c.once.Do(func() {
		close(c.done)
		_ = c.Client.Close() // the other end may have closed it
		for i := len(c.through) - 1; i >= 0; i-- {
			_ = c.through[i].Close()
		}
	})
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

// dial connects, through jump hosts where there are any.
func (s SSH) dial(ctx context.Context, host string, wait time.Duration) (*sshClient, error) {
	config, err := readSSHConfig()
	if err != nil {
		return nil, &Error{Host: host, Kind: Settings, Found: "the SSH configuration cannot be read", Err: err, Fix: "mend the file"}
	}
	target, err := s.resolve(host, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	out := &sshClient{done: make(chan struct{})}
	next := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	for _, hop := range append(target.jumps, target) {
		client, err := hop.connect(ctx, host, next)
		if err != nil {
			for i := len(out.through) - 1; i >= 0; i-- {
				_ = out.through[i].Close() // the first error counts
			}
			return nil, err
		}
		out.through = append(out.through, client)
		next = func(ctx context.Context, address string) (net.Conn, error) {
			return client.DialContext(ctx, "tcp", address)
		}
	}
	last := len(out.through) - 1
	out.Client, out.through = out.through[last], out.through[:last]
	go out.keepAlive(keepaliveEvery)
	return out, nil
}

// connect opens one connection, over whatever dial gives.
func (e endpoint) connect(ctx context.Context, host string, dial func(context.Context, string) (net.Conn, error)) (*ssh.Client, error) {
	keys, err := e.hostKeys()
	if err != nil {
		return nil, &Error{Host: host, Kind: Settings, Found: "the known hosts cannot be read", Err: err, Fix: "mend the file, or set known_hosts_file or host_key"}
	}
	login, err := e.login(host)
	if err != nil {
		return nil, err
	}
	defer login.close()
	raw, err := dial(ctx, e.address())
	if err != nil {
		return nil, unreachable(host, e.address(), err)
	}
	// The handshake knows no context.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	verified := false
	conn, channels, requests, err := ssh.NewClientConn(raw, e.address(), &ssh.ClientConfig{
		User: e.user, Auth: login.methods, HostKeyAlgorithms: keys.algorithms,
		HostKeyCallback: func(name string, remote net.Addr, key ssh.PublicKey) error {
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
		return nil, unreachable(host, e.address(), ctx.Err())
	case verified && !errors.As(err, &network) && !errors.Is(err, io.EOF):
		return nil, &Error{
			Host: host, Kind: Authentication,
			Found: fmt.Sprintf("%s does not let user %q in; tried: %s", e.address(), e.user, login.tried()),
			Fix:   "see that the user is right, and that one of its authorized_keys is a key that was tried",
		}
	}
	return nil, &Error{Host: host, Kind: Unreachable, Found: "no SSH connection could be made to " + e.address(), Err: err, Fix: "see that sshd answers at this address, and look at its log"}
}

// endpoint is one SSH server with everything that its settings say.
type endpoint struct {
	host           string // address without port
	port           int
	user           string
	keyText        string
	keyFiles       []string // given; each must be there
	defaultKeys    []string // OpenSSH's; those that are there
	password       string
	agentSocket    string // "" when no agent is asked
	knownHosts     []string
	knownHostsSaid bool // by the configuration, so the file must be there
	hostKey        string
	jumps          []endpoint
}

func (e endpoint) address() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// splitJump reads [user@]host[:port].
func splitJump(text string) (user, host string, port int, err error) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "ssh://")
	if at := strings.LastIndex(text, "@"); at >= 0 {
		user, text = text[:at], text[at+1:]
	}
	host = text
	if h, p, splitErr := net.SplitHostPort(text); splitErr == nil {
		host = h
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return "", "", 0, fmt.Errorf("%q is not a port", p)
		}
	}
	host = strings.Trim(host, "[]")
	if host == "" {
		return "", "", 0, errors.New("a jump host has no name")
	}
	return user, host, port, nil
}
