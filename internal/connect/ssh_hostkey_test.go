package connect_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// knownLine is the line of known_hosts for a server with one of its keys.
func (s *sshServer) knownLine(key ssh.Signer) string {
	return knownhosts.Line([]string{s.address}, key.PublicKey())
}

// knownHosts is a file that knows the first key of each server.
func knownHosts(t *testing.T, servers ...*sshServer) string {
	t.Helper()
	var lines []string
	for _, s := range servers {
		lines = append(lines, s.knownLine(s.hostKeys[0]))
	}
	return write(t, strings.Join(lines, "\n")+"\n", t.TempDir(), "known_hosts")
}

// allKinds gives a server a key of each kind: Ed25519, ECDSA and RSA.
func allKinds(t *testing.T) func(*sshServer) {
	t.Helper()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return func(s *sshServer) { s.hostKeys = append(s.hostKeys, signer(t, ec), signer(t, r)) }
}

// TestKnownHosts checks which entries of known_hosts let a server be the host.
func TestKnownHosts(t *testing.T) {
	newHome(t)
	s := newSSHServer(t, allKinds(t))
	other := signer(t, newSecret(t))
	ed, ec, rs := s.hostKeys[0], s.hostKeys[1], s.hostKeys[2]
	hashed := func(key ssh.Signer) string {
		return strings.Replace(s.knownLine(key), knownhosts.Normalize(s.address), knownhosts.HashHostname(knownhosts.Normalize(s.address)), 1)
	}
	anyPort := func(key ssh.Signer) string { return "127.0.0.* " + line(key) }
	for _, test := range []struct {
		name  string
		lines []string
		code  connect.Code // "" when it is the host
		says  []string
	}{
		{"Ed25519", []string{s.knownLine(ed)}, "", nil},
		{"ECDSA alone", []string{s.knownLine(ec)}, "", nil},
		{"RSA alone", []string{s.knownLine(rs)}, "", nil},
		{"several", []string{s.knownLine(rs), s.knownLine(ec)}, "", nil},
		{"an old key too", []string{s.knownLine(other), s.knownLine(ed)}, "", nil},
		{"hashed", []string{hashed(ec)}, "", nil},
		{"a pattern", []string{anyPort(ed)}, "", nil},
		{"revoked elsewhere", []string{s.knownLine(ed), "@revoked * " + line(other)}, "", nil},

		{
			"unknown",
			[]string{"another.example " + line(ed)},
			connect.HostKey,
			[]string{"\n  " + s.knownLine(ed), ssh.FingerprintSHA256(ed.PublicKey()), "looked in"},
		},
		{"another port", []string{"127.0.0.1 " + line(ed)}, connect.HostKey, []string{"not known", s.knownLine(ed)}},
		{
			"changed",
			[]string{"# a comment", s.knownLine(other)},
			connect.HostKey,
			[]string{"has changed", "known_hosts line 2", ssh.FingerprintSHA256(ed.PublicKey())},
		},
		{"changed, hashed", []string{hashed(other)}, connect.HostKey, []string{"has changed", "known_hosts line 1"}},
		{"changed, one of two kinds", []string{s.knownLine(rs), hashed(other)}, "", nil},
		{"revoked", []string{s.knownLine(ed), "@revoked * " + line(ed)}, connect.HostKey, []string{"revoked"}},
		{"revoked, by a pattern", []string{anyPort(ed), "@revoked other.example " + line(ed)}, connect.HostKey, []string{"revoked"}},
		{"broken", []string{s.knownLine(ed), "127.0.0.1 ssh-ed25519 !"}, connect.Settings, []string{"known_hosts:2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			way := s.way()
			way.HostKey = ""
			way.KnownHostsFile = write(t, strings.Join(test.lines, "\n")+"\n", t.TempDir(), "known_hosts")
			if test.code == "" {
				reaches(t, way)
				return
			}
			refuses(t, way, options, test.code, test.says...)
		})
	}
	t.Run("no file", func(t *testing.T) {
		way := s.way()
		way.HostKey, way.KnownHostsFile = "", filepath.Join(t.TempDir(), "absent")
		refuses(t, way, options, connect.Settings, "absent", "known_hosts_file")
	})
	t.Run("a kind that is not known", func(t *testing.T) {
		one := newSSHServer(t, nil)
		way := one.way()
		way.HostKey, way.KnownHostsFile = "", write(t, knownhosts.Line([]string{one.address}, rs.PublicKey())+"\n", t.TempDir(), "known_hosts")
		refuses(t, way, options, connect.HostKey, "has changed", "line 1", ssh.FingerprintSHA256(one.hostKeys[0].PublicKey()))
	})
	t.Run("nothing is known", func(t *testing.T) {
		way := s.way()
		way.HostKey = ""
		refuses(t, way, options, connect.HostKey, "\n  "+s.knownLine(ed))
	})
	if _, sessions := s.counts(); sessions != 9 {
		t.Errorf("%d sessions, want one for each of 9 that were reached", sessions)
	}
}

// TestTheLineIsEnough checks that the line of the error, put into the file, makes the
// host known.
func TestTheLineIsEnough(t *testing.T) {
	home := newHome(t)
	for _, test := range []struct {
		name   string
		change func(*sshServer)
	}{
		{"a key", nil},
		{"a certificate", func(s *sshServer) {
			s.hostKeys = append(s.hostKeys, certified(t, s.hostKeys[0], signer(t, newSecret(t)), "elsewhere", time.Hour))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSSHServer(t, test.change)
			way := s.way()
			way.HostKey = ""
			err := refusal(t, way, options, connect.HostKey, "not known")
			_, known, _ := strings.Cut(err.Error(), "\n")
			write(t, known+"\n", home, ".ssh", "known_hosts")
			reaches(t, way)
		})
	}
}

// certified is a host's key with a certificate for a name.
func certified(t *testing.T, key, authority ssh.Signer, name string, valid time.Duration) ssh.Signer {
	t.Helper()
	cert := &ssh.Certificate{
		Key: key.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{name},
		ValidAfter: uint64(time.Now().Add(-24 * time.Hour).Unix()), ValidBefore: uint64(time.Now().Add(valid).Unix()),
	}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewCertSigner(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCertificateAuthority checks hosts whose key is certified. The authority's own key
// may be of another kind than theirs.
func TestCertificateAuthority(t *testing.T) {
	newHome(t)
	authority := signer(t, newSecret(t))
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		key    ssh.Signer
		signed ssh.Signer
		to     string
		valid  time.Duration
		more   string
		says   string // "" when it is the host
	}{
		{"certified", signer(t, newSecret(t)), authority, "127.0.0.1", time.Hour, "", ""},
		{"another kind of key", signer(t, ec), authority, "127.0.0.1", time.Hour, "", ""},
		{"expired", signer(t, ec), authority, "127.0.0.1", -time.Hour, "", "expired"},
		{"for another host", signer(t, ec), authority, "hv99", time.Hour, "", "principal"},
		{"by another authority", signer(t, ec), signer(t, newSecret(t)), "127.0.0.1", time.Hour, "", "no authorities"},
		{"revoked authority", signer(t, ec), authority, "127.0.0.1", time.Hour, "@revoked * " + line(authority) + "\n", "refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSSHServer(t, func(s *sshServer) {
				s.hostKeys = []ssh.Signer{test.key, certified(t, test.key, test.signed, test.to, test.valid)}
			})
			way := s.way()
			way.HostKey = ""
			way.KnownHostsFile = write(t, fmt.Sprintf("@cert-authority [127.0.0.1]:%d %s\n%s", s.port, line(authority), test.more),
				t.TempDir(), "known_hosts")
			if test.says == "" {
				reaches(t, way)
				return
			}
			refuses(t, way, options, connect.HostKey, test.says)
		})
	}
}

// TestPinnedHostKey checks host_key, with which no file counts.
func TestPinnedHostKey(t *testing.T) {
	home := newHome(t)
	s := newSSHServer(t, allKinds(t))
	other := signer(t, newSecret(t))
	write(t, s.knownLine(other)+"\n", home, ".ssh", "known_hosts")
	for i, key := range s.hostKeys {
		for _, text := range []string{line(key), line(key) + " root@hv01\n", ssh.FingerprintSHA256(key.PublicKey())} {
			t.Run(fmt.Sprintf("key %d %.12s", i, text), func(t *testing.T) {
				way := s.way()
				way.HostKey = text
				reaches(t, way)
			})
		}
	}
	t.Run("certificates beside the key", func(t *testing.T) {
		s := newSSHServer(t, func(s *sshServer) {
			s.hostKeys = append(s.hostKeys, certified(t, s.hostKeys[0], other, "elsewhere", time.Hour))
		})
		way := s.way()
		way.HostKey = ssh.FingerprintSHA256(s.hostKeys[0].PublicKey())
		reaches(t, way)
	})
	for _, text := range []string{line(other), ssh.FingerprintSHA256(other.PublicKey())} {
		t.Run("another "+text[:12], func(t *testing.T) {
			way := s.way()
			way.HostKey = text
			refuses(t, way, options, connect.HostKey, ssh.FingerprintSHA256(other.PublicKey()), ssh.FingerprintSHA256(s.hostKeys[0].PublicKey()))
		})
	}
	before, _ := s.counts()
	for _, text := range []string{"MD5:aa:bb", "SHA256:", "SHA256:abc", "ssh-ed25519", "ssh-ed25519 AAAA", "hv01"} {
		way := s.way()
		way.HostKey = text
		refuses(t, way, options, connect.Settings, "host_key")
		if connect.CheckHostKey(text) == nil {
			t.Errorf("%q is called a host key", text)
		}
	}
	if after, _ := s.counts(); after != before {
		t.Error("a host was asked with a host_key that is none")
	}
}
