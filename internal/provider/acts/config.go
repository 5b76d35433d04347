package acts

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// States of a node.
const (
	drained = "drained"
	up      = "up"
)

// NewDrain makes the action gpu_host_drain.
func NewDrain() action.Action {
	return onHost(act{
		name: "gpu_host_drain", doing: "drain or resume the host", instead: "gpu-agent host",
		text: "Takes a cluster node out of service for maintenance, or back into it. Its running VMs move to other nodes by live migration, " +
			"as in a rollout with `drain`, and are never stopped; a node whose VMs cannot all move is refused. " +
			"The node must have a GPU-P `gpu_partition_config` of this state's `owner` with `rollout = { drain = true }`. " +
			"Until the node is `up` again, its GPUs are left as they are.",
		arg: "state", about: "`drained` or `up`.", check: []validator.String{stringvalidator.OneOf(drained, up)},
	})
}

// NewRestart makes the action gpu_mps_restart.
func NewRestart() action.Action {
	return onHost(act{
		name: "gpu_mps_restart", doing: "restart the MPS daemons", instead: "gpu-agent mps",
		text: "Starts the MPS daemons of a `gpu_partition_config` on one host again, also those that do not run. " +
			"This terminates their clients, so the config must allow it with `max_disruption = \"process_restart\"` while there are any. " +
			"Those are ended that there are when it runs, also such that came after a saved plan and are not named in it. " +
			"Shares stay as they are; containers that use one must be started again.",
		arg: "config", about: "The `id` of the config.", check: []validator.String{stringvalidator.LengthAtLeast(1)},
	})
}

func onHost(a act) action.Action {
	a.on, a.find = "host", findConfig
	a.object = schema.StringAttribute{MarkdownDescription: "The host, by its name in the provider.", Required: true}
	return &a
}

// findConfig finds the config that a host has on record for what is to be done.
func findConfig(ctx context.Context, a *act, host, arg string, diags *diag.Diagnostics) (f found, ok bool) {
	v := a.fleet.Snapshot(ctx, []string{host})
	h := v.Hosts[host]
	if h == nil {
		diags.AddAttributeError(path.Root("host"), "The host cannot be asked", fmt.Sprintf("%s of host %q\n\nFound: %v.\n"+
			"Fix: Name a host of the provider that answers.", a.name, host, words.Capital(v.Errors[host].Error())))
		return f, false
	}
	does, id := change.ActRestart, arg
	if a.arg == "state" {
		does, id = map[string]change.Act{drained: change.ActDrain, up: change.ActResume}[arg], ""
	}
	if c, claimed := does.ClaimFor(h, a.fleet.Owner(), id); claimed {
		f.change = change.ActOn(does, c)
	}
	f.view, f.missing = a.fleet.Snapshot(ctx, a.fleet.Peers(v, []string{host})), func() {
		diags.AddAttributeError(path.Root("host"), "The host has no such partition config", fmt.Sprintf(
			"%s of host %q\n\nFound: The host has no record of such a gpu_partition_config of owner %q, which says what may be done there.\n"+
				"Fix: Apply the config first.", a.name, host, a.fleet.Owner()))
	}
	return f, true
}
