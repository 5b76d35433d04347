package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func newClaims(o *hostOptions) *cobra.Command {
	var asJSON, orphaned bool
	show := o.withClient(func(cmd *cobra.Command, client *agent.Client, _ []string) error {
		read, none := client.Claims, "no claims"
		if orphaned {
			read, none = func(ctx context.Context) ([]gpu.Claim, error) { return orphanedClaims(ctx, client) }, "no orphaned claims"
		}
		claims, err := read(cmd.Context())
		if err != nil {
			return err
		}
		j, err := client.Journal(cmd.Context())
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			if err := writeJSON(out, append([]gpu.Claim{}, claims...)); err != nil {
				return err
			}
			return incomplete(j.Unreadable)
		}
		if len(claims) == 0 {
			_, _ = fmt.Fprintln(out, none)
		}
		list(out, "Claims", table.Row{"Kind", "Id", "VM", "Owner", "State"}, claims, func(c gpu.Claim) table.Row {
			state := "complete"
			switch {
			case c.Incomplete:
				state = "incomplete"
			case c.Pending:
				state = "waits for the VM to be off"
			}
			vm := ""
			if a := c.Want.Assignment; a != nil {
				vm = named(cmp.Or(a.VMName, a.VM))
			}
			return table.Row{c.Kind, named(c.ID), vm, named(c.Owner), state}
		})
		showUnreadable(out, j.Unreadable)
		return incomplete(j.Unreadable)
	})
	const about = `An orphaned claim is one of a VM that the host does not have any more: it was deleted, or has
moved to another host, whose record of it then counts. The next change of the claim's owner
drops the claims of VMs that no host has; "gpu-agent claims forget" drops one at once. A node
of a cluster cannot tell alone which VMs are gone, and fails if that matters: the data source
gpu_inventory asks all nodes (orphaned_claims). That a VM is there does not mean that a
resource has its claim: only a state knows its resources.`
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List what Terraform manages on this host, or forget one claim",
		Long:  "claims lists what Terraform manages on this host, or forgets one claim.\n\n" + about,
		Args:  usage(cobra.NoArgs),
		RunE:  show,
	}
	shown := &cobra.Command{
		Use: "list", Short: "List the claims", Long: "list lists the claims.\n\n" + about, Args: usage(cobra.NoArgs), RunE: show,
	}
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	for _, c := range []*cobra.Command{cmd, shown} {
		c.Flags().BoolVar(&orphaned, "orphaned", false, "only claims of VMs that the host does not have any more")
	}
	cmd.AddCommand(shown, newForget(o))
	return cmd
}

// orphanedClaims are the claims of VMs that the host does not have any more, as far as it alone can tell.
func orphanedClaims(ctx context.Context, client *agent.Client) ([]gpu.Claim, error) {
	host, err := client.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	this := map[string]*gpu.Host{host.Name: &host}
	claims := words.Each(gpu.OrphanedClaims(this), func(o gpu.OrphanedClaim) gpu.Claim { return o.Claim })
	if why := gpu.HidesVMs(this); why != "" && len(claims) > 0 {
		ids := words.Each(claims, func(c gpu.Claim) string { return c.ID })
		return nil, fmt.Errorf("whether these claims are orphaned cannot be told on host %s alone, which does not have their VMs: %s. "+
			"Found: %s. Read orphaned_claims of the data source gpu_inventory, which asks all hosts", host.Name, words.JoinAll(ids), why)
	}
	return claims, nil
}

func newForget(o *hostOptions) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "forget KIND ID",
		Short: "Drop one claim and touch nothing else",
		Long: `forget drops the record of who manages an object. The object itself (partitions, pool,
the VM's GPU) stays as it is, and what was there before is no longer known. The state
that managed it shows it as drift in its next plan, and writes it again.

KIND and ID are those that "gpu-agent claims" prints. A run that is at work on the host is
waited for, 90 seconds at most.`,
		Args: usage(cobra.ExactArgs(2)),
		PreRunE: func(*cobra.Command, []string) error {
			if err := o.mayWrite("claims forget"); err != nil {
				return err
			}
			if !yes {
				return &codedError{code: exitBadUsage, err: errors.New("a claim that is forgotten cannot be brought back; --yes says that you mean it")}
			}
			return nil
		},
		RunE: o.withClient(func(cmd *cobra.Command, client *agent.Client, args []string) error {
			return underLease(cmd.Context(), client, "claims forget", time.Minute, func(fence int64) error {
				if err := client.ForgetClaim(cmd.Context(), fence, gpu.ClaimKind(args[0]), args[1]); err != nil {
					return err
				}
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "forgot the claim %s %s; what it stood for is as it was\n", args[0], named(args[1]))
				return nil
			})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// mayWrite refuses a command that writes to a reader.
func (o *hostOptions) mayWrite(command string) error {
	if agent.Role(o.role) != agent.Operator {
		return fmt.Errorf("%s changes the host, and the role is %s", command, o.role)
	}
	return nil
}

// leaseWait is how long a command waits for a run that is at work. One that died may hold its
// cluster for a minute more.
const leaseWait = 90 * time.Second

// underLease does something under the host's lease, which ends after ttl.
func underLease(ctx context.Context, client *agent.Client, command string, ttl time.Duration, do func(fence int64) error) error {
	machine, err := os.Hostname()
	if err != nil {
		machine = "this host"
	}
	req := agent.LeaseRequest{
		Run:    fmt.Sprintf("%s-%d-%d", command, os.Getpid(), time.Now().UnixNano()),
		Holder: fmt.Sprintf("gpu-agent %s on %s, process %d", command, machine, os.Getpid()),
		TTL:    ttl, Cluster: true,
	}
	fence, err := client.AcquireLease(ctx, req)
	if ae, ok := errors.AsType[*agent.Error](err); ok && ae.Code == agent.LeaseHeld {
		logger().Info("waiting", "at most", leaseWait, "for", ae.Message)
		req.Wait = leaseWait
		fence, err = client.AcquireLease(ctx, req)
	}
	if err != nil {
		return err
	}
	err = do(fence)
	return errors.Join(err, client.ReleaseLease(context.WithoutCancel(ctx), fence))
}

// writeJSON prints a document as people and the provider read it.
func writeJSON(out interface{ Write([]byte) (int, error) }, v any) error {
	doc, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(doc, '\n'))
	return err
}
