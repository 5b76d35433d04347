package connect_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// lasts is a certificate that is about to expire.
func lasts(d time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(d) }
}

func future(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
}

func dialed(t *testing.T, way connect.TLS) *connect.Conn {
	t.Helper()
	conn, err := connect.DialTLS(t.Context(), host, way, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // only its calls count
	return conn
}

// wantNoLease checks that a call over a connection does nothing any more.
func wantNoLease(t *testing.T, conn *connect.Conn, dir string, says ...string) {
	t.Helper()
	_, err := agent.NewClient(conn, host).AcquireLease(t.Context(), agent.LeaseRequest{Run: "late", Owner: "o", Holder: "h", TTL: time.Minute})
	if err == nil {
		t.Fatal("a lease was given")
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v\ndoes not say %q", err, text)
		}
	}
	sim, err := openHost(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Lease != nil {
		t.Errorf("the host is leased to %+v", s.Lease)
	}
}

func wantEnd(t *testing.T, conn *connect.Conn) {
	t.Helper()
	select {
	case <-conn.Done():
	case <-time.After(patience):
		t.Error("the connection has not ended")
	}
}

// TestConnectionEndsWithItsAuthority replaces the authority under open connections.
func TestConnectionEndsWithItsAuthority(t *testing.T) {
	t.Parallel() // they wait for certificates to expire, which last long enough to connect with on a busy machine
	old, next := newAuthority(t, "the old authority"), newAuthority(t, "the next authority")
	dir := newHost(t, 0)
	l := listenFor(t, newListener(t), dir, old, old.issue(nil), nil)
	idle, calls := dialed(t, l.client(old, old.issue(nil))), dialed(t, l.client(old, old.issue(nil)))
	stays := next.issue(nil)

	l.replace(l.clientCA, append(append([]byte{}, old.PEM...), next.PEM...)) // both, as in a rotation
	kept := dialed(t, l.client(old, stays))
	if _, err := agent.NewClient(calls, host).Inventory(t.Context()); err != nil {
		t.Fatalf("while both authorities are there: %v", err)
	}
	l.replace(l.clientCA, next.PEM)
	wantNoLease(t, calls, dir, "is not accepted any more")
	wantEnd(t, idle)
	wantEnd(t, calls)
	if _, err := agent.NewClient(kept, host).Inventory(t.Context()); err != nil {
		t.Errorf("the client of the authority that stays: %v", err)
	}
}

// TestConnectionEndsWithItsCertificate lets the certificate of either end expire.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	t.Parallel() // they wait for certificates to expire, which last long enough to connect with on a busy machine
	for _, test := range []struct {
		name         string
		client, host func(*x509.Certificate)
	}{
		{"the client's", lasts(8 * time.Second), nil},
		{"the host's", nil, lasts(8 * time.Second)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ca, dir := newAuthority(t, "the fleet's authority"), newHost(t, 0)
			l := listenFor(t, newListener(t), dir, ca, ca.issue(test.host), nil)
			way := l.client(ca, ca.issue(test.client))
			conn := dialed(t, way)
			if _, err := agent.NewClient(conn, host).Inventory(t.Context()); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			wantEnd(t, conn)
			if took := time.Since(begun); took > patience/2 {
				t.Errorf("it ended after %s", took)
			}
			wantNoLease(t, conn, dir)
			_, err := connect.DialTLS(t.Context(), host, way, options)
			if e, ok := errors.AsType[*connect.Error](err); !ok || e.Code != connect.Certificate || !strings.Contains(err.Error(), "expired") {
				t.Errorf("it was dialled again: %v, want a connect.Error of kind certificate that says expired", err)
			}
		})
	}
}

// TestChangeDoesNotOutliveItsCertificate lets a certificate expire in the middle of a
// change, which is undone as when the connection breaks.
func TestChangeDoesNotOutliveItsCertificate(t *testing.T) {
	t.Parallel() // they wait for certificates to expire, which last long enough to connect with on a busy machine
	ca, dir := newAuthority(t, "the fleet's authority"), newHost(t, 12_000)
	l := listenFor(t, newListener(t), dir, ca, ca.issue(nil), nil)
	conn := dialed(t, l.client(ca, ca.issue(lasts(8*time.Second))))
	begun := false
	if err := changeCount(t.Context(), conn, func() { begun = true }); err == nil || !begun {
		t.Errorf("the change was begun: %t, and ended with %v", begun, err)
	}
	sim, err := openHost(dir)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // the agent at the other end of a real connection puts it back
		s, err := sim.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := sim.Inventory(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		count := h.GPUs[0].Partitionable.Count
		if len(s.Journal) == 0 && count == oldCount {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("count %d, %d changes in the journal", count, len(s.Journal))
		}
	}
}

// TestAllowedNames lists who may act on a host. The list gives nobody a role.
func TestAllowedNames(t *testing.T) {
	spiffe, err := url.Parse("spiffe://corp.example/apply")
	if err != nil {
		t.Fatal(err)
	}
	ca, dir := newAuthority(t, "a company's authority"), newHost(t, 0)
	l := listenFor(t, newListener(t), dir, ca, ca.issue(nil), []string{"apply-job", "plan.corp.example", "spiffe://corp.example/apply"})
	named := func(name, organization string, edit func(*x509.Certificate)) pair {
		return ca.issue(func(c *x509.Certificate) {
			c.Subject, c.DNSNames = pkix.Name{CommonName: name, Organization: []string{organization}}, nil
			if edit != nil {
				edit(c)
			}
		})
	}
	for _, test := range []struct {
		name   string
		client pair
		role   agent.Role // "" when it is refused
		says   string
	}{
		{"a common name", named("apply-job", "gpu-operator", nil), agent.Operator, ""},
		{
			"a DNS name", named("", "gpu-reader", func(c *x509.Certificate) { c.DNSNames = []string{"other.example", "Plan.corp.example"} }),
			agent.Reader, "",
		},
		{"a URI", named("x", "gpu-operator", func(c *x509.Certificate) { c.URIs = []*url.URL{spiffe} }), agent.Operator, ""},
		{"another name", named("laptop-of-bob", "gpu-operator", nil), "", "laptop-of-bob"},
		{"the beginning of a name", named("apply-jobs", "gpu-operator", nil), "", "apply-jobs"},
		{"no name", named("", "gpu-operator", nil), "", "--allow-name"},
		{"a listed name without a role", named("apply-job", "sales", nil), "", "gives no role"},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn, err := connect.DialTLS(t.Context(), host, l.client(ca, test.client), options)
			if test.role != "" {
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }() // only its role counts
				if conn.Hello.Role != test.role {
					t.Errorf("role %s, want %s", conn.Hello.Role, test.role)
				}
				return
			}
			if e, ok := errors.AsType[*connect.Error](err); !ok || e.Code != connect.Authentication || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want a connect.Error of kind authentication that says %q", err, test.says)
			}
		})
	}
}

// badPEM are ways in which a file is not what it should be.
func badPEM(good []byte) map[string][]byte {
	return map[string][]byte{
		"empty": nil, "blank": []byte(" \n"), "junk": []byte("junk"),
		"cut off":     good[:len(good)/2],
		"damaged":     []byte(strings.Replace(string(good), "\nMI", "\nMJ", 1)),
		"half of two": append(append([]byte{}, good...), good[:len(good)/2]...),
	}
}

// TestServerFiles checks that an agent does not start with files that cannot serve, and
// says which.
func TestServerFiles(t *testing.T) {
	ca := newAuthority(t, "the fleet's authority")
	l := listen(t, ca, ca.issue(nil))
	good := ca.issue(nil)
	l.install(good)
	refused := func(what, file string, says ...string) {
		t.Helper()
		err := connect.CheckServerFiles(l.cert, l.key, l.clientCA)
		for _, text := range append(says, file) {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want an error that says %q", what, err, text)
			}
		}
		if err != nil && strings.Contains(err.Error(), "PRIVATE KEY") {
			t.Errorf("a key is in the message: %v", err)
		}
	}
	for name, text := range badPEM(good.cert) {
		l.replace(l.cert, text)
		refused(name+" certificate", l.cert)
	}
	l.install(good)
	for name, text := range badPEM(ca.PEM) {
		l.replace(l.clientCA, text)
		refused(name+" authority", l.clientCA)
	}
	l.replace(l.clientCA, ca.PEM)
	for name, text := range badPEM(good.key) {
		if name == "half of two" {
			continue // the first one counts
		}
		l.replace(l.key, text)
		refused(name+" key", l.key)
	}
	l.install(ca.issue(expired))
	refused("expired", l.cert, "has expired on")
	l.install(ca.issue(future))
	refused("not valid yet", l.cert, "is not valid before")
	l.install(good)
	if err := connect.CheckServerFiles(l.cert, l.key, l.clientCA); err != nil {
		t.Errorf("good files: %v", err)
	}
	if runtime.GOOS == "windows" {
		t.Skip("on Windows an access list and not the mode says who may read a key")
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644, 0o620} {
		if err := os.Chmod(l.key, mode); err != nil {
			t.Fatal(err)
		}
		refused("a key of mode "+mode.String(), l.key, "chmod 600 "+l.key)
	}
	if err := os.Chmod(l.key, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := connect.CheckServerFiles(l.cert, l.key, l.clientCA); err != nil {
		t.Errorf("a key of mode 0400: %v", err)
	}
}

// TestClientFiles checks that a client's bad file is named, and that no host is asked.
func TestClientFiles(t *testing.T) {
	ca := newAuthority(t, "the fleet's authority")
	good := ca.issue(nil)
	usual := connect.TLS{
		Address: "192.0.2.1:1", CA: ca.PEM, Cert: good.cert, Key: good.key, CAFile: "ca.pem", CertFile: "apply.pem", KeyFile: "apply.key",
	}
	refused := func(what string, way connect.TLS, code connect.Code, says ...string) {
		t.Helper()
		_, err := connect.DialTLS(t.Context(), host, way, options)
		e, ok := errors.AsType[*connect.Error](err)
		if !ok || e.Code != code {
			t.Errorf("%s: %v, want a connect.Error with code %s", what, err, code)
			return
		}
		for _, text := range says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v\ndoes not say %q", what, err, text)
			}
		}
	}
	for name, text := range badPEM(ca.PEM) {
		way := usual
		way.CA = text
		refused(name+" authority", way, connect.Settings, "ca_file ca.pem")
	}
	for name, text := range badPEM(good.cert) {
		way := usual
		way.Cert = text
		refused(name+" certificate", way, connect.Settings, "cert_file apply.pem")
	}
	for _, name := range []string{"empty", "junk", "cut off", "damaged"} {
		way := usual
		way.Key = badPEM(good.key)[name]
		refused(name+" key", way, connect.Settings, "key_file apply.key")
	}
	for name, x := range map[string]struct {
		edit func(*x509.Certificate)
		says string
	}{"expired": {expired, "has expired on"}, "not valid yet": {future, "is not valid before"}} {
		p := ca.issue(x.edit)
		way := usual
		way.Cert, way.Key = p.cert, p.key
		refused(name, way, connect.Certificate, "cert_file apply.pem", x.says)
	}
}

// TestDamagedAuthorityIsNotTrustedForLong leaves the authority's file damaged.
func TestDamagedAuthorityIsNotTrustedForLong(t *testing.T) {
	ca := newAuthority(t, "the fleet's authority")
	l := listen(t, ca, ca.issue(nil))
	a, err := connect.ReadAuthorities(l.cert, l.key, l.clientCA)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, damage := range map[string]func(){
		"emptied": func() { l.replace(l.clientCA, nil) },
		"removed": func() { remove(t, filepath.Dir(l.clientCA), filepath.Base(l.clientCA)) },
	} {
		now = now.Add(time.Hour)
		damage()
		if err := a.At(now); err != nil {
			t.Errorf("%s, in the middle of a replacement: %v", name, err)
		}
		if err := a.At(now.Add(2 * time.Minute)); err == nil || !strings.Contains(err.Error(), l.clientCA) {
			t.Errorf("%s for two minutes: %v, want an error that names the file", name, err)
		}
		l.replace(l.clientCA, ca.PEM)
		if err := a.At(now.Add(3 * time.Minute)); err != nil {
			t.Errorf("%s and put back: %v", name, err)
		}
	}
}
