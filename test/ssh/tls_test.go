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

// listen starts an agent that listens for hv01, and returns its address.
func (r *rig) listen(a *authority, more ...string) (address string) {
	t := r.T
	t.Helper()
	args := append([]string{
		"--backend", "simulated", "--fleet", r.fleet.Path(), "--host", "hv01",
		"serve", "--listen", "127.0.0.1:0", "--cert", a.path("host.pem"), "--key", a.path("host.key"), "--client-ca", a.path("ca.pem"),
	}, more...)
	agent := exec.CommandContext(t.Context(), agentPath(), args...)
	log := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	agent.Stderr = out
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait(); _ = out.Close() })
	cli.Eventually(t, "the agent listens", func() bool {
		said, err := os.ReadFile(log)
		if err != nil {
			return false
		}
		_, rest, found := strings.Cut(string(said), "address=")
		address, _, _ = strings.Cut(rest, " ")
		return found && address != ""
	})
	return address
}

// by is hv01, reached as one of the certificates' owners.
func (a *authority) by(address, name string) []string {
	return []string{
		fmt.Sprintf("hv01 = { tls = { address = %q, ca_file = %q, cert_file = %q, key_file = %q } }",
			address, a.path("ca.pem"), a.path(name+".pem"), a.path(name+".key")),
	}
}

// TestTLSNamesAndKeys lists who may act on the host, and refuses keys that are not private.
func TestTLSNamesAndKeys(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("host", "")
	a.issue("apply-job", connect.OperatorOrganization)
	a.issue("laptop", connect.OperatorOrganization)
	r := newRig(t, first(t), nil)
	address := r.listen(a, "--allow-name", "apply-job", "--allow-name", "plan-job")
	before := r.snapshot()
	r.Write(a.by(address, "laptop"), one)
	cli.WantSays(t, r.Fails("Authentication failed", "apply", "-auto-approve"), "Host: hv01", "does not list", "laptop", "--allow-name")
	if diff := cmp.Diff(before, r.snapshot(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the fleet changed (-before +after):\n%s", diff)
	}
	r.Write(a.by(address, "apply-job"), one)
	cli.WantSays(t, r.OK("apply", "-auto-approve"), "1 added")

	if err := os.Chmod(a.path("apply-job.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	cli.WantSays(t, r.Fails("Private key file is readable by others", "plan"), "Host: hv01", "chmod 600 "+a.path("apply-job.key"))
	if err := os.Chmod(a.path("apply-job.key"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(a.path("apply-job.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", string(whole[:len(whole)/2])} {
		cli.WriteFile(t, a.path("apply-job.pem"), text)
		cli.WantSays(t, r.Fails("Host cannot be reached with these settings", "plan"), "Host: hv01", a.path("apply-job.pem"))
	}
	cli.WriteFile(t, a.path("apply-job.pem"), string(whole))
	r.WantNoChanges()

	// The host's own key.
	if err := os.Chmod(a.path("host.key"), 0o640); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), agentPath(), "--backend", "simulated", "--fleet", r.fleet.Path(), "--host", "hv01",
		"serve", "--listen", "127.0.0.1:0", "--cert", a.path("host.pem"), "--key", a.path("host.key"), "--client-ca", a.path("ca.pem")).
		CombinedOutput()
	if err == nil {
		t.Error("the agent serves with a key that others may read")
	}
	cli.WantSays(t, string(said), "chmod 600 "+a.path("host.key"))
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

	address := r.listen(a)
	as := func(name string) []string { return a.by(address, name) }

	r.Write(as("reader"), one)
	cli.WantSays(t, r.OK("plan"), "1 to add")
	before := r.snapshot()
	cli.WantSays(t, r.Fails("Could not create the partition config", "apply", "-auto-approve"), "hv01", "role reader")
	r.Write(as("nobody"), one)
	recorded := filepath.Join(t.TempDir(), "recorded.json")
	record := exec.CommandContext(t.Context(), agentPath(), "record", "--out", recorded, "--config",
		r.Dir, "--cert", a.path("reader.pem"), "--key", a.path("reader.key"))
	if said, err := record.CombinedOutput(); err != nil || len(hostsOf(t, recorded)) != 1 {
		t.Errorf("record: %v: %s", err, said)
	}
	cli.WantSays(t, r.Fails("Authentication failed", "plan"), "Host: hv01", "gives no role", "sales")
	if diff := cmp.Diff(before, r.snapshot(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the fleet changed (-before +after):\n%s", diff)
	}

	r.Write(as("operator"), one)
	cli.WantSays(t, r.OK("apply", "-auto-approve"), "1 added")
	r.WantNoChanges()
	other := newAuthority(t)
	other.issue("operator", connect.OperatorOrganization)
	r.Write([]string{
		fmt.Sprintf("hv01 = { tls = { address = %q, ca_file = %q, cert_file = %q, key_file = %q } }",
			address, a.path("ca.pem"), other.path("operator.pem"), other.path("operator.key")),
	}, one)
	cli.WantSays(t, r.Fails("Certificate was rejected", "plan"), "Host: hv01")
	r.Write(as("operator"), one)
	r.OK("destroy", "-auto-approve")
	cli.Eventually(t, "nobody holds the lease", func() bool { return r.state("hv01").Lease == nil })
}
