package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/assumptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func newSelftest(o *hostOptions) *cobra.Command {
	var write, answers, change bool
	var gpuID string
	cmd := &cobra.Command{
		Use:   "selftest [VM]",
		Short: "Check that the agent can work on this host",
		Long: `selftest checks the platform, the state directory, the lease, the journal and the claims.
It only reads; --write also takes the lease and gives it back.

--answers ticks off, by reading only, what is assumed of the platform although nobody
documents it.
Send it in with a report about a mistake: it has the names of VMs, GPUs and pools in it,
and no secrets.

--change also takes the GPU of --gpu, and on a Hyper-V host the VM that is named, through
all that the agent does with them, under the lease, and puts both back as they were, also
when a step fails. The VM is shut down and started for it, and a GPU whose MIG mode takes
a reset is reset. Name a GPU that nothing uses, and a VM without a GPU that may be off for
some minutes. What it prints is a report to paste into an issue.`,
		Example: "  gpu-agent selftest --answers\n  gpu-agent selftest --change test-vm --gpu 'PCIROOT(16)#PCI(0000)#PCI(0000)'\n  gpu-agent " +
			"selftest --change --gpu GPU-5c8e5ee2-9f4f-4d4a-9c3a-0d0e1f6b7a11",
		Args: usage(cobra.MaximumNArgs(1)),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if change != (gpuID != "") || (!change && len(args) > 0) {
				return &codedError{code: exitBadUsage, err: errors.New("--change and --gpu go together, and only with them a VM is named")}
			}
			return nil
		},
		RunE: o.withClient(func(cmd *cobra.Command, client *agent.Client, args []string) error {
			failed := 0
			for _, c := range checks(client, write) {
				said, err := c.run(cmd.Context())
				if err != nil {
					failed++
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "failed  %s: %v\n", c.name, err)
					continue
				}
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "ok      %s: %s\n", c.name, said)
			}
			if answers || change {
				var tried []backend.Answer
				if change {
					var err error
					vm := strings.Join(args, "")
					if tried, err = o.change(cmd.Context(), client, cmd.OutOrStdout(), vm, gpuID); err != nil {
						return err
					}
				}
				bad, err := o.answer(cmd.Context(), cmd.OutOrStdout(), tried)
				if err != nil {
					return err
				}
				failed += bad
			}
			if failed > 0 {
				return &codedError{code: exitFailed, err: fmt.Errorf("%d checks failed", failed)}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&write, "write", false, "also take the lease and give it back")
	cmd.Flags().BoolVar(&answers, "answers", false, "also tick off what is assumed of its platform")
	cmd.Flags().BoolVar(&change, "change", false, "also change the GPU of --gpu and the VM that is named, and put both back")
	cmd.Flags().StringVar(&gpuID, "gpu", "", "the GPU for --change: an id of gpu-agent inventory")
	return cmd
}

// changeTime bounds a trial: a minute or two for each start and stop of the VM, and the
// lease under which it runs.
const changeTime = 30 * time.Minute

// change lets the backend try what only a change shows.
func (o *hostOptions) change(ctx context.Context, client *agent.Client, out io.Writer, vm, gpuID string) ([]backend.Answer, error) {
	if err := o.mayWrite("selftest --change"); err != nil {
		return nil, err
	}
	inventory, err := client.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range inventory.Claims {
		if c.Covers(gpuID) {
			return nil, fmt.Errorf("GPU %s is managed by Terraform: %s %s has it", gpuID, strings.ReplaceAll(string(c.Kind), "_", " "), c.ID)
		}
	}
	host, _, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	tester, ok := host.(backend.ChangeTester)
	if !ok {
		return nil, errors.New("there is nothing to try on this host: a simulated one does what is assumed of its platform")
	}
	journal, err := client.Journal(ctx)
	if err != nil {
		return nil, err
	}
	if len(journal.Changes) > 0 {
		return nil, fmt.Errorf("a run has left %d changes unsettled: run `gpu-agent reconcile` first", len(journal.Changes))
	}
	_, _ = fmt.Fprintf(out, "\nTrying changes of GPU %s", gpuID)
	if g, ok := inventory.GPU(gpuID); ok {
		_, _ = fmt.Fprintf(out, ", a %s with driver %s, on %s", g.Model, g.Driver.Version, inventory.OS.Name)
	}
	if vm != "" {
		_, _ = fmt.Fprintf(out, ", and of VM %s", vm)
	}
	_, _ = fmt.Fprintln(out)
	var tried []backend.Answer
	err = underLease(ctx, client, "selftest --change", changeTime, func(int64) error {
		ctx, cancel := context.WithTimeout(ctx, changeTime)
		defer cancel()
		tried = tester.SelfTestChange(ctx, vm, gpuID)
		return nil
	})
	return tried, err
}

// answer ticks off the assumptions about the host's platform, with what was tried, of which
// it counts the steps that failed.
func (o *hostOptions) answer(ctx context.Context, out io.Writer, tried []backend.Answer) (failed int, err error) {
	host, _, err := o.open(ctx)
	if err != nil {
		return 0, err
	}
	tester, ok := host.(backend.SelfTester)
	if !ok {
		_, _ = fmt.Fprintln(out, "\nThis host is simulated: it does what is assumed of its platform.")
		return 0, nil
	}
	about := gpu.Linux
	if _, ok := host.(backend.HyperV); ok {
		about = gpu.HyperV
	}
	answers := map[string]backend.Answer{}
	for _, a := range append(tester.SelfTest(ctx), tried...) {
		switch {
		case a.Step == "":
			answers[a.Assumption] = a
		case a.Err != nil:
			failed++
			_, _ = fmt.Fprintf(out, "failed  %s: %v\n", a.Step, a.Err)
		default:
			_, _ = fmt.Fprintf(out, "ok      %s: %s\n", a.Step, a.Found)
		}
	}
	counts := map[string]int{}
	for _, assumption := range assumptions.Of(about) {
		a := answers[assumption.ID]
		verdict, found := "not asked", "answered by "+assumption.Answered
		switch {
		case a.Err != nil:
			found = strings.TrimSpace(a.Found + "\n" + a.Err.Error())
		case a.Holds != nil && *a.Holds:
			verdict, found = "yes", a.Found
		case a.Holds != nil:
			verdict, found = "no", a.Found
		case assumption.Tried && len(tried) == 0:
			found = "--change tries it"
		case assumption.Asked || assumption.Tried:
			found = strings.TrimSpace("nothing to see it by\n" + a.Found)
		}
		counts[verdict]++
		_, _ = fmt.Fprintf(out, "\n%-9s  %s: %s\n    source: %s\n    %s\n", verdict, assumption.ID, assumption.Says,
			assumption.Source, strings.ReplaceAll(found, "\n", "\n    "))
	}
	_, _ = fmt.Fprintf(out, "\nassumptions: %d hold, %d do not, %d not asked\n", counts["yes"], counts["no"], counts["not asked"])
	return failed, nil
}

// check is one thing that has to be right. It says what it found.
type check struct {
	name string
	run  func(context.Context) (string, error)
}

func checks(client *agent.Client, write bool) []check {
	out := []check{
		{"agent", func(ctx context.Context) (string, error) {
			h, err := client.Hello(ctx)
			return fmt.Sprintf("version %s, protocol %d, platform %s, role %s", h.AgentVersion, h.Protocol, h.Platform, h.Role), err
		}},
		{"inventory", func(ctx context.Context) (string, error) { return readTwice(ctx, client) }},
		{"claims", func(ctx context.Context) (string, error) { return claimsStand(ctx, client) }},
		{"records", func(ctx context.Context) (string, error) {
			j, err := client.Journal(ctx)
			if err != nil {
				return "", err
			}
			return "all can be read", incomplete(j.Unreadable)
		}},
		{"lease", func(ctx context.Context) (string, error) {
			j, err := client.Journal(ctx)
			if err != nil || j.Lease == nil {
				return "free", err
			}
			return fmt.Sprintf("held by %s, run %s, since %s", j.Lease.Holder, j.Lease.Run, j.Lease.Since), nil
		}},
		{"journal", func(ctx context.Context) (string, error) {
			j, err := client.Journal(ctx)
			switch {
			case err != nil:
				return "", err
			case len(j.Changes) > 0 && j.Lease == nil:
				return "", fmt.Errorf("a run that has ended left %d changes unsettled, the first for %s; run `gpu-agent reconcile`",
					len(j.Changes), j.Changes[0].Subject)
			}
			return fmt.Sprintf("%d changes in progress", len(j.Changes)), nil
		}},
	}
	if write {
		out = append(out, check{"write", func(ctx context.Context) (string, error) {
			return "the lease was taken and given back", underLease(ctx, client, "selftest", time.Minute, func(int64) error { return nil })
		}})
	}
	return out
}

// readTwice reads the inventory twice. What differs would be a false drift in every
// plan.
func readTwice(ctx context.Context, client *agent.Client) (string, error) {
	var docs [2]string
	var host gpu.Host
	for i := range docs {
		var err error
		if host, err = client.Inventory(ctx); err != nil {
			return "", err
		}
		doc, err := json.Marshal(host)
		if err != nil {
			return "", err
		}
		docs[i] = string(doc)
	}
	if docs[0] != docs[1] {
		return "", errors.New("two inventories, one after the other, differ; if nothing changed in between, this is a mistake of the agent")
	}
	if len(host.Unknown) > 0 {
		parts := words.Each(host.Unknown, gpu.Unknown.String)
		return "", fmt.Errorf("%d parts of the host cannot be read:\n  %s", len(parts), strings.Join(parts, "\n  "))
	}
	return fmt.Sprintf("host %s, %d GPUs, %d VMs", host.Name, len(host.GPUs), len(host.VMs)), nil
}

// claimsStand checks that what the claims name is there.
func claimsStand(ctx context.Context, client *agent.Client) (string, error) {
	host, err := client.Inventory(ctx)
	if err != nil {
		return "", err
	}
	moved := 0
	for _, c := range host.Claims {
		switch c.Kind {
		case gpu.ClaimAssignment:
			if _, ok := host.VM(c.ID); !ok {
				moved++ // a clustered VM's claim stays where it was written
			}
		case gpu.ClaimPool:
			if _, ok := host.Pool(c.ID); !ok && !c.Incomplete {
				return "", fmt.Errorf("the claim for pool %s has no pool", c.ID)
			}
		case gpu.ClaimConfig, gpu.ClaimShare: // what they hold may be lost with a reboot
		}
	}
	return fmt.Sprintf("%d, of which %d are for VMs that are not here now", len(host.Claims), moved), nil
}
