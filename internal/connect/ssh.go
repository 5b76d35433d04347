package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"golang.org/x/crypto/ssh"
)

// SSH is a host whose sshd starts the agent. Settings have their names in the provider's
// configuration.
type SSH struct {
	Address string `json:"address"` // a name, an IP address or an alias of ssh_config
	Port    int    `json:"port"`    // 0: ssh_config, then 22
	User    string `json:"user"`    // "": ssh_config, then this process's user
	// PrivateKey is a key itself (PEM), PrivateKeyFile where it lies.
	PrivateKey     string `json:"private_key"`
	PrivateKeyFile string `json:"private_key_file"`
	Password       string `json:"password"`
	// UseAgent says whether an SSH agent is asked for keys. Nil: unless a key or a
	// password is given.
	UseAgent *bool `json:"use_agent"`
	// KnownHostsFile takes the place of ssh_config's and OpenSSH's own.
	KnownHostsFile string `json:"known_hosts_file"`
	// HostKey is the host's public key, or its fingerprint (SHA256:...). With it no
	// known_hosts file is read for this host.
	HostKey string `json:"host_key"`
	// ProxyJump is a list of [user@]host[:port], separated by commas. Jump hosts are sent
	// nothing of the above but what KnownHostsFile and UseAgent say: each has the keys that
	// ssh_config and the SSH agent have for it.
	ProxyJump string `json:"proxy_jump"`
	// ProxyJumpPrivateKey is a key itself (PEM), for all jump hosts, where ssh_config and
	// SSH agent are not there.
	ProxyJumpPrivateKey string `json:"proxy_jump_private_key"`
	// Sudo starts the agent with sudo -n.
	Sudo bool `json:"sudo"`
	// AgentPath is the agent on the host; "" means gpu-agent, found by the shell.
	AgentPath string `json:"agent_path"`
	// Upload brings the agent to a host that has none. Nil: it does not. Not with Sudo.
	Upload *Upload `json:"-"`
}

// WhyNoSudoUpload is why an uploaded agent is not started with sudo.
const WhyNoSudoUpload = "an uploaded agent lies where its user can write, so a sudoers rule for it would let that user run anything as root"

const (
	subsystem        = "gpu-agent"
	defaultAgentPath = "gpu-agent"
	sshBeat          = 15 * time.Second
	keepaliveMisses  = 3
)

// DialSSH connects to a host, starts the agent in one session, and speaks with it over
// that session's standard input and output.
func DialSSH(ctx context.Context, host string, s SSH, o Options) (*Conn, error) {
	if s.Sudo && s.Upload != nil {
		return nil, &Error{
			Host: host, Code: Settings, Found: "sudo is set together with upload: " + WhyNoSudoUpload,
			Fix: "install the agent's package on the host, or log in as a user who needs no sudo",
		}
	}
	command, err := s.command(host)
	if err != nil {
		return nil, err
	}
	client, err := s.dial(ctx, host, o)
	if err != nil {
		return nil, err
	}
	conn, err := s.start(ctx, host, client, command, false, o)
	var ce *Error
	if errors.As(err, &ce) && ce.Code == NoAgent && s.Upload != nil {
		conn, err = s.uploaded(ctx, host, client, o)
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
	path, err := quotedAgentPath(host, cmp.Or(s.AgentPath, defaultAgentPath))
	return path + " " + arguments, err
}

// quotedAgentPath is a path as a shell takes it.
func quotedAgentPath(host, path string) (string, error) {
	if !ValidAgentPath(path) {
		return "", &Error{
			Host: host, Code: Settings, Found: fmt.Sprintf("agent_path is %q", path),
			Fix: "use a path of letters, digits and _ . / \\ : + ~ @ ( ) - and spaces",
		}
	}
	if !plainPath.MatchString(path) {
		path = `"` + path + `"`
	}
	return path, nil
}

// start opens a session and starts the agent: as the subsystem gpu-agent if the host
// has one, unless only the command is wanted, else by command. A host's forced command
// takes the place of both.
func (s SSH) start(ctx context.Context, host string, client *sshClient, command string, only bool, o Options) (*Conn, error) {
	inTime := client.within(ctx, o.wait())
	sess, err := client.launch(host, command, only)
	if late := inTime(); late != nil {
		return nil, &Error{
			Host: host, Code: Unreachable, Found: fmt.Sprintf("the host did not start the agent within %s", o.wait()),
			Err: late, Fix: "look at the load of the host and at its log",
		}
	}
	if err != nil {
		return nil, err
	}
	return overStdio(ctx, host, sess, sess.stdin(), sess.ended, o)
}

// launch asks for the agent on a session of its own.
func (c *sshClient) launch(host, command string, only bool) (*session, error) {
	channel, requests, err := c.OpenChannel("session", nil)
	if err != nil {
		return nil, &Error{
			Host: host, Code: Unreachable, Found: "the host opened no session", Err: foreign{err}, Fix: "look at MaxSessions and at the host's log",
		}
	}
	sess := newSession(channel, requests)
	ok := false
	if !only {
		ok, err = channel.SendRequest("subsystem", true, ssh.Marshal(struct{ Name string }{subsystem}))
	}
	if err == nil && !ok {
		// Only one request of a channel can succeed, so another one may follow.
		ok, err = channel.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{command}))
	}
	if err != nil || !ok {
		_ = channel.Close() // the first error counts
		if err == nil {
			err = errors.New("the host refused to run a command")
		}
		return nil, &Error{
			Host: host, Code: Blocked, Found: "the agent could not be started", Err: foreign{err},
			Fix: "see what the host allows this user (ForceCommand, the key's restrictions)",
		}
	}
	return sess, nil
}
