package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// vmActs are what `vm` does, by what people write.
var vmActs = map[string]change.Act{"apply-pending": change.ActPending, "start": change.ActStart, "stop": change.ActStop}

func newVM(o *hostOptions) *cobra.Command {
	var yes bool
	acts := strings.Join(slices.Sorted(maps.Keys(vmActs)), "|")
	cmd := &cobra.Command{
		Use:   "vm " + acts + " VM",
		Short: "Make a VM's pending change now, start it or shut it down",
		Long: `vm does something once with a VM that has an assignment, by name or id: apply-pending makes the
change that waits for the VM's next power-off (power.when = "next_off") now, and starts the VM
again; start and stop set its power state. A VM is shut down only as far as the power policy of
its assignment allows it, and nothing else on the host is disturbed.

Without --yes it prints the steps and changes nothing. Terraform 1.14 does the same with the
actions gpu_apply_pending and gpu_vm_power.`,
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			act, ok := vmActs[args[0]]
			if !ok {
				return &codedError{code: exitBadUsage, err: fmt.Errorf("%q is none of %s", args[0], acts)}
			}
			if err := o.mayWrite("vm"); yes && err != nil {
				return err
			}
			client, err := o.client(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }() // in process
			do := func(fence int64) error {
				ch, err := actOn(cmd, client, act, args[1])
				if err != nil {
					return err
				}
				prepared, err := client.Prepare(cmd.Context(), ch)
				if err != nil {
					return err
				}
				for _, f := range prepared.Findings {
					if f.Level == rules.Error {
						return errors.New(f.Title + ": " + f.Detail())
					}
				}
				out := cmd.OutOrStdout()
				if len(change.OnHost(prepared.Steps)) == 0 {
					_, _ = fmt.Fprintln(out, "nothing to do")
					return nil
				}
				for _, s := range prepared.Steps {
					_, _ = fmt.Fprintln(out, s)
				}
				if !yes {
					_, _ = fmt.Fprintln(out, "nothing was changed; --yes does it")
					return nil
				}
				if _, err := client.Apply(cmd.Context(), fence, ch, prepared.Basis, nil); err != nil {
					return err
				}
				if _, err := client.Settle(cmd.Context(), fence, ch.ID, false); err != nil {
					return err
				}
				_, _ = fmt.Fprintln(out, "done")
				return nil
			}
			if !yes {
				return do(0)
			}
			return underLease(cmd.Context(), client, "vm "+args[0], time.Minute, do)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// actOn is the change that does something with a VM of this host.
func actOn(cmd *cobra.Command, client *agent.Client, act change.Act, name string) (agent.Change, error) {
	host, err := client.Inventory(cmd.Context())
	if err != nil {
		return agent.Change{}, err
	}
	vm, byID := host.VM(name)
	for i := range host.VMs {
		switch {
		case byID || !gpu.SameID(host.VMs[i].Name, name):
		case vm != nil:
			return agent.Change{}, fmt.Errorf("several VMs are called %s: name one by its id, %s or %s", name, vm.ID, host.VMs[i].ID)
		default:
			vm = &host.VMs[i]
		}
	}
	if vm == nil {
		return agent.Change{}, fmt.Errorf("this host has no VM %s", name)
	}
	c, ok := host.Claim(gpu.ClaimAssignment, vm.ID)
	if !ok || c.Want.Assignment == nil {
		return agent.Change{}, fmt.Errorf("VM %s has no assignment that this host knows of", vm.Name)
	}
	return agent.Change{ID: rand.Text(), Host: c.Want.Assignment.Host, Change: change.ActOn(act, *c)}, nil
}
