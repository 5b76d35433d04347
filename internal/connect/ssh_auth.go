package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
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
func (e endpoint) login(ctx context.Context, host string) (*login, error) {
	l := &login{close: func() {}}
	var signers []ssh.Signer
	if e.keyText != "" {
		signer, err := ssh.ParsePrivateKey([]byte(e.keyText))
		switch {
		case err == nil:
			signers = append(signers, signer)
			l.note("the private key")
		case e.agentSocket == "" || !isLocked(err): // an agent may hold a locked key
			return nil, badKey(host, e.keyAttribute(), err)
		}
	}
	for _, file := range e.keyFiles {
		if strings.ContainsAny(file, "\r\n") {
			// It is a key, and must not be in a message.
			return nil, &Error{
				Host: host, Code: Settings, Found: "private_key_file is not the name of a file",
				Fix: "name a file, or give the key itself as private_key",
			}
		}
		signer, err := readKey(file)
		switch {
		case err == nil:
			signers = append(signers, signer)
			l.note("key " + file)
		case e.agentSocket == "" || !isLocked(err):
			return nil, badKey(host, "the private key "+file, err)
		}
	}
	for i, file := range slices.Concat(e.configKeys, e.defaultKeys) {
		signer, err := readKey(file)
		switch {
		case err == nil:
			signers = append(signers, signer)
			l.note("key " + file)
		case isLocked(err):
			l.note("not key " + file + ", which is encrypted with a passphrase")
		case i < len(e.configKeys):
			l.note("not key " + file + ", which cannot be used")
		}
	}
	if e.agentSocket != "" {
		conn, held, err := askAgent(ctx, e.agentSocket)
		switch {
		case err == nil:
			l.close = func() { _ = conn.Close() }
			if e.identitiesOnly {
				held = slices.DeleteFunc(held, func(s ssh.Signer) bool { return !e.names(s.PublicKey()) })
			}
			signers = append(signers, held...)
			l.note(fmt.Sprintf("the SSH agent with %d keys", len(held)))
		case e.agentAsked:
			return nil, &Error{
				Host: host, Code: Settings, Found: "the SSH agent does not answer", Err: err, Fix: "start it, or set use_agent = false",
			}
		default: // it is asked because SSH_AUTH_SOCK is set, perhaps by a login of yesterday
			l.note("not the SSH agent, which does not answer")
		}
	}
	if len(signers) > 0 {
		l.methods = append(l.methods, ssh.PublicKeys(signers...))
	}
	if e.password != "" {
		l.methods = append(l.methods, ssh.Password(e.password), ssh.KeyboardInteractive(e.answer(host)))
		l.note("the password")
	}
	return l, nil
}

// answer gives the password to the one question for it: with echo off, alone, and once.
// What else a server asks, such as for a code, the password does not answer.
func (e endpoint) answer(host string) ssh.KeyboardInteractiveChallenge {
	given := false
	return func(_, _ string, questions []string, echos []bool) ([]string, error) {
		why := ""
		switch {
		case len(questions) == 0: // there is only something to read
			return nil, nil
		case len(questions) > 1:
			why = fmt.Sprintf("%d questions at once", len(questions))
		case echos[0]:
			why = "a question whose answer would be shown"
		case given:
			why = "a second question"
		default:
			given = true
			return []string{e.password}, nil
		}
		return nil, &Error{
			Host: host, Code: Authentication,
			Found: fmt.Sprintf("%s asks %s (%s), which the password does not answer", e.address(), why, quote(questions[0], maxQuote)),
			Fix:   "use a key, or let sshd ask for the password alone",
		}
	}
}

// keyAttribute is what the configuration calls a key that is not in a file.
func (e endpoint) keyAttribute() string {
	if e.isJump {
		return "proxy_jump_private_key"
	}
	return "private_key"
}

// names tells whether a key is that of one of the files, which may hold the public half
// alone.
func (e endpoint) names(key ssh.PublicKey) bool {
	for _, file := range slices.Concat(e.keyFiles, e.configKeys, e.defaultKeys) {
		for _, name := range []string{file, file + ".pub"} {
			if public := publicKey(name); public != nil && bytes.Equal(public.Marshal(), key.Marshal()) {
				return true
			}
		}
	}
	return false
}

// publicKey is the public half of the key in a file, nil when it cannot be told.
func publicKey(file string) ssh.PublicKey {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	if public, _, _, _, err := ssh.ParseAuthorizedKey(text); err == nil {
		return public
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err == nil {
		return signer.PublicKey()
	}
	if locked, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		return locked.PublicKey
	}
	return nil
}

func readKey(file string) (ssh.Signer, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(pem)
}

func badKey(host, what string, err error) *Error {
	e := &Error{Host: host, Code: Settings, Found: what + " cannot be used", Err: err, Fix: "give a private key in PEM or OpenSSH's format"}
	switch {
	case isLocked(err):
		e.Found, e.Err, e.Fix = what+" is encrypted with a passphrase", nil,
			"load it into an SSH agent and set use_agent = true, or give a key without a passphrase"
	case errors.Is(err, fs.ErrNotExist):
		e.Fix = "say where the key is"
	}
	return e
}

// isLocked tells whether a key is encrypted with a passphrase.
func isLocked(err error) bool {
	_, locked := errors.AsType[*ssh.PassphraseMissingError](err)
	return locked
}

// askAgent lists the keys that an SSH agent holds. They need the connection to sign; it
// ends with ctx, since an agent may wait for its user.
func askAgent(ctx context.Context, socket string) (io.Closer, []ssh.Signer, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	held, err := agent.NewClient(conn).Signers()
	if err != nil {
		_ = conn.Close() // the first error counts
		return nil, nil, fmt.Errorf("%s: %w", socket, err)
	}
	return conn, held, nil
}
