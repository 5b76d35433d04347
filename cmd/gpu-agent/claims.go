package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func newClaims(o *hostOptions) *cobra.Command {
	orphaned := false
	r := &reading{host: o}
	check := func(*cobra.Command, []string) error { return r.check(claimColumns) }
	show := func(cmd *cobra.Command, _ []string) error {
		answers, err := readHosts(cmd, r, readClaims)
		if err == nil && orphaned {
			err = onlyOrphaned(cmd, r, answers)
		}
		if err != nil {
			return err
		}
		if !r.fleet() {
			answers[0].host = o.name()
		}
		out, silent := cmd.OutOrStdout(), unansweredOf(answers)
		switch {
		case r.document():
			err = r.writeDocument(out, claimsDocument(r, answers))
		case r.fleet() || r.tabular():
			r.print(out, silent, claimSheet(answers, r.wide()))
		default:
			showClaims(out, answers[0].value.claims, orphaned)
		}
		var unreadable []gpu.UnreadableRecord
		for _, a := range answers {
			unreadable = append(unreadable, a.value.journal.Unreadable...)
		}
		if !r.document() {
			showUnreadable(out, unreadable)
		}
		return cmp.Or(err, outcome(silent, len(answers)), incomplete(unreadable))
	}
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
		RunE:  show, PreRunE: check,
	}
	shown := &cobra.Command{
		Use: "list", Short: "List the claims", Long: "list lists the claims.\n\n" + about, Args: usage(cobra.NoArgs), RunE: show, PreRunE: check,
	}
	for _, c := range []*cobra.Command{cmd, shown} {
		c.Flags().BoolVar(&orphaned, "orphaned", false, "only claims of VMs that the host does not have any more")
		r.register(c.Flags())
	}
	cmd.AddCommand(shown, newForget(o))
	return cmd
}

// claimed is what one host has on record.
type claimed struct {
	claims  []gpu.Claim
	journal agent.Journal
}

func readClaims(ctx context.Context, client *agent.Client) (out claimed, err error) {
	if out.claims, err = client.Claims(ctx); err == nil {
		out.journal, err = client.Journal(ctx)
	}
	return out, err
}

// onlyOrphaned leaves of the claims those of VMs that none of the hosts has.
func onlyOrphaned(cmd *cobra.Command, r *reading, answers []answer[claimed]) error {
	read, err := readHosts(cmd, r, readInventory)
	if err != nil {
		return err
	}
	hosts := map[string]*gpu.Host{}
	for i := range read {
		hosts[cmp.Or(read[i].host, read[i].value.Name)] = &read[i].value // which goes by its node's name in its cluster
	}
	if err := outcome(unansweredOf(read), len(read)); err != nil {
		return fmt.Errorf("which claims are orphaned cannot be told: %w", err)
	}
	orphans := gpu.OrphanedClaims(hosts)
	if why := gpu.HidesVMs(hosts); why != "" && len(orphans) > 0 {
		ids := words.Each(orphans, func(o gpu.OrphanedClaim) string { return o.Claim.ID })
		of := "on host " + orphans[0].Host + " alone, which does not have their VMs"
		if r.fleet() {
			of = "on the hosts that were asked, which do not have their VMs"
		}
		return fmt.Errorf("whether these claims are orphaned cannot be told %s: %s. "+
			"Found: %s. Read orphaned_claims of the data source gpu_inventory, which asks all hosts", of, why, words.JoinAll(ids))
	}
	for i := range answers {
		answers[i].value.claims = nil
		for _, o := range orphans {
			if !r.fleet() || o.Host == answers[i].host {
				answers[i].value.claims = append(answers[i].value.claims, o.Claim)
			}
		}
	}
	return nil
}

// claimsDocument is the list of claims of this host, or of each host of a configuration.
func claimsDocument(r *reading, answers []answer[claimed]) any {
	if !r.fleet() {
		return append([]gpu.Claim{}, answers[0].value.claims...)
	}
	type one struct {
		Host   string      `json:"host"`
		Claims []gpu.Claim `json:"claims"`
		Error  string      `json:"error,omitempty"`
	}
	document := struct {
		Format string `json:"format"`
		Hosts  []one  `json:"hosts"`
	}{Format: "gpu-agent-claims/v1", Hosts: []one{}}
	for i := range answers {
		a := &answers[i]
		host := one{Host: a.host, Claims: append([]gpu.Claim{}, a.value.claims...)}
		if a.err != nil {
			host.Claims, host.Error = nil, a.why()
		}
		document.Hosts = append(document.Hosts, host)
	}
	return document
}

var claimColumns = columns{
	title: "Claims", names: []string{"Host", "Kind", "Id", "VM", "Owner", "State", "GPUs"}, wide: []string{"GPUs"},
}

// claimSheet is the table of what hosts have on record.
func claimSheet(answers []answer[claimed], wide bool) sheet {
	short := func(id string) string { return id }
	if !wide {
		var ids []string
		for _, a := range answers {
			ids = append(ids, words.Each(a.value.claims, func(c gpu.Claim) string { return c.ID })...)
		}
		short = shortIDs(ids)
	}
	out := sheet{columns: claimColumns}
	for _, a := range answers {
		for i := range a.value.claims {
			c := &a.value.claims[i]
			id := named(c.ID)
			if s := short(c.ID); s != c.ID {
				id = s
			}
			out.rows = append(out.rows, []string{
				named(a.host), string(c.Kind), id, claimedVM(c), named(c.Owner), claimState(c), strings.Join(c.GPUs, "\n"),
			})
		}
	}
	return out
}

// claimState is what is open about a claim.
func claimState(c *gpu.Claim) string {
	switch {
	case c.Incomplete:
		return "incomplete"
	case c.Pending:
		return "waits for the VM to be off"
	}
	return "complete"
}

// claimedVM is the name of a claim's VM.
func claimedVM(c *gpu.Claim) string {
	if a := c.Want.Assignment; a != nil {
		return named(cmp.Or(a.VMName, a.VM))
	}
	return ""
}

// showClaims prints the claims of this host for people.
func showClaims(out io.Writer, claims []gpu.Claim, orphaned bool) {
	switch {
	case len(claims) > 0:
	case orphaned:
		_, _ = fmt.Fprintln(out, "no orphaned claims")
	default:
		_, _ = fmt.Fprintln(out, "no claims")
	}
	list(out, "Claims", table.Row{"Kind", "Id", "VM", "Owner", "State"}, claims, func(c gpu.Claim) table.Row {
		return table.Row{c.Kind, named(c.ID), claimedVM(&c), named(c.Owner), claimState(&c)}
	})
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
