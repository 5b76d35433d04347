//go:build unix

// Package sshd starts real OpenSSH servers on the loopback interface, for tests. Each
// has its own configuration and keys, and touches nothing of the machine's own.
package sshd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Path is where Debian's openssh-server puts the server.
const Path = "/usr/sbin/sshd"

// Missing says what is missing to start a server, "" for nothing.
func Missing() string {
	if _, err := os.Stat(Path); err != nil {
		return "there is no OpenSSH server: apt-get install --no-install-recommends openssh-server"
	}
	return ""
}

// Options are what a test wants of its server.
type Options struct {
	// Lines are added to sshd_config.
	Lines []string
	// Env is set in every session, as NAME=value.
	Env []string
	// KeyOptions stand before the client's key in authorized_keys, such as
	// restrict,command="...".
	KeyOptions string
	// SFTPDir is where SFTP starts; "" is the user's home.
	SFTPDir string
	// Dir is an empty directory for keys, configuration and log.
	Dir string
}

// Server is a running server.
type Server struct {
	Dir  string
	Port int
	// User may log in.
	User string
	cmd  *exec.Cmd
}

// startTimeout bounds the start of a server.
const startTimeout = 20 * time.Second

// Start starts a server in a directory, which must be empty.
func Start(ctx context.Context, o Options) (*Server, error) {
	who, err := user.Current()
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: o.Dir, User: who.Username}
	for _, key := range []string{"host", "client"} {
		if err := writeKey(s.path(key)); err != nil {
			return nil, err
		}
	}
	client, err := os.ReadFile(s.path("client.pub"))
	if err != nil {
		return nil, err
	}
	if o.KeyOptions != "" {
		client = append([]byte(o.KeyOptions+" "), client...)
	}
	if err := os.WriteFile(s.path("authorized_keys"), client, 0o600); err != nil {
		return nil, err
	}
	if who.Uid == "0" {
		// The server wants its directory for unprivileged children.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return nil, err
		}
	}
	if s.Port, err = freePort(ctx); err != nil {
		return nil, err
	}
	config := []string{
		"ListenAddress 127.0.0.1", "Port " + strconv.Itoa(s.Port), "HostKey " + s.path("host"), "PidFile none",
		"AuthorizedKeysFile " + s.path("authorized_keys"), "StrictModes no", "UsePAM no", "PasswordAuthentication no",
		"KbdInteractiveAuthentication no",
		"LogLevel VERBOSE",
	}
	sftp := "Subsystem sftp internal-sftp"
	if o.SFTPDir != "" {
		sftp += " -d " + o.SFTPDir
	}
	config = append(config, sftp)
	if len(o.Env) > 0 {
		config = append(config, "SetEnv "+strings.Join(o.Env, " "))
	}
	config = append(config, o.Lines...)
	if err := os.WriteFile(s.path("sshd_config"), []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(s.path("log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()                                  // the server has its own
	s.cmd = exec.Command(Path, "-D", "-e", "-f", s.path("sshd_config")) //nolint:noctx // Close ends it
	s.cmd.Stderr = log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: %s", err, s.Log())
	}
	return s, os.WriteFile(s.KnownHosts(), []byte(s.KnownHostsLine()+"\n"), 0o600)
}

func (s *Server) path(name string) string { return filepath.Join(s.Dir, name) }

// Address is host:port.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// ClientKey is the file with the private key that the server lets in.
func (s *Server) ClientKey() string { return s.path("client") }

// KnownHosts is a known_hosts file with the server's key.
func (s *Server) KnownHosts() string { return s.path("known_hosts") }

// KnownHostsLine is the line in it.
func (s *Server) KnownHostsLine() string {
	key, err := os.ReadFile(s.path("host.pub"))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("[127.0.0.1]:%d %s", s.Port, key)
}

// Log is what the server has logged so far.
func (s *Server) Log() string {
	log, err := os.ReadFile(s.path("log"))
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// Connections counts the connections that were let in.
func (s *Server) Connections() int { return strings.Count(s.Log(), "Accepted publickey") }

// Sessions counts the sessions that were opened, over all connections.
func (s *Server) Sessions() int { return strings.Count(s.Log(), "Starting session: ") }

// Cut kills the servers of the connections that are open, as when the network or the
// machine in between goes away. The listening server stays.
func (s *Server) Cut() error {
	children, err := descendants(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	for _, pid := range children {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// descendants are the sshd processes below a process, and nothing that they started.
func descendants(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-eo", "pid=,ppid=,comm=").Output() //nolint:noctx // it ends at once
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(fields[2], "sshd") {
			continue
		}
		child, _ := strconv.Atoi(fields[0])
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], child)
	}
	var all []int
	for next := children[pid]; len(next) > 0; {
		all = append(all, next...)
		var below []int
		for _, p := range next {
			below = append(below, children[p]...)
		}
		next = below
	}
	return all, nil
}

// Close ends the server and its connections.
func (s *Server) Close() {
	_ = s.Cut()
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()
}

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if strings.Contains(s.Log(), "Server listening") {
			return nil
		}
		if err := s.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return fmt.Errorf("the server has ended: %w", err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the server does not listen: %w", ctx.Err())
		}
	}
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }() // the server takes it
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

func writeKey(file string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	return os.WriteFile(file+".pub", bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)), 0o600)
}
