package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
)

// serviceName is the name of the service, and of its source in the event log.
const serviceName = "gpu-agent"

// runService runs a command line under the service manager, which has started this
// process. The command line is one that people could type too.
func runService(args []string) error {
	s := &service{args: args}
	err := svc.Run(serviceName, s)
	switch {
	case errors.Is(err, windows.ERROR_FAILED_SERVICE_CONTROLLER_CONNECT):
		return &codedError{
			code: exitBadUsage, err: errors.New("only the service manager runs this; start the service with: sc.exe start " + serviceName),
		}
	case err != nil:
		return fmt.Errorf("the service manager refused the service: %w", err)
	case s.code != 0:
		return &codedError{code: s.code} // it has said why
	}
	return nil
}

// service answers the service manager.
type service struct {
	args []string
	code int
}

// stopHint is how long the manager may wait for the next sign of life of a service
// that stops: putting a change back can take a VM's shutdown and start.
const stopHint = 30 * time.Second

// Execute implements svc.Handler.
func (s *service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	if events, err := eventlog.Open(serviceName); err == nil {
		defer func() { _ = events.Close() }() // nothing is buffered
		logHandler = &eventHandler{log: events}
		complain = func(text string) { slog.New(logHandler).Error(text) }
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan int, 1)
	go func() { done <- run(ctx, s.args) }()
	running := svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	status <- running
	now := running
	alive := time.NewTicker(stopHint / 3)
	defer alive.Stop()
	for {
		select {
		case s.code = <-done:
			status <- svc.Status{State: svc.StopPending}
			return true, uint32(s.code)
		case <-alive.C:
			if now.State == svc.StopPending {
				now.CheckPoint++
				status <- now
			}
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				status <- now
			case svc.Stop, svc.Shutdown:
				now = svc.Status{State: svc.StopPending, WaitHint: uint32(stopHint.Milliseconds()), CheckPoint: 1}
				status <- now
				cancel()
			}
		}
	}
}

// eventHandler writes log records to the event log.
type eventHandler struct {
	log   *eventlog.Log
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (h *eventHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

// Handle implements slog.Handler.
func (h *eventHandler) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message)
	write := func(a slog.Attr) bool {
		fmt.Fprintf(&text, "\n%s: %v", a.Key, a.Value)
		return true
	}
	for _, a := range h.attrs {
		write(a)
	}
	r.Attrs(write)
	const event = 1 // of eventcreate's message file, which takes 1 to 1000
	switch {
	case r.Level >= slog.LevelError:
		return h.log.Error(event, text.String())
	case r.Level >= slog.LevelWarn:
		return h.log.Warning(event, text.String())
	default:
		return h.log.Info(event, text.String())
	}
}

// WithAttrs implements slog.Handler.
func (h *eventHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &eventHandler{log: h.log, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements slog.Handler; groups are not used.
func (h *eventHandler) WithGroup(string) slog.Handler { return h }

func platformCommands() []*cobra.Command { return []*cobra.Command{newService()} }

func newService() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Install or remove the Windows service",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "install -- serve --listen ADDRESS ...",
		Short: "Install the service, which runs the given command line",
		Long: `install registers the service gpu-agent and its source in the event log. The service
starts with Windows, after Hyper-V's management service, and again when it fails. It runs
as SYSTEM: a program that others than administrators may change or replace is refused.

  gpu-agent service install -- serve --listen :8443 --cert C:\ProgramData\gpu-agent-tls\host.pem --key ` +
			`C:\ProgramData\gpu-agent-tls\host.key --client-ca C:\ProgramData\gpu-agent-tls\ca.pem`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error { return installService(args) },
	}, &cobra.Command{
		Use:   "remove",
		Short: "Remove the service",
		Args:  usage(cobra.NoArgs),
		RunE:  func(*cobra.Command, []string) error { return removeService() },
	}, &cobra.Command{
		Use:    "run -- serve --listen ADDRESS ...",
		Short:  "Be the service; the service manager runs this",
		Hidden: true,
		Args:   usage(cobra.MinimumNArgs(1)),
		RunE:   func(_ *cobra.Command, args []string) error { return runService(args) },
	})
	return cmd
}

func installService(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := statedir.CheckProgram(self); err != nil {
		return err
	}
	manager, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("the service manager refuses this user: %w", err)
	}
	defer func() { _ = manager.Disconnect() }() // only read from
	s, err := manager.CreateService(serviceName, self, mgr.Config{
		DisplayName:  "GPU agent for Terraform",
		Description:  "Shares the GPUs of this host as Terraform declares it.",
		StartType:    mgr.StartAutomatic,
		Dependencies: []string{"vmms"},
	}, append([]string{"service", "run", "--"}, args...)...)
	if err != nil {
		return fmt.Errorf("the service %s could not be installed: %w", serviceName, err)
	}
	defer func() { _ = s.Close() }() // only a handle
	if err := s.SetRecoveryActions([]mgr.RecoveryAction{{Type: mgr.ServiceRestart, Delay: 5 * time.Second}},
		uint32((24 * time.Hour).Seconds())); err != nil {
		return errors.Join(fmt.Errorf("the service could not be told to start again when it fails: %w", err), s.Delete())
	}
	const kinds = eventlog.Error | eventlog.Warning | eventlog.Info
	if err := eventlog.InstallAsEventCreate(serviceName, kinds); err != nil && !strings.Contains(err.Error(), "exists") {
		return errors.Join(fmt.Errorf("the source in the event log could not be registered: %w", err), s.Delete())
	}
	return nil
}

func removeService() error {
	manager, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("the service manager refuses this user: %w", err)
	}
	defer func() { _ = manager.Disconnect() }() // only read from
	s, err := manager.OpenService(serviceName)
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the service %s could not be opened: %w", serviceName, err)
	}
	defer func() { _ = s.Close() }() // only a handle
	if _, err := s.Control(svc.Stop); err != nil && !errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return fmt.Errorf("the service %s could not be stopped: %w", serviceName, err)
	}
	// A service that is marked goes when its last handle is closed.
	if err := s.Delete(); err != nil && !errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
		return fmt.Errorf("the service %s could not be removed: %w", serviceName, err)
	}
	_ = eventlog.Remove(serviceName) // its messages stay readable either way
	return nil
}
