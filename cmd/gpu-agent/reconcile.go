package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
)

// unavailableWait is between two looks at a host that does not answer yet.
const unavailableWait = time.Second

func unavailable(err error) bool {
	e, ok := errors.AsType[*agent.Error](err)
	return ok && e.Code == agent.Unavailable
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func newReconcile(o *hostOptions) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Settle what killed runs left, and restore what a reboot lost",
		Long: `reconcile takes the lease and settles the journal: a change that was complete stays, one
that was cut off is rolled back, and VMs that a change stopped and that are still off are
started. Then it restores what a reboot lost of the layout declared for this host: MIG mode
(unless that requires a reset of the GPU) and missing GPU instances; virtual functions and
vGPUs; compute modes, time slices and MPS daemons, also those that died; and the CDI
specifications of shares. CDI specifications of this agent that no claim covers are removed,
unless processes run in their share. It changes nothing else: it removes no instance, kills
no process, and leaves alone what others have set and VMs that moved to another node. Run it
at boot, before kubelet and container engines. It waits up to --timeout for a run in
progress and for a platform that does not answer yet; a restore that has begun is always
finished.

It exits with 1 when something could not be put back.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.mayWrite("reconcile"); err != nil {
				return err
			}
			server, err := o.server(cmd.Context())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			settled, err := server.Reconcile(ctx, timeout)
			// At boot, the platform's services may come later than this command.
			for unavailable(err) && wait(ctx, unavailableWait) {
				settled, err = server.Reconcile(ctx, timeout)
			}
			out := cmd.OutOrStdout()
			stands := 0
			list := func(what []string) {
				for _, one := range what {
					_, _ = fmt.Fprintf(out, "  %s\n", one)
				}
			}
			for _, s := range settled {
				if len(s.Restored) > 0 {
					_, _ = fmt.Fprintf(out, "%s: restored\n", s.Subject)
					list(s.Restored)
				}
				if len(s.Dropped) > 0 {
					_, _ = fmt.Fprintf(out, "%s: taken back from containers\n", s.Subject)
					list(s.Dropped)
				}
				if len(s.Started) > 0 {
					_, _ = fmt.Fprintf(out, "%s: VMs that it had stopped are started\n", s.Subject)
					list(s.Started)
				}
				switch {
				case len(s.Stands) > 0:
					stands++
					_, _ = fmt.Fprintf(out, "%s: not everything could be put back\n", s.Subject)
					list(s.Stands)
				case len(s.Restored)+len(s.Dropped)+len(s.Started) > 0:
				case s.Kept:
					_, _ = fmt.Fprintf(out, "%s: complete, kept\n", s.Subject)
				default:
					_, _ = fmt.Fprintf(out, "%s: put back\n", s.Subject)
				}
			}
			switch {
			case err != nil:
				return err
			case stands > 0:
				return &codedError{code: exitFailed}
			case len(settled) == 0:
				_, _ = fmt.Fprintln(out, "nothing to settle")
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait for a run that is at work, and for the platform")
	return cmd
}
