package connect

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// TLS is an agent that listens. Settings have their names in the provider's configuration.
type TLS struct {
	Address    string `json:"address"`     // host:port
	ServerName string `json:"server_name"` // the name in the host's certificate, if not that of the address
	// CA signed the host's certificate; Cert and Key are the client's. All are PEM.
	CA, Cert, Key []byte `json:"-"`
	// CAFile, CertFile and KeyFile are where they were read, for messages.
	CAFile   string `json:"ca_file"`
	CertFile string `json:"cert_file"`
	KeyFile  string `json:"key_file"`
}

// dialTimeout bounds opening a connection and its handshake.
const dialTimeout = 30 * time.Second

// DialTLS connects to an agent that listens, with TLS 1.3 and a client certificate.
func DialTLS(ctx context.Context, host string, t TLS, o Options) (*Conn, error) {
	config, err := t.config(host)
	if err != nil {
		return nil, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(dialCtx, "tcp", t.Address)
	if err != nil {
		return nil, unreachable(host, t.Address, err)
	}
	conn := tls.Client(raw, config)
	stream, err := shakeHands(dialCtx, host, t.Address, conn)
	if err != nil {
		_ = raw.Close() // the first error counts
		return nil, err
	}
	stream = newMortal(stream, conn.ConnectionState().VerifiedChains[0], func() error {
		if err := inTime(named("cert_file", t.CertFile), config.Certificates[0].Leaf, time.Now()); err != nil {
			return err
		}
		return verify(conn.ConnectionState().PeerCertificates, config.RootCAs, x509.ExtKeyUsageServerAuth)
	})
	return overConn(ctx, host, stream, o, grpc.WithKeepaliveParams(cmp.Or(o.pulse, clientKeepalive)))
}

// named is an argument with the file that it names.
func named(argument, file string) string { return strings.TrimSpace(argument + " " + file) }

// shakeHands returns when the agent has accepted the client's certificate. In TLS 1.3
// the client's side of the handshake ends before that, and a refusal comes with the
// first read; by then a write may have failed with nothing but a broken pipe. So nothing
// is written before the agent has, which as every HTTP/2 server does so at once.
func shakeHands(ctx context.Context, host, address string, conn *tls.Conn) (net.Conn, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, badHandshake(host, address, err)
	}
	if conn.ConnectionState().NegotiatedProtocol != protocolHTTP2 {
		return nil, badHandshake(host, address, errNotHTTP2)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	s := spoken{Conn: conn, r: bufio.NewReader(conn)}
	_, err := s.r.Peek(1)
	switch alert := alertIn(err); {
	case alert != nil:
		return nil, &Error{
			Host: host, Code: Certificate, Found: "the host did not accept the client's certificate", Err: alert,
			Fix: "use a certificate of the authority that the agent was started with, not expired, and made for client authentication",
		}
	case err != nil && ctx.Err() != nil:
		return nil, badHandshake(host, address, ctx.Err())
	case err != nil:
		return nil, badHandshake(host, address, err)
	}
	return s, nil
}

// spoken is a connection whose other end has begun to speak.
type spoken struct {
	net.Conn
	r *bufio.Reader
}

func (s spoken) Read(b []byte) (int, error) { return s.r.Read(b) }

// protocolHTTP2 is what gRPC wants to be agreed in the handshake.
const protocolHTTP2 = "h2"

var errNotHTTP2 = errors.New("the other end speaks TLS, but not HTTP/2")

func (t TLS) config(host string) (*tls.Config, error) {
	name, _, err := net.SplitHostPort(t.Address)
	if err != nil {
		return nil, &Error{
			Host: host, Code: Settings, Found: fmt.Sprintf("the address %q is not host:port", t.Address),
			Err: err, Fix: "write it as hv01.corp.example:8443",
		}
	}
	bad := func(err error) error {
		e := &Error{
			Host: host, Code: Settings, Found: "the files for TLS cannot be used", Err: err,
			Fix: "give the authority that signed the host's certificate, and the client's certificate with its own private key, all in PEM",
		}
		if errors.Is(err, errOutOfTime) {
			e.Code, e.Found, e.Fix = Certificate, "a certificate on this machine is not of use now", "replace the file"
		}
		return e
	}
	roots, authorities, err := authorityIn(named("ca_file", t.CAFile), t.CA)
	if err != nil {
		return nil, bad(err)
	}
	if err := oneInTime(named("ca_file", t.CAFile), authorities, time.Now()); err != nil {
		return nil, bad(err)
	}
	cert, err := keyPairIn(named("cert_file", t.CertFile), t.Cert, named("key_file", t.KeyFile), t.Key)
	if err != nil {
		return nil, bad(err)
	}
	if err := inTime(named("cert_file", t.CertFile), cert.Leaf, time.Now()); err != nil {
		return nil, bad(err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocolHTTP2}, ServerName: cmp.Or(t.ServerName, name),
		RootCAs: roots, Certificates: []tls.Certificate{cert},
		// Sent even when the host asks for another authority's: its refusal says more
		// than that no certificate came.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	}, nil
}

// badHandshake is the error of a handshake: whose certificate, or whether it is TLS at
// all.
func badHandshake(host, address string, err error) *Error {
	const service = "look at the port, and whether `gpu-agent serve --listen` runs there"
	if verify, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &Error{
			Host: host, Code: Certificate, Found: "the certificate of " + address + " is not to be trusted", Err: verify.Err,
			Fix: "see that ca_file is the authority that signed it, that it is not expired, and that address or server_name is a name in it",
		}
	}
	if alert := alertIn(err); alert != nil {
		return &Error{
			Host: host, Code: Certificate, Found: address + " refused the handshake", Err: alert,
			Fix: service + "; both ends must speak TLS 1.3",
		}
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, errNotHTTP2) {
		return &Error{Host: host, Code: Garbage, Found: "something else than gpu-agent answers at " + address, Err: err, Fix: service}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &Error{Host: host, Code: Unreachable, Found: address + " did not answer the handshake", Err: err, Fix: service}
	}
	return &Error{Host: host, Code: Ended, Found: "the handshake with " + address + " broke off", Err: err, Fix: service}
}

// alertIn is what the other end said when it refused: package tls gives its alerts no
// type of their own.
func alertIn(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return op.Err
	}
	return nil
}
