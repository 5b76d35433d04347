package connect

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// hostKeys checks the key of a server.
type hostKeys struct {
	check      func(host, name string, remote net.Addr, key ssh.PublicKey) error
	algorithms []string // nil: any
}

func (e endpoint) hostKeys() (hostKeys, error) {
	if e.hostKey != "" {
		return pinned(e.hostKey)
	}
	var files []string
	for _, file := range e.knownHosts {
		_, err := os.Stat(file)
		switch {
		case err == nil:
			files = append(files, file)
		case e.knownHostsSaid || !errors.Is(err, fs.ErrNotExist):
			return hostKeys{}, err
		}
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return hostKeys{}, err
	}
	callback := db.HostKeyCallback()
	return hostKeys{
		// Servers have several keys. Only one of a kind that is known can be checked.
		algorithms: db.HostKeyAlgorithms(e.address()),
		check: func(host, name string, remote net.Addr, key ssh.PublicKey) error {
			return e.judge(host, name, key, callback(name, remote, key))
		},
	}, nil
}

// judge makes what known_hosts says about a key an error that tells what to do.
func (e endpoint) judge(host, name string, key ssh.PublicKey, err error) error {
	var other *xknownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &other) && len(other.Want) > 0:
		want := other.Want[0]
		return &Error{
			Host: host, Kind: HostKey,
			Found: fmt.Sprintf("the host key of %s has changed: it shows %s %s, but %s line %d has another one", name, key.Type(), ssh.FingerprintSHA256(key), want.Filename, want.Line),
			Fix:   "find out why before you go on. If the host was installed anew, replace that line; otherwise somebody may be in between",
		}
	case knownhosts.IsHostUnknown(err):
		return &Error{
			Host: host, Kind: HostKey,
			Found: fmt.Sprintf("the host key of %s is not known: %s %s; looked in %s", name, key.Type(), ssh.FingerprintSHA256(key), strings.Join(e.knownHosts, ", ")),
			Fix:   "compare the fingerprint with the host's, then add the key as host_key, or this line to known_hosts:\n  " + knownhosts.Line([]string{name}, key), // Terraform does not wrap what is indented
		}
	}
	return &Error{Host: host, Kind: HostKey, Found: "the host key of " + name + " was refused", Err: err, Fix: "look at known_hosts"}
}

// CheckHostKey tells whether a text is a public key or a fingerprint.
func CheckHostKey(text string) error {
	_, err := pinned(text)
	return err
}

// pinned accepts one key.
func pinned(text string) (hostKeys, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "SHA256:") {
		return hostKeys{check: func(host, name string, _ net.Addr, key ssh.PublicKey) error {
			if found := ssh.FingerprintSHA256(key); found != strings.TrimRight(text, "=") {
				return differs(host, name, found, text)
			}
			return nil
		}}, nil
	}
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return hostKeys{}, errors.New("host_key is neither a public key (ssh-ed25519 AAAA...) nor a fingerprint (SHA256:...)")
	}
	algorithms := []string{want.Type()}
	if want.Type() == ssh.KeyAlgoRSA { // one kind of key, three of signatures
		algorithms = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return hostKeys{algorithms: algorithms, check: func(host, name string, _ net.Addr, key ssh.PublicKey) error {
		if string(key.Marshal()) != string(want.Marshal()) {
			return differs(host, name, ssh.FingerprintSHA256(key), ssh.FingerprintSHA256(want))
		}
		return nil
	}}, nil
}

func differs(host, name, found, want string) error {
	return &Error{
		Host: host, Kind: HostKey, Found: fmt.Sprintf("the host key of %s is %s, but host_key says %s", name, found, want),
		Fix: "find out why before you go on. If the host was installed anew, change host_key; otherwise somebody may be in between",
	}
}
