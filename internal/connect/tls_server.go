package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
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
// for each connection, so that they can be replaced while it runs; as long as they do
// not fit together, as in the middle of a replacement, the last ones that did are used.
func TLSServerOptions(certFile, keyFile, clientCAFile string, deadAfter time.Duration) ([]grpc.ServerOption, error) {
	first, err := serverConfig(certFile, keyFile, clientCAFile)
	if err != nil {
		return nil, err
	}
	var good atomic.Pointer[tls.Config]
	good.Store(first)
	outer := first.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config, err := serverConfig(certFile, keyFile, clientCAFile)
		if err != nil {
			slog.Warn("the certificates cannot be used, those read before are", "error", err)
			return good.Load(), nil
		}
		good.Store(config)
		return config, nil
	}
	return append(serverOptions(deadAfter, maxIdle), agent.LimitCalls(caller), grpc.Creds(introduces{credentials.NewTLS(outer)})), nil
}

func serverConfig(certFile, keyFile, clientCAFile string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("the host's certificate %s and key %s cannot be used: %w", certFile, keyFile, err)
	}
	pem, err := os.ReadFile(clientCAFile)
	if err != nil {
		return nil, fmt.Errorf("the clients' certificate authority cannot be read: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the clients' certificate authority: %s holds no certificate in PEM", clientCAFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocolHTTP2},
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: clients,
		SessionTicketsDisabled: true, // a resumed session would keep an authority that was removed
	}, nil
}

// caller tells clients apart by their certificates.
func caller(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return ""
	}
	return string(info.State.PeerCertificates[0].Raw)
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
