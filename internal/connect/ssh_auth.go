package connect

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// login is how a user proves who it is.
type login struct {
	methods []ssh.AuthMethod
	close   func()

	mu    sync.Mutex
	names []string // what was tried, for people
}

func (l *login) note(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, name)
}

func (l *login) tried() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.names) == 0 {
		return "nothing, since there is no key, SSH agent or password"
	}
	return strings.Join(l.names, ", ")
}

// login gathers keys, those of an SSH agent and the password. Keys are one method of
// the protocol, so they are offered together, the ones that were given first.
func (e endpoint) login(host string) (*login, error) {
	l := &login{close: func() {}}
	var signers []ssh.Signer
	if e.keyText != "" {
		signer, err := ssh.ParsePrivateKey([]byte(e.keyText))
		if err != nil {
			return nil, badKey(host, "private_key", err)
		}
		signers = append(signers, signer)
		l.note("the private key")
	}
	for _, file := range e.keyFiles {
		signer, err := readKey(file)
		if err != nil {
			return nil, badKey(host, "the private key "+file, err)
		}
		signers = append(signers, signer)
		l.note("key " + file)
	}
	for _, file := range e.defaultKeys {
		if signer, err := readKey(file); err == nil { // others are not there or need a passphrase
			signers = append(signers, signer)
			l.note("key " + file)
		}
	}
	if e.agentSocket != "" {
		conn, err := dialAgent(e.agentSocket)
		if err != nil {
			return nil, &Error{Host: host, Kind: Settings, Found: "the SSH agent does not answer", Err: err, Fix: "start it, or set use_agent = false"}
		}
		l.close = func() { _ = conn.Close() }
		held, err := agent.NewClient(conn).Signers()
		if err != nil {
			_ = conn.Close()
			return nil, &Error{Host: host, Kind: Settings, Found: "the SSH agent does not list its keys", Err: err, Fix: "look at the agent, or set use_agent = false"}
		}
		signers = append(signers, held...)
		l.note(fmt.Sprintf("the SSH agent with %d keys", len(held)))
	}
	if len(signers) > 0 {
		l.methods = append(l.methods, ssh.PublicKeys(signers...))
	}
	if e.password != "" {
		l.methods = append(l.methods, ssh.Password(e.password), ssh.KeyboardInteractive(
			func(_, _ string, questions []string, _ []bool) ([]string, error) {
				answers := make([]string, len(questions))
				for i := range answers {
					answers[i] = e.password
				}
				return answers, nil
			}))
		l.note("the password")
	}
	return l, nil
}

func readKey(file string) (ssh.Signer, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(pem)
}

func badKey(host, what string, err error) *Error {
	e := &Error{Host: host, Kind: Settings, Found: what + " cannot be used", Err: err, Fix: "give a private key in PEM or OpenSSH's format"}
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		e.Found, e.Err, e.Fix = what+" is encrypted with a passphrase", nil, "load it into an SSH agent and set use_agent = true, or give a key without a passphrase"
	case errors.Is(err, fs.ErrNotExist):
		e.Fix = "say where the key is"
	}
	return e
}

func dialAgent(socket string) (net.Conn, error) { return net.Dial("unix", socket) } //nolint:noctx // a socket on this machine
