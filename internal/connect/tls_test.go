package connect_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

// listening is an agent that listens on this machine, with its certificates on disk.
type listening struct {
	t                   *testing.T
	address             string
	cert, key, clientCA string
}

// listen starts an agent as `gpu-agent serve --listen` does.
func listen(t *testing.T, clients *authority, own pair) *listening {
	t.Helper()
	return listenOn(t, newListener(t), clients, own)
}

func listenOn(t *testing.T, listener net.Listener, clients *authority, own pair, extra ...grpc.ServerOption) *listening {
	t.Helper()
	return listenFor(t, listener, newHost(t, 0), clients, own, nil, extra...)
}

// listenFor listens for the host of a directory, and lets in who is allowed.
func listenFor(t *testing.T, listener net.Listener, of string, clients *authority, own pair, allow []string,
	extra ...grpc.ServerOption,
) *listening {
	t.Helper()
	dir := t.TempDir()
	l := &listening{t: t, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), clientCA: filepath.Join(dir, "ca.pem")}
	l.replace(l.clientCA, clients.PEM)
	l.install(own)
	options, err := connect.TLSServerOptions(l.cert, l.key, l.clientCA, connect.DefaultDeadAfter, allow...)
	if err != nil {
		t.Fatal(err)
	}
	sim, err := openHost(of)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(options, extra...)...)
	agent.NewServer(sim, sim, agent.WithVersion("2.0.0"), agent.WithRole(connect.RoleOf)).Register(server)
	l.address = serve(t, server, listener)
	return l
}

// serve serves until the test ends.
func serve(t *testing.T, server *grpc.Server, listener net.Listener) (address string) {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve: %v", err)
		}
	})
	return listener.Addr().String()
}

func newListener(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// install replaces the agent's certificate on disk.
func (l *listening) install(p pair) {
	l.t.Helper()
	l.replace(l.cert, p.cert)
	l.replace(l.key, p.key)
}

func (l *listening) replace(path string, content []byte) {
	l.t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// client are the settings of a client.
func (l *listening) client(servers *authority, p pair) connect.TLS {
	return connect.TLS{Address: l.address, CA: servers.PEM, Cert: p.cert, Key: p.key}
}

// TestTLSRoles checks that the organisation in the client's certificate decides what it
// may do.
func TestTLSRoles(t *testing.T) {
	ca := newAuthority(t, "the fleet's authority")
	l := listen(t, ca, ca.issue(nil))
	for _, test := range []struct {
		name          string
		organizations []string
		role          agent.Role
		writes        bool
	}{
		{"operator", []string{"gpu-operator"}, agent.Operator, true},
		{"reader", []string{"corp", "gpu-reader"}, agent.Reader, false},
		{"both", []string{"gpu-reader", "gpu-operator"}, agent.Operator, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn, err := connect.DialTLS(t.Context(), host, l.client(ca, ca.issue(of(test.organizations...))), options)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }() // only its calls count
			if conn.Hello.Role != test.role || conn.Hello.AgentVersion != "2.0.0" {
				t.Errorf("the agent says %+v", conn.Hello)
			}
			c := agent.NewClient(conn, host)
			if _, err := c.Inventory(t.Context()); err != nil {
				t.Errorf("inventory: %v", err)
			}
			fence, err := c.AcquireLease(t.Context(), agent.LeaseRequest{Run: test.name, TTL: time.Minute})
			if test.writes {
				if err == nil {
					err = c.ReleaseLease(t.Context(), fence)
				}
				if err != nil {
					t.Errorf("lease: %v", err)
				}
				return
			}
			if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.Denied {
				t.Errorf("lease: %v, want an agent.Error of kind denied", err)
			}
		})
	}
	for _, organizations := range [][]string{nil, {"corp"}} {
		_, err := connect.DialTLS(t.Context(), host, l.client(ca, ca.issue(of(organizations...))), options)
		e, ok := errors.AsType[*connect.Error](err)
		if !ok || e.Code != connect.Authentication || !strings.Contains(err.Error(), "gpu-reader") {
			t.Errorf("%v: %v, want a connect.Error of kind authentication that says which organisations there are", organizations, err)
		}
	}
}

// TestTLSRefused checks the error of each connection that is not made.
func TestTLSRefused(t *testing.T) {
	ca, other := newAuthority(t, "the fleet's authority"), newAuthority(t, "another authority")
	l := listen(t, ca, ca.issue(nil))
	late := listen(t, ca, ca.issue(expired))
	good := ca.issue(nil)

	closed := newListener(t)
	_ = closed.Close() // the port is free again
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web.StartTLS()
	t.Cleanup(web.Close)
	webCA := &authority{PEM: certificatePEM(web.Certificate())}
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	hung := newListener(t) // accepts and hangs up
	go func() {
		for {
			c, err := hung.Accept()
			if err != nil {
				return
			}
			_ = c.Close() // that is the point
		}
	}()
	t.Cleanup(func() { _ = hung.Close() })

	for _, test := range []struct {
		name   string
		client connect.TLS
		code   connect.Code
		says   string
	}{
		{
			"nobody listens",
			connect.TLS{Address: closed.Addr().String(), CA: ca.PEM, Cert: good.cert, Key: good.key},
			connect.Unreachable, closed.Addr().String(),
		},
		{
			"no TLS",
			connect.TLS{Address: strings.TrimPrefix(plain.URL, "http://"), CA: ca.PEM, Cert: good.cert, Key: good.key},
			connect.Garbage, "does not look like a TLS handshake",
		},
		{
			"a web server",
			connect.TLS{Address: strings.TrimPrefix(web.URL, "https://"), CA: webCA.PEM, Cert: good.cert, Key: good.key},
			connect.Certificate, "no application protocol",
		},
		{"hangs up", connect.TLS{Address: hung.Addr().String(), CA: ca.PEM, Cert: good.cert, Key: good.key}, connect.Ended, "handshake"},
		{"the host's authority is another one", l.client(other, good), connect.Certificate, "unknown authority"},
		{"the host's certificate is expired", late.client(ca, good), connect.Certificate, "expired"},
		{
			"the host has another name",
			connect.TLS{Address: l.address, ServerName: "hv02", CA: ca.PEM, Cert: good.cert, Key: good.key},
			connect.Certificate, "hv02",
		},
		{"the client's authority is another one", l.client(ca, other.issue(nil)), connect.Certificate, "did not accept"},
		{"the client's certificate is expired", l.client(ca, ca.issue(expired)), connect.Certificate, "expired"},
		{
			"the client's certificate is a server's",
			l.client(ca, ca.issue(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })),
			connect.Certificate, "did not accept",
		},
		{"no certificate", connect.TLS{Address: l.address, CA: ca.PEM}, connect.Settings, "cert_file"},
		{
			"the key of another certificate",
			connect.TLS{Address: l.address, CA: ca.PEM, Cert: good.cert, Key: ca.issue(nil).key},
			connect.Settings, "key_file",
		},
		{"no authority", connect.TLS{Address: l.address, CA: []byte("none"), Cert: good.cert, Key: good.key}, connect.Settings, "ca_file"},
		{
			"no port",
			connect.TLS{Address: "127.0.0.1", ServerName: "hv01.corp.example", CA: ca.PEM, Cert: good.cert, Key: good.key},
			connect.Settings, "host:port",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn, err := connect.DialTLS(t.Context(), host, test.client, options)
			if err == nil {
				_ = conn.Close() // the test has failed
				t.Fatal("it was let in")
			}
			e, ok := errors.AsType[*connect.Error](err)
			if !ok || e.Code != test.code || e.Host != host || e.Fix == "" {
				t.Fatalf("%v\nwant a connect.Error with code %s for %s with a fix", err, test.code, host)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v\ndoes not say %q", err, test.says)
			}
			if strings.Contains(err.Error(), "PRIVATE KEY") {
				t.Errorf("a key is in the message: %v", err)
			}
		})
	}
}

// TestTLSServerIsStrict checks the server against clients that are not ours.
func TestTLSServerIsStrict(t *testing.T) {
	ca := newAuthority(t, "the fleet's authority")
	l := listen(t, ca, ca.issue(nil))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	good := ca.issue(nil)
	cert, err := tls.X509KeyPair(good.cert, good.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		config *tls.Config
		says   string
	}{
		{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}, "protocol version"},
		{"no client certificate", &tls.Config{MinVersion: tls.VersionTLS13}, "certificate required"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.config.RootCAs, test.config.NextProtos = roots, []string{"h2"}
			conn, err := (&tls.Dialer{Config: test.config}).DialContext(t.Context(), "tcp", l.address)
			if err == nil {
				defer func() { _ = conn.Close() }() // only the answer counts
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the refusal comes after the handshake
			}
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want a refusal: %s", err, test.says)
			}
		})
	}
}

// TestTLSRotation checks that a certificate and an authority that are replaced on disk
// count for the next connection, and that half a replacement stops nobody.
func TestTLSRotation(t *testing.T) {
	old, next := newAuthority(t, "the old authority"), newAuthority(t, "the next authority")
	l := listen(t, old, old.issue(nil))
	dial := func(servers *authority, p pair) (*connect.Conn, error) {
		return connect.DialTLS(t.Context(), host, l.client(servers, p), options)
	}
	before, err := dial(old, old.issue(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Close() }() // only its calls count

	fresh := next.issue(nil)
	l.replace(l.cert, fresh.cert) // its key is not there yet
	half, err := dial(old, old.issue(nil))
	if err != nil {
		t.Fatalf("in the middle of a replacement: %v", err)
	}
	_ = half.Close() // that it was made counts

	l.replace(l.key, fresh.key)
	l.replace(l.clientCA, next.PEM)
	after, err := dial(next, next.issue(nil))
	if err != nil {
		t.Fatalf("after the replacement: %v", err)
	}
	_ = after.Close() // that it was made counts
	if _, err := dial(next, old.issue(nil)); err == nil {
		t.Error("a client of the authority that was removed is let in")
	}
	_, err = agent.NewClient(before, host).Inventory(t.Context())
	if e, ok := errors.AsType[*agent.Error](err); !ok || e.Code != agent.Denied {
		t.Errorf("the connection that was open: %v, want an agent.Error of kind denied", err)
	}
}

// TestTLSServerFiles checks that an agent does not start with files that cannot serve.
func TestTLSServerFiles(t *testing.T) {
	ca := newAuthority(t, "the fleet's authority")
	l := listen(t, ca, ca.issue(nil))
	junk := filepath.Join(t.TempDir(), "junk.pem")
	l.replace(junk, []byte("junk"))
	for _, files := range [][3]string{
		{"none.pem", l.key, l.clientCA}, {l.cert, junk, l.clientCA}, {l.cert, l.key, "none.pem"}, {l.cert, l.key, junk},
	} {
		_, err := connect.TLSServerOptions(files[0], files[1], files[2], connect.DefaultDeadAfter)
		if err == nil || !strings.Contains(err.Error(), "none.pem") && !strings.Contains(err.Error(), junk) {
			t.Errorf("%v: %v, want an error that names the file", files, err)
		}
	}
}
