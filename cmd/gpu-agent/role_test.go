package main_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// TestTheLeastRoleCounts: whatever gives the caller a role, over either transport, it can
// only take rights away.
func TestTheLeastRoleCounts(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	allFlags, environments := [][]string{nil, {"operator"}, {"reader"}, {"operator", "reader"}, {"reader", "operator"}},
		[]string{"", "operator", "reader"}
	if runtime.GOOS == "windows" { // Wine does not start that many programs at once
		allFlags, environments = allFlags[:3], environments[1:]
	}
	for _, flags := range allFlags {
		for _, environment := range environments {
			for _, organization := range []string{"", "gpu-operator", "gpu-reader"} { // "" is over stdio
				want := agent.Operator
				if environment == "reader" || organization == "gpu-reader" || len(flags) > 0 &&
					(flags[0] == "reader" || flags[len(flags)-1] == "reader") {
					want = agent.Reader
				}
				t.Run("flags "+join(flags)+", environment "+environment+", certificate "+organization, func(t *testing.T) {
					if runtime.GOOS != "windows" {
						t.Parallel()
					}
					r := newRig(t)
					if environment != "" {
						r.env = append(r.env, "GPU_AGENT_ROLE="+environment)
					}
					var args []string
					for _, f := range flags {
						args = append(args, "--role", f)
					}
					var c *agent.Client
					if organization == "" {
						c = r.dial(args...)
					} else {
						address, _ := r.listen(ca, args...)
						cert, key := ca.issue(organization)
						conn, err := connect.DialTLS(t.Context(), "hv01", connect.TLS{Address: address, CA: ca.pem, Cert: cert, Key: key},
							connect.Options{Version: "test"})
						if err != nil {
							t.Fatal(err)
						}
						c = agent.NewClient(conn, "hv01")
						t.Cleanup(func() { _ = c.Close() })
					}
					hello, err := c.Hello(t.Context())
					if err != nil || hello.Role != want {
						t.Errorf("the role is %q, %v; want %q", hello.Role, err, want)
					}
					fence, err := c.AcquireLease(t.Context(), lease("run-1"))
					if e, ok := errors.AsType[*agent.Error](err); want == agent.Reader && (!ok || e.Code != agent.Denied) ||
						want == agent.Operator && err != nil {
						t.Errorf("a %s asks for the lease: %v", want, err)
					}
					if err == nil {
						_ = c.ReleaseLease(t.Context(), fence)
					}
				})
			}
		}
	}
}

func join(flags []string) string {
	out := ""
	for _, f := range flags {
		out += f + " "
	}
	return out
}

var listening = regexp.MustCompile(`address=(\S+)`)

// listen starts the agent as a service does and returns where it listens, and its process.
func (r *rig) listen(ca *testCA, args ...string) (address string, process *os.Process) {
	r.t.Helper()
	dir := r.t.TempDir()
	cert, key := ca.issue("host")
	for name, content := range map[string][]byte{"cert.pem": cert, "key.pem": key, "ca.pem": ca.pem} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	cmd := r.command(append([]string{
		"serve", "--listen", "127.0.0.1:0", "--cert", filepath.Join(dir, "cert.pem"), "--key", filepath.Join(dir, "key.pem"),
		"--client-ca", filepath.Join(dir, "ca.pem"),
	}, args...)...)
	log, err := cmd.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	found := make(chan string, 1)
	go func() {
		defer close(found)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
			}
		}
	}()
	select {
	case address, ok := <-found:
		if !ok {
			r.t.Fatal("the agent ended before it listened")
		}
		return address, cmd.Process
	case <-time.After(time.Minute):
		r.t.Fatal("the agent does not say where it listens")
	}
	return "", nil
}

// testCA signs the certificates of both ends.
type testCA struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newCA(t *testing.T) *testCA {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the fleet's authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca := &testCA{t: t, cert: template}
	ca.key = ca.newKey()
	ca.pem = ca.sign(template, ca.key)
	return ca
}

func (ca *testCA) newKey() *ecdsa.PrivateKey {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	return key
}

func (ca *testCA) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	ca.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (ca *testCA) issue(organization string) (cert, key []byte) {
	ca.t.Helper()
	own := ca.newKey()
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		ca.t.Fatal(err)
	}
	return ca.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test", Organization: []string{organization}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, own), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
