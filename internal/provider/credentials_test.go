package provider_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/crypto/ssh"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// fingerprint is one of a host key that nobody has.
const fingerprint = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// closedPort is a port on which nothing listens.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	addr, _ := l.Addr().(*net.TCPAddr)
	return addr.Port
}

// certificates are one certificate that stands for both ends.
type certificates struct{ cert, key string }

func newCertificates(t *testing.T) certificates {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := certificates{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	rig.Write(t, c.cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	rig.Write(t, c.key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: doc})))
	return c
}

func (c certificates) way(address string) string {
	return fmt.Sprintf("tls = { address = %q, ca_file = %q, cert_file = %q, key_file = %q }", address, c.cert, c.cert, c.key)
}

// doorman is an SSH server that lets nobody in and remembers who came with what.
type doorman struct {
	port    int
	hostKey string

	mu   sync.Mutex
	came map[string]bool
}

func newDoorman(t *testing.T) *doorman {
	t.Helper()
	d := &doorman{came: map[string]bool{}}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	d.hostKey = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	errNobody := errors.New("nobody is let in")
	config := &ssh.ServerConfig{
		MaxAuthTries: 20,
		PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			d.note(c.User(), "key "+ssh.FingerprintSHA256(key))
			return nil, errNobody
		},
		PasswordCallback: func(c ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			d.note(c.User(), "password "+string(password))
			return nil, errNobody
		},
		KeyboardInteractiveCallback: func(c ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"Password: "}, []bool{false})
			if err == nil {
				d.note(c.User(), "answers "+strings.Join(answers, ", "))
			}
			return nil, errNobody
		},
	}
	config.AddHostKey(signer)
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed with the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	addr, _ := l.Addr().(*net.TCPAddr)
	d.port = addr.Port
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _, _, _ = ssh.NewServerConn(c, config) // it always fails
				_ = c.Close()
			}()
		}
	}()
	return d
}

func (d *doorman) note(user, with string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.came[user+" with "+with] = true
}

// take returns who came since the last time.
func (d *doorman) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	came := rig.Keys(d.came)
	clear(d.came)
	return came
}

// way is an ssh block for the server with more arguments.
func (d *doorman) way(more ...string) string {
	return fmt.Sprintf("ssh = { address = \"127.0.0.1\", port = %d, host_key = %q, use_agent = false, %s }",
		d.port, d.hostKey, strings.Join(more, ", "))
}

// privateKey is a new key: its file, its text and its fingerprint.
type privateKey struct{ file, text, fingerprint string }

func newPrivateKey(t *testing.T) privateKey {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	k := privateKey{filepath.Join(t.TempDir(), "id"), string(pem.EncodeToMemory(block)), ssh.FingerprintSHA256(key)}
	rig.Write(t, k.file, k.text)
	return k
}

// secret is the middle of the key's text, where no two keys are alike.
func (k privateKey) secret() string {
	lines := strings.Split(k.text, "\n")
	return lines[len(lines)/2]
}

func TestEnvironmentLogsInWhereTheBlockDoesNotSay(t *testing.T) {
	t.Parallel()
	d := newDoorman(t)
	own, given := newPrivateKey(t), newPrivateKey(t)
	c := rig.NewProcesses(t, "")
	c.Env = append(c.Env, "HOME="+t.TempDir(), "GPU_SSH_USER=env-user", "GPU_SSH_PASSWORD=env-password", "GPU_SSH_PRIVATE_KEY="+given.text)
	for name, x := range map[string]struct {
		more []string
		user string
		with []string
	}{
		"nothing is said": {nil, "env-user", []string{"key " + given.fingerprint, "password env-password", "answers env-password"}},
		"a user": {
			[]string{`user = "own-user"`}, "own-user", []string{"key " + given.fingerprint, "password env-password", "answers env-password"},
		},
		"a password": {
			[]string{`password = "own-password"`}, "env-user", []string{"key " + given.fingerprint, "password own-password", "answers own-password"},
		},
		"a key": {
			[]string{fmt.Sprintf("private_key = file(%q)", own.file)},
			"env-user",
			[]string{"key " + own.fingerprint, "password env-password", "answers env-password"},
		},
		"a file with a key": {
			[]string{fmt.Sprintf("private_key_file = %q", own.file)},
			"env-user",
			[]string{"key " + own.fingerprint, "password env-password", "answers env-password"},
		},
		"everything is said": {
			[]string{`user = "own-user"`, `password = "own-password"`, fmt.Sprintf("private_key_file = %q", own.file)},
			"own-user",
			[]string{"key " + own.fingerprint, "password own-password", "answers own-password"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.Write(lab(d.way(x.more...)) + labConfig4)
			wantOneError(t, c.Fails("plan"), "Authentication failed", "Host: lab", fmt.Sprintf("does not let user %q in", x.user))
			var want []string
			for _, w := range x.with {
				want = append(want, x.user+" with "+w)
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, d.take()); diff != "" {
				t.Errorf("who came with what (-want +got):\n%s", diff)
			}
		})
	}
}

// TestJumpHostIsSentNothingOfTheHost has a jump host that asks for everything, with every
// way to say how the host behind it lets one in.
func TestJumpHostIsSentNothingOfTheHost(t *testing.T) {
	t.Parallel()
	d := newDoorman(t)
	own, given, hop := newPrivateKey(t), newPrivateKey(t), newPrivateKey(t)
	known := filepath.Join(t.TempDir(), "known_hosts")
	rig.Write(t, known, fmt.Sprintf("[127.0.0.1]:%d %s\n", d.port, d.hostKey))
	c := rig.NewProcesses(t, "")
	c.Env = append(c.Env, "HOME="+t.TempDir(), "SSH_AUTH_SOCK=", "GPU_SSH_USER=env-user", "GPU_SSH_PASSWORD=env-password",
		"GPU_SSH_PRIVATE_KEY="+given.text)
	for name, x := range map[string]struct {
		more []string
		came []string
	}{
		"environment":      {nil, []string{}},
		"password":         {[]string{`user = "own-user"`, `password = "own-password"`}, []string{}},
		"private_key":      {[]string{fmt.Sprintf("private_key = file(%q)", own.file)}, []string{}},
		"private_key_file": {[]string{fmt.Sprintf("private_key_file = %q", own.file)}, []string{}},
		"proxy_jump_private_key": {
			[]string{fmt.Sprintf("private_key = file(%q)", own.file), fmt.Sprintf("proxy_jump_private_key = file(%q)", hop.file)},
			[]string{"alice with key " + hop.fingerprint},
		},
	} {
		t.Run(name, func(t *testing.T) {
			more := slices.Concat(x.more, []string{
				fmt.Sprintf("proxy_jump = \"alice@127.0.0.1:%d\"", d.port), fmt.Sprintf("known_hosts_file = %q", known),
			})
			c.Write(lab(fmt.Sprintf("ssh = { address = \"hv01.corp.example\", %s }", strings.Join(more, ", "))) + labConfig4)
			wantOneError(t, c.Fails("plan"), "Authentication failed", "Host: lab", `does not let user "alice" in`, "proxy_jump_private_key")
			if diff := cmp.Diff(x.came, d.take(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("who came to the jump host with what (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoSecretIsShown looks for a key and passwords in all that Terraform prints, logs
// and writes, with a host that lets the provider in and one that does not.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	d := newDoorman(t)
	key, given := newPrivateKey(t), newPrivateKey(t)
	const ownPassword, envPassword = "correct-horse-battery", "staple-of-the-environment"
	password := filepath.Join(t.TempDir(), "password")
	rig.Write(t, password, ownPassword)
	r := rig.New(t, rig.Standalone(rig.Node("hv01", rig.Desktop("avd-01", 1))))
	block := func(door string) string {
		return "provider \"gpu\" {\n  owner = \"test\"\n  hosts = {\n    lab = { local = {} }\n    door = { " + door + " }\n  }\n}\n"
	}
	own := d.way(fmt.Sprintf("private_key = file(%q)", key.file), fmt.Sprintf("password = file(%q)", password))
	all := "data \"gpu_inventory\" \"all\" {}\n"
	c := newLocalCLI(r, "hv01", block(own)+labConfig4+labDesktop)
	c.Env = append(c.Env, "HOME="+t.TempDir(), "TF_LOG=TRACE", "GPU_SSH_PASSWORD="+envPassword, "GPU_SSH_PRIVATE_KEY="+given.text)

	var said strings.Builder
	said.WriteString(c.Ok("plan", "-out=plan"))
	said.WriteString(c.Ok("show", "-json", "plan"))
	said.WriteString(c.Ok("apply", "plan"))
	said.WriteString(c.Ok("state", "pull"))
	for _, door := range []string{own, d.way()} {
		c.Write(block(door) + labConfig4 + labDesktop + all)
		out := c.Fails("plan")
		rig.WantSaid(t, out, "Host: door", "does not let user")
		said.WriteString(out)
	}
	if came := d.take(); len(came) != 6 {
		t.Errorf("the secrets were not used: %v", came)
	}
	if !strings.Contains(said.String(), "[TRACE]") {
		t.Error("nothing was traced")
	}
	for what, secret := range map[string]string{
		"private_key": key.secret(), "password": ownPassword, "GPU_SSH_PRIVATE_KEY": given.secret(), "GPU_SSH_PASSWORD": envPassword,
	} {
		if at := strings.Index(said.String(), secret); at >= 0 {
			t.Errorf("%s is shown: ...%s", what, said.String()[max(0, at-300):at])
		}
	}
}
