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
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// NewDrain makes the action gpu_host_drain.
func NewDrain() action.Action {
	return &hostAction{
		shell: shell{name: "gpu_host_drain", doing: "drain or resume the host"}, arg: "state", about: "`drained` or `up`.",
		check: []validator.String{stringvalidator.OneOf(drained, up)},
		text: "Takes a cluster node out of service for maintenance, or back into it. Its running VMs move to other nodes by live migration, as in a rollout with `drain`, and are never stopped; " +
			"a node whose VMs cannot all move is refused. The node must have a GPU-P `gpu_partition_config` of this state's `owner` with `rollout = { drain = true }`. " +
			"Until the node is `up` again, its GPUs are left as they are.",
		instead: "gpu-agent host",
	}
}

// NewRestart makes the action gpu_mps_restart.
func NewRestart() action.Action {
	return &hostAction{
		shell: shell{name: "gpu_mps_restart", doing: "restart the MPS daemons"}, arg: "config", about: "The `id` of the config.",
		check: []validator.String{stringvalidator.LengthAtLeast(1)},
		text: "Starts the MPS daemons of a `gpu_partition_config` on one host again, also those that do not run. This terminates their clients, so the config must allow it with `max_disruption = \"process_restart\"` while there are any. " +
			"Shares stay as they are; containers that use one must be started again.",
		instead: "gpu-agent mps",
	}
}

// hostAction is what is done on one host by a config that it has on record.
type hostAction struct {
	shell
	text, instead string
	arg, about    string // the argument beside the host
	check         []validator.String
}

var (
	_ action.ActionWithConfigure  = (*hostAction)(nil)
	_ action.ActionWithModifyPlan = (*hostAction)(nil)
)

// States of a node.
const (
	drained = "drained"
	up      = "up"
)

// Schema implements action.Action.
func (a *hostAction) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: a.text + " Requires Terraform 1.14; `" + a.instead + "` on the host does the same for others.",
		Attributes: map[string]schema.Attribute{
			"host": schema.StringAttribute{MarkdownDescription: "The host, by its name in the provider.", Required: true},
			a.arg:  schema.StringAttribute{MarkdownDescription: a.about, Required: true, Validators: a.check},
		},
	}
}

// ModifyPlan says which VMs move, which clients end, and what stands in the way.
func (a *hostAction) ModifyPlan(ctx context.Context, req action.ModifyPlanRequest, resp *action.ModifyPlanResponse) {
	if a.fleet == nil || a.fleet.Unknown() {
		return
	}
	// A config that has no record yet may be made by this run.
	if view, ch, _, ok := a.find(ctx, req.Config, &resp.Diagnostics); ok && ch.Act != "" {
		foresee(&resp.Diagnostics, a.fleet, path.Root("host"), view, ch)
	}
}

// Invoke implements action.Action.
func (a *hostAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	a.fleet.Applying()
	_, ch, host, ok := a.find(ctx, req.Config, &resp.Diagnostics)
	switch {
	case !ok:
	case ch.Act == "":
		resp.Diagnostics.AddAttributeError(path.Root("host"), "The host has no such partition config", fmt.Sprintf(
			"%s of host %q\n\nFound: The host has no record of such a gpu_partition_config of owner %q, which says what may be done there.\nFix: Apply the config first.", a.name, host, a.fleet.Owner()))
	default:
		carryOut(ctx, a.fleet, a.doing, ch, resp)
	}
}

// find finds what is to be done: no act where the host has no config of this owner for it.
func (a *hostAction) find(ctx context.Context, config tfsdk.Config, diags *diag.Diagnostics) (v fleet.View, ch change.Change, host string, ok bool) {
	var name, arg types.String
	diags.Append(config.GetAttribute(ctx, path.Root("host"), &name)...)
	diags.Append(config.GetAttribute(ctx, path.Root(a.arg), &arg)...)
	if diags.HasError() || name.IsUnknown() || arg.IsUnknown() {
		return v, ch, "", false
	}
	host = name.ValueString()
	v = a.fleet.Look(ctx, []string{host})
	h := v.Hosts[host]
	if h == nil {
		diags.AddAttributeError(path.Root("host"), "The host cannot be asked", fmt.Sprintf("%s of host %q\n\nFound: %v.\nFix: Name a host of the provider that answers.", a.name, host, words.Capital(v.Errors[host].Error())))
		return v, ch, host, false
	}
	act, id := change.ActRestart, arg.ValueString()
	if a.arg == "state" {
		act, id = map[string]change.Act{drained: change.ActDrain, up: change.ActResume}[id], ""
	}
	if c, claimed := act.ClaimFor(h, a.fleet.Owner(), id); claimed {
		ch = change.ActOn(act, c)
	}
	return a.fleet.Look(ctx, a.fleet.Peers(v, []string{host})), ch, host, true
}
