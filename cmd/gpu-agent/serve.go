package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
)

const (
	// shutdownTimeout bounds what is left to write after the last call has ended.
	shutdownTimeout = 30 * time.Second
	// recoveryTimeout bounds looking after a change that lost its lease.
	recoveryTimeout = 10 * time.Minute
	// reconcileTimeout bounds what a service does at its start.
	reconcileTimeout = 2 * time.Minute
)

type serveOptions struct {
	*hostOptions
	stdio               bool
	listen              string
	cert, key, clientCA string
	allow               []string
	deadAfter           time.Duration
}

func newServe(host *hostOptions) *cobra.Command {
	o := &serveOptions{hostOptions: host}
	cmd := &cobra.Command{
		Use:   "serve --stdio | --listen ADDRESS",
		Short: "Serve the provider",
		Long: `serve --stdio serves one connection on standard input and output; sshd starts it.
It outlives its session: when the connection ends in the middle of a change, the change
is put back, VMs are started again, and only then does it end.

serve --listen serves TLS 1.3. A client needs a certificate of --client-ca whose
organisation is gpu-operator or gpu-reader, and with --allow-name one of these names.
Certificates are read for each connection and each call; a connection ends when its
certificate or authority does. At its start it settles what a killed predecessor left.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			named := cmd.Flags().Changed("allow-name") // and not from the environment, which both ways have
			if err := fromEnvironment(cmd.Flags(), "allow-name"); err != nil {
				return err
			}
			switch {
			case o.stdio == (o.listen != ""):
				return &codedError{code: exitBadUsage, err: errors.New("serve needs either --stdio or --listen ADDRESS")}
			case o.stdio && named:
				return &codedError{code: exitBadUsage, err: errors.New("--allow-name goes with --listen: over --stdio there is no certificate")}
			case o.stdio:
				return o.onStdio(cmd.Context())
			case o.cert == "" || o.key == "" || o.clientCA == "":
				return &codedError{
					code: exitBadUsage, err: errors.New("--listen needs --cert, --key and --client-ca: without them anyone could change the host"),
				}
			case slices.ContainsFunc(o.allow, func(name string) bool { return strings.TrimSpace(name) == "" }):
				return &codedError{code: exitBadUsage, err: errors.New("--allow-name is empty; it is the name in a client's certificate")}
			}
			return o.onTLS(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.stdio, "stdio", false, "serve one connection on standard input and output")
	flags.StringVar(&o.listen, "listen", "", "address to listen on, such as :8443")
	flags.StringVar(&o.cert, "cert", "", "certificate of the host (PEM)")
	flags.StringVar(&o.key, "key", "", "its private key (PEM)")
	flags.StringVar(&o.clientCA, "client-ca", "", "authority that signs the certificates of clients (PEM)")
	flags.StringSliceVar(&o.allow, "allow-name", nil,
		"name in the certificate of a client that may act on this host (common name, DNS name, mail address or URI); may be repeated. Without "+
			"it any certificate of --client-ca with a role may")
	flags.DurationVar(&o.deadAfter, "dead-after", connect.DefaultDeadAfter, "how long a client may give no sign of life")
	return cmd
}

// logger writes to standard error, which sshd sends to the client, or to the log of a
// service. A client that is gone is no reason to fail.
func logger() *slog.Logger { return slog.New(logHandler) }

func (o *serveOptions) onStdio(ctx context.Context) error {
	done, err := leaveSession()
	if err != nil || done {
		return err
	}
	server, err := o.server(ctx)
	if err != nil {
		return err
	}
	in, out := stdio()
	g := grpc.NewServer(connect.ServerOptions(o.deadAfter)...)
	server.Register(g)
	err = connect.ServeStdio(ctx, in, out, g)
	return errors.Join(err, end(ctx, server))
}

func (o *serveOptions) onTLS(ctx context.Context) error {
	log := logger()
	server, err := o.server(ctx, agent.WithRole(connect.RoleOf))
	if err != nil {
		return err
	}
	if err := connect.CheckServerFiles(o.cert, o.key, o.clientCA); err != nil {
		return err
	}
	options, err := connect.TLSServerOptions(o.cert, o.key, o.clientCA, o.deadAfter, o.allow...)
	if err != nil {
		return err
	}
	settling, giveUp := context.WithCancel(ctx)
	var later sync.WaitGroup
	defer later.Wait()
	defer giveUp()
	if ae, ok := errors.AsType[*agent.Error](settle(settling, server, 0)); ok && ae.Code == agent.LeaseHeld {
		// By a run that is at work, or by one that went with the power: that shows in time.
		later.Go(func() { _ = settle(settling, server, leaseWait) }) // it is logged
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("could not listen on %s: %w", o.listen, err)
	}
	log.Info("listening", "address", listener.Addr().String(), "version", version)
	g := grpc.NewServer(options...)
	server.Register(g)
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	if err := g.Serve(connect.Shed(listener)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	g.Stop() // waits for the calls
	return end(ctx, server)
}

// settle settles what earlier runs left, and waits so long for one that holds the lease.
func settle(ctx context.Context, server *agent.Server, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	log := logger()
	settled, err := server.Reconcile(ctx, wait)
	for _, s := range settled {
		log.Info("settled what was left", "subject", s.Subject, "kept", s.Kept, "started", s.Started,
			"restored", s.Restored, "dropped", s.Dropped, "stands", s.Stands)
	}
	if err != nil {
		log.Warn("what earlier runs left is not settled; the next run tries again", "error", err)
	}
	return err
}

// end settles what is left when the last call has ended.
func end(ctx context.Context, server *agent.Server) error {
	recovering, stop := context.WithTimeout(context.WithoutCancel(ctx), recoveryTimeout)
	server.AwaitRecovery(recovering)
	stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return server.Shutdown(ctx)
}
