package connect

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// hostKeys checks the key of a server.
type hostKeys struct {
	check func(host, name string, remote net.Addr, key ssh.PublicKey) error
	// offers are lists of algorithms, the best first. There are several where one
	// connection cannot tell whether the server has the key that is meant.
	offers [][]string
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
	for _, file := range files {
		if err := readable(file); err != nil {
			return hostKeys{}, err
		}
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return hostKeys{}, err
	}
	callback := db.HostKeyCallback()
	return hostKeys{
		offers: [][]string{algorithmsFor(db.HostKeys(e.address()))},
		check: func(host, name string, remote net.Addr, key ssh.PublicKey) error {
			return e.judge(host, name, key, callback(name, remote, key))
		},
	}, nil
}

// readable finds a line of a known_hosts file that cannot be read. Package knownhosts passes over it, and it may be
// the one that revokes a key. Keys of DSA nobody reads any more.
func readable(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		_, _, _, _, _, err := ssh.ParseKnownHosts(line)
		if err != nil && !errors.Is(err, io.EOF) && !bytes.Contains(line, []byte(" ssh-dss ")) {
			return fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	return nil
}

// algorithmsFor asks a server, which may have several keys, for one of a kind that is
// known. The other kinds come last, so that a server without such a key is refused by
// name. A certificate counts only where its authority is known, whose own key may be of
// another kind.
func algorithmsFor(known []knownhosts.PublicKey) []string {
	plain, certificates := hostKeyAlgorithms()
	var out []string
	add := func(names ...string) {
		for _, name := range names {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	for _, key := range known {
		if key.Cert {
			add(certificates...)
		}
	}
	for _, key := range known {
		if !key.Cert {
			add(algorithmsOf(key.Type())...)
		}
	}
	add(plain...)
	return out
}

// algorithmsOf are the algorithms for a kind of key. RSA has several, for signatures.
func algorithmsOf(kind string) []string {
	if kind == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{kind}
}

// hostKeyAlgorithms are those without known weaknesses, OpenSSH's favourite first.
func hostKeyAlgorithms() (plain, certificates []string) {
	plain = []string{ssh.KeyAlgoED25519}
	for _, name := range ssh.SupportedAlgorithms().HostKeys {
		switch {
		case strings.Contains(name, "-cert-"):
			certificates = append(certificates, name)
		case name != ssh.KeyAlgoED25519:
			plain = append(plain, name)
		}
	}
	return plain, certificates
}

// judge makes what known_hosts says about a key an error that tells what to do.
func (e endpoint) judge(host, name string, key ssh.PublicKey, err error) error {
	var other *xknownhosts.KeyError
	add := "add the key as host_key, or this line to known_hosts"
	if e.isJump {
		name, add = "jump host "+name, "add this line to known_hosts"
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &other) && len(other.Want) > 0:
		want := other.Want[0]
		for _, known := range other.Want {
			if known.Key.Type() == key.Type() {
				want = known
				break
			}
		}
		return &Error{
			Host: host, Code: HostKey,
			Found: fmt.Sprintf("the host key of %s has changed: it shows %s, but %s line %d has another one",
				name, shown(key), want.Filename, want.Line),
			Fix: "find out why before you go on. If the host was installed anew, replace that line; otherwise somebody may be in between",
		}
	case knownhosts.IsHostUnknown(err):
		return &Error{
			Host: host, Code: HostKey,
			Found: fmt.Sprintf("the host key of %s is not known: %s; looked in %s", name, shown(key), strings.Join(e.knownHosts, ", ")),
			// Terraform does not wrap what is indented
			Fix: "compare the fingerprint with the host's, then " + add + ":\n  " + knownhosts.Line([]string{e.address()}, key),
		}
	}
	return &Error{Host: host, Code: HostKey, Found: "the host key of " + name + " was refused", Err: foreign{err}, Fix: "look at known_hosts"}
}

// CheckHostKey tells whether a text is a public key or a fingerprint.
func CheckHostKey(text string) error {
	_, err := pinned(text)
	return err
}

// pinned accepts one key.
func pinned(text string) (hostKeys, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, fingerprintPrefix) {
		return fingerprinted(text)
	}
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return hostKeys{}, errors.New("host_key is neither a public key (ssh-ed25519 AAAA...) nor a fingerprint (SHA256:...)")
	}
	offer := algorithmsFor([]knownhosts.PublicKey{{PublicKey: want}})
	return hostKeys{offers: [][]string{offer}, check: func(host, name string, _ net.Addr, key ssh.PublicKey) error {
		if string(key.Marshal()) != string(want.Marshal()) {
			return differs(host, name, shown(key), shown(want))
		}
		return nil
	}}, nil
}

const fingerprintPrefix = "SHA256:"

// fingerprinted accepts the key with a fingerprint, which does not tell its kind: a
// server is asked for one after the other.
func fingerprinted(text string) (hostKeys, error) {
	want := strings.TrimRight(text, "=")
	sum, err := base64.RawStdEncoding.DecodeString(strings.TrimPrefix(want, fingerprintPrefix))
	if err != nil || len(sum) != sha256.Size {
		return hostKeys{}, errors.New("host_key begins like a fingerprint, but after SHA256: there are not 43 characters of base64")
	}
	kinds := [][]string{{ssh.KeyAlgoED25519}, {ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521}, algorithmsOf(ssh.KeyAlgoRSA)}
	var found []string
	return hostKeys{offers: kinds, check: func(host, name string, _ net.Addr, key ssh.PublicKey) error {
		if ssh.FingerprintSHA256(key) == want {
			return nil
		}
		found = append(found, shown(key))
		return differs(host, name, strings.Join(found, ", "), want)
	}}, nil
}

func shown(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

func differs(host, name, found, want string) error {
	return &Error{
		Host: host, Code: HostKey, Found: fmt.Sprintf("the host key of %s is %s, but host_key says %s", name, found, want),
		Fix: "find out why before you go on. If the host was installed anew, change host_key; otherwise somebody may be in between",
	}
}
