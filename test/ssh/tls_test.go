package ssh_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/test/cli"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca", "")
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.pem and NAME.key. The first certificate signs the others.
func (a *authority) issue(name, organization string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if organization != "" {
		template.Subject.Organization = []string{organization}
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
		a.key = key
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	cli.WriteFile(a.t, a.path(name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	cli.WriteFile(a.t, a.path(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// TestTLS applies through an agent that listens: operators may, readers may only plan.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("host", "")
	a.issue("operator", connect.OperatorOrganization)
	a.issue("reader", connect.ReaderOrganization)
	a.issue("nobody", "sales")
	r := newRig(t, first(t), nil)

	agent := exec.CommandContext(t.Context(), agentPath(), "--backend", "simulated", "--fleet", r.fleet.Path(), "--host", "hv01",
		"serve", "--listen", "127.0.0.1:0", "--cert", a.path("host.pem"), "--key", a.path("host.key"), "--client-ca", a.path("ca.pem"))
	log := filepath.Join(a.dir, "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	agent.Stderr = out
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait(); _ = out.Close() })
	address := ""
	cli.Eventually(t, "the agent listens", func() bool {
		said, err := os.ReadFile(log)
		if err != nil {
			return false
		}
		_, rest, found := strings.Cut(string(said), "address=")
		address, _, _ = strings.Cut(rest, " ")
		return found && address != ""
	})
	as := func(name string) []string {
		return []string{fmt.Sprintf("hv01 = { tls = { address = %q, ca_file = %q, cert_file = %q, key_file = %q } }", address, a.path("ca.pem"), a.path(name+".pem"), a.path(name+".key"))}
	}

	r.Write(as("reader"), one)
	cli.WantSays(t, r.OK("plan"), "1 to add")
	before := r.snapshot()
	cli.WantSays(t, r.Fails("Could not create the partition config", "apply", "-auto-approve"), "hv01", "role reader")
	r.Write(as("nobody"), one)
	cli.WantSays(t, r.Fails("Host does not let the provider in", "plan"), "Host: hv01", "gives no role", "sales")
	if diff := cmp.Diff(before, r.snapshot(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the fleet changed (-before +after):\n%s", diff)
	}

	r.Write(as("operator"), one)
	cli.WantSays(t, r.OK("apply", "-auto-approve"), "1 added")
	r.WantNoChanges()
	other := newAuthority(t)
	other.issue("operator", connect.OperatorOrganization)
	r.Write([]string{fmt.Sprintf("hv01 = { tls = { address = %q, ca_file = %q, cert_file = %q, key_file = %q } }", address, a.path("ca.pem"), other.path("operator.pem"), other.path("operator.key"))}, one)
	cli.WantSays(t, r.Fails("Certificate is not accepted", "plan"), "Host: hv01")
	r.Write(as("operator"), one)
	r.OK("destroy", "-auto-approve")
	cli.Eventually(t, "nobody holds the lease", func() bool { return r.state("hv01").Lease == nil })
}
