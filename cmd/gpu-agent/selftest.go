package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/assumptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func newSelftest(o *hostOptions) *cobra.Command {
	var write, answers bool
	cmd := &cobra.Command{
		Use:   "selftest",
		Short: "Check that the agent can work on this host",
		Long: `selftest checks the platform, the state directory, the lease, the journal and the claims.
It only reads; --write also takes the lease and gives it back.

--answers ticks off, by reading only, what is assumed of the platform although nobody
documents it.
Send it in with a report about a mistake: it has the names of VMs, GPUs and pools in it,
and no secrets.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }() // in process
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
			if answers {
				if err := o.answer(cmd.Context(), cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			if failed > 0 {
				return &codedError{code: exitFailed, err: fmt.Errorf("%d checks failed", failed)}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&write, "write", false, "also take the lease and give it back")
	cmd.Flags().BoolVar(&answers, "answers", false, "also tick off what is assumed of its platform")
	return cmd
}

// answer ticks off the assumptions about the host's platform.
func (o *hostOptions) answer(ctx context.Context, out io.Writer) error {
	host, _, err := o.open(ctx)
	if err != nil {
		return err
	}
	tester, ok := host.(backend.SelfTester)
	if !ok {
		_, _ = fmt.Fprintln(out, "\nThis host is simulated: it does what is assumed of its platform.")
		return nil
	}
	about := gpu.Linux
	if _, ok := host.(backend.HyperV); ok {
		about = gpu.HyperV
	}
	answers := map[string]backend.Answer{}
	for _, a := range tester.SelfTest(ctx) {
		answers[a.Assumption] = a
	}
	counts := map[string]int{}
	for _, assumption := range assumptions.Of(about) {
		a := answers[assumption.ID]
		verdict, found := "not asked", "settled by "+assumption.Settles
		switch {
		case a.Err != nil:
			found = strings.TrimSpace(a.Found + "\n" + a.Err.Error())
		case a.Holds != nil && *a.Holds:
			verdict, found = "yes", a.Found
		case a.Holds != nil:
			verdict, found = "no", a.Found
		case assumption.Asked:
			found = strings.TrimSpace("nothing to see it by\n" + a.Found)
		}
		counts[verdict]++
		_, _ = fmt.Fprintf(out, "\n%-9s  %s: %s\n    %s\n", verdict, assumption.ID, assumption.Says, strings.ReplaceAll(found, "\n", "\n    "))
	}
	_, _ = fmt.Fprintf(out, "\nassumptions: %d hold, %d do not, %d not asked\n", counts["yes"], counts["no"], counts["not asked"])
	return nil
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
				return "", fmt.Errorf("a run that has ended left %d changes unsettled, the first for %s; run `gpu-agent reconcile`", len(j.Changes), j.Changes[0].Subject)
			}
			return fmt.Sprintf("%d changes in progress", len(j.Changes)), nil
		}},
	}
	if write {
		out = append(out, check{"write", func(ctx context.Context) (string, error) {
			return "the lease was taken and given back", underLease(ctx, client, "selftest", func(int64) error { return nil })
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
		var parts []string
		for _, u := range host.Unknown {
			parts = append(parts, u.String())
		}
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
