package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// Organisations in a client's certificate that give it a role.
const (
	OperatorOrganization = "gpu-operator"
	ReaderOrganization   = "gpu-reader"
)

// TLS is an agent that listens.
type TLS struct {
	Address    string // host:port
	ServerName string // the name in the host's certificate, if not that of the address
	// CA signed the host's certificate; Cert and Key are the client's. All are PEM.
	CA, Cert, Key []byte
}

// dialTimeout bounds opening a connection and its handshake.
const dialTimeout = 30 * time.Second

// DialTLS connects to an agent that listens, with TLS 1.3 and a client certificate.
func DialTLS(ctx context.Context, host string, t TLS, o Options) (*Conn, error) {
	config, err := t.config(host)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, unreachable(host, t.Address, err)
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the first error counts
		return nil, badHandshake(host, t.Address, err)
	}
	return overConn(ctx, host, conn, o, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 20 * time.Second, PermitWithoutStream: true}))
}

func (t TLS) config(host string) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(t.CA) {
		return nil, &Error{Host: host, Kind: Settings, Found: "the certificate authority (ca_file) holds no certificate in PEM", Fix: "give the authority that signed the host's certificate"}
	}
	cert, err := tls.X509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, &Error{Host: host, Kind: Settings, Found: "the client's certificate and key (cert_file, key_file) cannot be used", Err: err, Fix: "give a certificate and its own private key, both in PEM"}
	}
	name := t.ServerName
	if name == "" {
		if name, _, err = net.SplitHostPort(t.Address); err != nil {
			return nil, &Error{Host: host, Kind: Settings, Found: "the address is not host:port", Err: err, Fix: "write it as hv01.corp.example:8443"}
		}
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: name, NextProtos: []string{"h2"}}, nil
}

func unreachable(host, address string, err error) *Error {
	return &Error{Host: host, Kind: Unreachable, Found: "nothing answers at " + address, Err: err, Fix: "look at the address, the firewall, and whether the host is up"}
}

func badHandshake(host, address string, err error) *Error {
	var verify *tls.CertificateVerificationError
	if errors.As(err, &verify) {
		return &Error{Host: host, Kind: Certificate, Found: "the certificate of " + address + " is not to be trusted", Err: verify.Err,
			Fix: "see that ca_file is the authority that signed it, that it is not expired, and that address or server_name is a name in it"}
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return &Error{Host: host, Kind: Certificate, Found: address + " refused the handshake", Err: alert,
			Fix: "use a certificate of the authority that the agent was started with (--client-ca); both ends must speak TLS 1.3"}
	}
	return &Error{Host: host, Kind: Unreachable, Found: "no gpu-agent with TLS answers at " + address, Err: err, Fix: "look at the port, and whether `gpu-agent serve --listen` runs there"}
}

// TLSServerOptions are the options of a server that listens. Certificates are read for
// each connection, so that they can be replaced while it runs.
func TLSServerOptions(certFile, keyFile, clientCAFile string, deadAfter time.Duration) ([]grpc.ServerOption, error) {
	load := func() (*tls.Config, error) {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("the host's certificate cannot be used: %w", err)
		}
		pem, err := os.ReadFile(clientCAFile)
		if err != nil {
			return nil, fmt.Errorf("the clients' certificate authority cannot be read: %w", err)
		}
		clients := x509.NewCertPool()
		if !clients.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", clientCAFile)
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		}, nil
	}
	config, err := load()
	if err != nil {
		return nil, err
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return load() }
	return append(ServerOptions(deadAfter), grpc.Creds(credentials.NewTLS(config))), nil
}

// RoleOf is the role of the caller of a server that was made with TLSServerOptions: the
// organisation in its certificate.
func RoleOf(ctx context.Context) (agent.Role, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", errors.New("the caller is not known")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", errors.New("the caller has shown no certificate")
	}
	subject := info.State.VerifiedChains[0][0].Subject
	switch {
	case slices.Contains(subject.Organization, OperatorOrganization):
		return agent.Operator, nil
	case slices.Contains(subject.Organization, ReaderOrganization):
		return agent.Reader, nil
	}
	return "", fmt.Errorf("the certificate of %q gives no role: its organisation is %q, and must be %s or %s",
		subject.CommonName, subject.Organization, OperatorOrganization, ReaderOrganization)
}
