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
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
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
			return o.act(cmd, "vm", yes, func(host *gpu.Host) (agent.Change, error) { return actOn(host, act, args[1]) })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func newHost(o *hostOptions) *cobra.Command {
	nodeActs := map[string]change.Act{"drain": change.ActDrain, "resume": change.ActResume}
	acts := strings.Join(slices.Sorted(maps.Keys(nodeActs)), "|")
	return o.configActs("host", acts, 1, func(args []string) (change.Act, string) { return nodeActs[args[0]], "" }, &cobra.Command{
		Use:   "host " + acts,
		Short: "Drain this node of a cluster for maintenance, or resume it",
		Long: `host takes this node out of its cluster's service, or back into it, by a GPU-P partition config
on record here whose rollout allows to drain the node. Its running VMs move to other nodes by live
migration and are never stopped; a node whose VMs cannot all move is refused. Whether other nodes
have room is the cluster's to say: a drain that fails is put back.

Without --yes it prints the steps and changes nothing. Terraform 1.14 does the same with the
action gpu_host_drain, which also looks at the other nodes before.`,
	})
}

func newMPS(o *hostOptions) *cobra.Command {
	return o.configActs("mps", "restart", 2, func(args []string) (change.Act, string) {
		return map[string]change.Act{"restart": change.ActRestart}[args[0]], args[1]
	}, &cobra.Command{
		Use:   "mps restart CONFIG",
		Short: "Restart the MPS daemons of a partition config",
		Long: `mps restart starts the MPS daemons of a partition config of this host again, also those that do
not run. Their clients end, which the config has to allow with max_disruption. Shares stay as they
are; containers that use one must be started again.

Without --yes it prints the steps and changes nothing. Terraform 1.14 does the same with the
action gpu_mps_restart.`,
	})
}

// configActs makes a command of what is done by a config on record.
func (o *hostOptions) configActs(command, acts string, args int, parse func([]string) (change.Act, string),
	cmd *cobra.Command,
) *cobra.Command {
	var yes bool
	cmd.Args = usage(cobra.ExactArgs(args))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		act, id := parse(args)
		if act == "" {
			return &codedError{code: exitBadUsage, err: fmt.Errorf("%q is none of %s", args[0], acts)}
		}
		return o.act(cmd, command, yes, func(host *gpu.Host) (agent.Change, error) {
			c, ok := act.ClaimFor(host, "*", id)
			if !ok {
				return agent.Change{}, errors.New("this host has no record of such a partition config")
			}
			return agent.Change{ID: rand.Text(), Host: slices.Collect(maps.Keys(c.Want.Config.GPUs))[0], Change: change.ActOn(act, c)}, nil
		})
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// act prints the steps of what is to be done once, and does it with yes.
func (o *hostOptions) act(cmd *cobra.Command, command string, yes bool, what func(*gpu.Host) (agent.Change, error)) error {
	if err := o.mayWrite(command); yes && err != nil {
		return err
	}
	client, err := o.client(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // in process
	do := func(fence int64) error {
		host, err := client.Inventory(cmd.Context())
		if err != nil {
			return err
		}
		ch, err := what(&host)
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
		for _, d := range change.Disturbs(&host, ch.Host, prepared.Steps) {
			_, _ = fmt.Fprintln(out, d.Text)
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
	return underLease(cmd.Context(), client, command, time.Minute, do)
}

// actOn is the change that does something with a VM of this host.
func actOn(host *gpu.Host, act change.Act, name string) (agent.Change, error) {
	vm, byID := host.VM(name)
	for i := range host.VMs {
		switch {
		case byID || !gpu.SameID(host.VMs[i].Name, name):
		case vm != nil:
			return agent.Change{}, fmt.Errorf("several VMs are called %s: name one by its id, %s or %s", words.Name(name), vm.ID, host.VMs[i].ID)
		default:
			vm = &host.VMs[i]
		}
	}
	if vm == nil {
		return agent.Change{}, fmt.Errorf("this host has no VM %s", words.Name(name))
	}
	c, ok := host.Claim(gpu.ClaimAssignment, vm.ID)
	if !ok || c.Want.Assignment == nil {
		return agent.Change{}, fmt.Errorf("VM %s has no assignment that this host knows of", words.Name(vm.Name))
	}
	return agent.Change{ID: rand.Text(), Host: c.Want.Assignment.Host, Change: change.ActOn(act, *c)}, nil
}
