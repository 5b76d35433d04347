package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// Organisations in a client's certificate that give it a role.
const (
	OperatorOrganization = "gpu-operator"
	ReaderOrganization   = "gpu-reader"
)

// TLSServerOptions are the options of a server that listens. The files are read again
// for each connection and each call, so that they can be replaced while it runs, and a
// connection ends when its certificate or authority does. allow are the names in
// certificates that may act on this host; none means any that has a role.
func TLSServerOptions(certFile, keyFile, clientCAFile string, deadAfter time.Duration, allow ...string) ([]grpc.ServerOption, error) {
	t, err := newTrust(certFile, keyFile, clientCAFile, allow)
	if err != nil {
		return nil, err
	}
	outer := serverConfig(t.own, t.clients)
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		clients, err := t.authorities()
		if err != nil {
			slog.Warn("a connection is refused", "reason", err)
			return nil, err
		}
		return serverConfig(t.certificate(), clients), nil
	}
	return append(serverOptions(deadAfter, maxIdle), agent.LimitCalls(caller), grpc.Creds(introduces{lasting{credentials.NewTLS(outer), t}})),
		nil
}

func serverConfig(own tls.Certificate, clients *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocolHTTP2},
		Certificates: []tls.Certificate{own},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: clients,
		SessionTicketsDisabled: true, // a resumed session would keep an authority that was removed
	}
}

// caller tells clients apart by their certificates.
func caller(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(guest)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return ""
	}
	return string(info.State.PeerCertificates[0].Raw)
}

// RoleOf is the role of the caller of a server that was made with TLSServerOptions: the
// organisation in its certificate, which must still be accepted and be listed.
func RoleOf(ctx context.Context) (agent.Role, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", errors.New("the caller is not known")
	}
	info, ok := p.AuthInfo.(guest)
	if !ok {
		return "", errors.New("the caller has shown no certificate")
	}
	if err := errors.Join(info.stillTrusted(), info.listed()); err != nil {
		return "", err
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
