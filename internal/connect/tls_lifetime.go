package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// trustEvery is how often a connection is held against the authority's file while it
	// makes no call. Each call is by itself.
	trustEvery = 5 * time.Second
	// replacementTime is how long a file may be damaged, as in the middle of a
	// replacement, before nobody is trusted any more.
	replacementTime = time.Minute
)

// trust is what a server that listens goes by. Its files are read again and again, so
// that they can be replaced while it runs.
type trust struct {
	certFile, keyFile, caFile string
	// allow are the names in certificates that may act on this host; none means any.
	allow []string

	mu       sync.Mutex
	own      tls.Certificate // the last that was good
	clients  *x509.CertPool  // the same
	badSince time.Time       // when the authority could not be read first; zero while it can be
}

// newTrust reads the files for the first time.
func newTrust(certFile, keyFile, caFile string, allow []string) (*trust, error) {
	t := &trust{certFile: certFile, keyFile: keyFile, caFile: caFile, allow: allow}
	var err error
	if t.own, err = t.readOwn(); err != nil {
		return nil, err
	}
	if t.clients, err = t.readClients(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *trust) readOwn() (tls.Certificate, error) {
	if err := CheckKeyFile(t.keyFile); err != nil {
		return tls.Certificate{}, fmt.Errorf("the host's private key: %w", err)
	}
	cert, err := os.ReadFile(t.certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the host's certificate cannot be read: %w", err)
	}
	key, err := os.ReadFile(t.keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the host's private key cannot be read: %w", err)
	}
	pair, err := keyPairIn(t.certFile, cert, t.keyFile, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the host's certificate: %w", err)
	}
	return pair, nil
}

func (t *trust) readClients() (*x509.CertPool, error) {
	text, err := os.ReadFile(t.caFile)
	if err != nil {
		return nil, fmt.Errorf("the clients' certificate authority cannot be read: %w", err)
	}
	pool, _, err := authorityIn(t.caFile, text)
	if err != nil {
		return nil, fmt.Errorf("the clients' certificate authority: %w", err)
	}
	return pool, nil
}

// certificate is the host's, as the files have it now. While they do not fit together it
// is the last one that was good: the host is nobody else for it.
func (t *trust) certificate() tls.Certificate {
	own, err := t.readOwn()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.own = own
	} else {
		slog.Warn("the host's certificate cannot be used, the one read before is", "error", err)
	}
	return t.own
}

// authorities are those that clients may come from, as the file has it now.
func (t *trust) authorities() (*x509.CertPool, error) { return t.authoritiesAt(time.Now()) }

func (t *trust) authoritiesAt(now time.Time) (*x509.CertPool, error) {
	pool, err := t.readClients()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.clients, t.badSince = pool, time.Time{}
		return pool, nil
	case t.badSince.IsZero():
		t.badSince = now
		slog.Warn("the clients' certificate authority cannot be used, the one read before is for a while", "for", replacementTime, "error", err)
	case now.Sub(t.badSince) > replacementTime:
		return nil, fmt.Errorf("nobody is let in: %w", err)
	}
	return t.clients, nil
}

// CheckServerFiles tells whether an agent can serve TLS with these files now: that they
// can be read, fit together and are in their time, and that the key is private.
func CheckServerFiles(certFile, keyFile, clientCAFile string) error {
	t, err := newTrust(certFile, keyFile, clientCAFile, nil)
	if err != nil {
		return err
	}
	if err := inTime(certFile, t.own.Leaf, time.Now()); err != nil {
		return fmt.Errorf("the host's certificate: %w", err)
	}
	text, err := os.ReadFile(clientCAFile)
	if err != nil {
		return err
	}
	_, authorities, err := authorityIn(clientCAFile, text)
	if err == nil {
		err = oneInTime(clientCAFile, authorities, time.Now())
	}
	if err != nil {
		return fmt.Errorf("the clients' certificate authority: %w", err)
	}
	return nil
}

// lasting is TLS whose connections last as long as what they were let in by: the client's
// certificate, those that signed it, and the authority in the file.
type lasting struct {
	credentials.TransportCredentials
	trust *trust
}

// ServerHandshake implements credentials.TransportCredentials.
func (l lasting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := l.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	shown, ok := info.(credentials.TLSInfo)
	if !ok || len(shown.State.VerifiedChains) == 0 {
		_ = conn.Close() // nobody is let in without a certificate
		return nil, nil, errors.New("the caller has shown no certificate")
	}
	c := guest{shown, l.trust}
	return newMortal(conn, shown.State.VerifiedChains[0], c.stillTrusted), c, nil
}

// Clone implements credentials.TransportCredentials.
func (l lasting) Clone() credentials.TransportCredentials {
	return lasting{l.TransportCredentials.Clone(), l.trust}
}

// guest is who is at the other end of a server's connection.
type guest struct {
	credentials.TLSInfo
	trust *trust
}

// stillTrusted tells whether the caller would be let in now.
func (c guest) stillTrusted() error {
	roots, err := c.trust.authorities()
	if err != nil {
		return err
	}
	return verify(c.State.PeerCertificates, roots, x509.ExtKeyUsageClientAuth)
}

// listed tells whether the host lists the caller.
func (c guest) listed() error {
	if len(c.trust.allow) == 0 {
		return nil
	}
	leaf := c.State.PeerCertificates[0]
	names := slices.Concat([]string{leaf.Subject.CommonName}, leaf.DNSNames, leaf.EmailAddresses)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "" })
	for _, name := range names {
		if slices.ContainsFunc(c.trust.allow, func(a string) bool { return strings.EqualFold(a, name) }) {
			return nil
		}
	}
	return fmt.Errorf("this host does not list the caller: the names in the certificate are %q, and none of them was given to gpu-agent "+
		"with --allow-name", names)
}

// verify tells whether a chain is to be trusted now.
func verify(chain []*x509.Certificate, roots *x509.CertPool, use x509.ExtKeyUsage) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
		return fmt.Errorf("the certificate of %q is not accepted any more: %w", chain[0].Subject.CommonName, err)
	}
	return nil
}

// mortal is a connection that ends when what it was let in by is not accepted any more.
// What runs over it then ends as when it breaks: a change is undone.
type mortal struct {
	net.Conn
	check func() error
	until time.Time // when the first certificate of the chain expires
	once  sync.Once
	done  chan struct{}

	mu     sync.Mutex
	reason error
}

func newMortal(conn net.Conn, chain []*x509.Certificate, check func() error) *mortal {
	m := &mortal{Conn: conn, check: check, done: make(chan struct{})}
	for _, c := range chain {
		if m.until.IsZero() || c.NotAfter.Before(m.until) {
			m.until = c.NotAfter
		}
	}
	go m.watch()
	return m
}

func (m *mortal) watch() {
	for {
		// Certificates count in whole seconds. The wall clock may be put right meanwhile, so
		// it is looked at again and again.
		wait := min(max(time.Until(m.until)+time.Millisecond, 100*time.Millisecond), trustEvery)
		select {
		case <-time.After(wait):
		case <-m.done:
			return
		}
		if err := m.check(); err != nil {
			m.mu.Lock()
			m.reason = err
			m.mu.Unlock()
			slog.Warn("a connection is closed", "peer", m.RemoteAddr().String(), "reason", err)
			_ = m.Close() // that is the point
			return
		}
	}
}

// Read says why the connection has ended when it did so by itself.
func (m *mortal) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.reason != nil {
			err = m.reason
		}
	}
	return n, err
}

// Close ends the watch as well.
func (m *mortal) Close() error {
	m.once.Do(func() { close(m.done) })
	return m.Conn.Close()
}
