// Package acts is the actions: what is done once with an object that stays as declared, and is
// declared nowhere.
package acts

import (
	"context"
	"fmt"
	"slices"
	"time"

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
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// timeout bounds an act on a host: of a VM its shutdown, the change, its start.
const timeout = 20 * time.Minute

// NewApplyPending makes the action gpu_apply_pending.
func NewApplyPending() action.Action {
	return &vmAction{
		shell: shell{name: "gpu_apply_pending", doing: "apply what is pending"},
		text: "Makes the change that waits for the next power-off of a VM now: the VM is shut down as far as the `power` of its `gpu_vm_assignment` allows it, gets what is declared, and is started again. " +
			"Does nothing where nothing is `pending`. The assignment keeps `when = \"next_off\"`.",
	}
}

// NewPower makes the action gpu_vm_power.
func NewPower() action.Action {
	return &vmAction{
		shell: shell{name: "gpu_vm_power", doing: "set the power state of the VM"}, states: true,
		text: "Starts or shuts down a VM that has a `gpu_vm_assignment` of this state's `owner`, as far as the assignment's `power` allows it.",
	}
}

// vmAction is one of them. With states it takes the power state to come to.
type vmAction struct {
	shell
	text   string
	states bool
}

// shell is what all actions have in common.
type shell struct {
	name, doing string
	fleet       *fleet.Fleet
}

var (
	_ action.ActionWithConfigure  = (*vmAction)(nil)
	_ action.ActionWithModifyPlan = (*vmAction)(nil)
)

// States of `state`.
const (
	running = "running"
	off     = "off"
)

// Metadata implements action.Action.
func (a *shell) Metadata(_ context.Context, _ action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = a.name
}

// Configure implements action.ActionWithConfigure.
func (a *shell) Configure(_ context.Context, req action.ConfigureRequest, resp *action.ConfigureResponse) {
	a.fleet, _ = req.ProviderData.(*fleet.Fleet) // nil in the validate walk
	report.NoHosts(&resp.Diagnostics, a.fleet, false)
}

// Schema implements action.Action.
func (a *vmAction) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: a.text + " Requires Terraform 1.14; `gpu-agent vm` on the host does the same for others.",
		Attributes: map[string]schema.Attribute{
			"vm": schema.StringAttribute{MarkdownDescription: "The VM's name or id, as in its assignment.", Required: true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)}},
		},
	}
	if a.states {
		resp.Schema.Attributes["state"] = schema.StringAttribute{MarkdownDescription: "`running` or `off`.", Required: true, Validators: []validator.String{stringvalidator.OneOf(running, off)}}
	}
}

// ModifyPlan says who is shut down, and what stands in the way.
func (a *vmAction) ModifyPlan(ctx context.Context, req action.ModifyPlanRequest, resp *action.ModifyPlanResponse) {
	if a.fleet == nil || a.fleet.Unknown() {
		return
	}
	t, ok := a.find(ctx, req.Config, &resp.Diagnostics)
	if !ok {
		return
	}
	if t.act != change.ActStart && t.at.VM.Runs() && !t.claim.Pending && !a.fleet.Applies() && (t.act == change.ActPending || !t.claimed) {
		// What a resource of this run leaves for it to do is not known yet.
		resp.Diagnostics.AddAttributeWarning(path.Root("vm"), fmt.Sprintf("%s: VM %s is shut down if a change of this run is followed by %s", t.at.Host, t.at.VM.Name, a.name),
			"Found: The VM needs nothing done as it is now.")
	}
	if !t.claimed {
		return
	}
	foresee(&resp.Diagnostics, a.fleet, path.Root("vm"), t.view, t.change())
}

// foresee says what an act does to whom, and what refuses it.
func foresee(diags *diag.Diagnostics, f *fleet.Fleet, at path.Path, v fleet.View, ch change.Change) {
	report.Findings(diags, ch.Subject, slices.Concat(f.CheckAlone(v, ch), f.RefusedLater(ch.Subject)))
	if !diags.HasError() {
		report.Findings(diags, ch.Subject, f.Refused(v, ch))
	}
	report.Disturbs(diags, f, at, ch, f.Forecasts(v, ch))
}

// carryOut makes an act.
func carryOut(ctx context.Context, f *fleet.Fleet, doing string, ch change.Change, resp *action.InvokeResponse) {
	if _, err := f.Apply(ctx, fleet.Request{
		Change: ch, HostTimeout: timeout,
		Progress: func(host, text string) { resp.SendProgress(action.InvokeProgressEvent{Message: host + ": " + text}) },
	}); err != nil {
		report.Failure(&resp.Diagnostics, doing, ch.Subject, err)
	}
}

// Invoke implements action.Action.
func (a *vmAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	a.fleet.Applying()
	t, ok := a.find(ctx, req.Config, &resp.Diagnostics)
	switch {
	case !ok:
		return
	case !t.claimed:
		resp.Diagnostics.AddAttributeError(path.Root("vm"), "The VM has no assignment", fmt.Sprintf(
			"%s of VM %q\n\nFound: Host %q has no record of a gpu_vm_assignment of it, which says what may be done to the VM.\nFix: Assign a GPU to the VM and apply that first.", a.name, t.at.VM.Name, t.at.Host))
		return
	}
	carryOut(ctx, a.fleet, a.doing, t.change(), resp)
}

// target is the VM of an action.
type target struct {
	act     change.Act
	at      fleet.FoundVM
	view    fleet.View
	claim   gpu.Claim
	claimed bool // else the resource that claims it may come before the action
}

// change is what is to be done.
func (t *target) change() change.Change {
	ch := change.ActOn(t.act, t.claim)
	want := *ch.Want.Assignment
	want.VMID, want.VMName, want.Host = t.at.VM.ID, t.at.VM.Name, t.at.Host
	ch.Want.Assignment = &want
	return ch
}

// find finds the VM that the configuration names.
func (a *vmAction) find(ctx context.Context, config tfsdk.Config, diags *diag.Diagnostics) (t target, ok bool) {
	var vm, state types.String
	diags.Append(config.GetAttribute(ctx, path.Root("vm"), &vm)...)
	t.act = change.ActPending
	if a.states {
		diags.Append(config.GetAttribute(ctx, path.Root("state"), &state)...)
		t.act = map[string]change.Act{running: change.ActStart, off: change.ActStop}[state.ValueString()]
	}
	if diags.HasError() || vm.IsUnknown() || state.IsUnknown() {
		return t, false
	}
	var err error
	if t.view, t.at, err = a.fleet.LookForVM(ctx, vm.ValueString(), nil, "", nil); err != nil {
		diags.AddAttributeError(path.Root("vm"), "VM was not found", fmt.Sprintf(
			"%s of VM %q\n\nFound: %v.\nFix: Name a VM that a host of the provider has, by its id if several have its name.", a.name, vm.ValueString(), words.Capital(err.Error())))
		return t, false
	}
	t.claim, t.claimed = t.view.Claim(gpu.ClaimAssignment, t.at.VM.ID)
	if t.claimed = t.claimed && t.claim.Want.Assignment != nil; t.claimed && t.claim.Owner != a.fleet.Owner() {
		diags.AddAttributeError(path.Root("vm"), "The VM belongs to another owner", fmt.Sprintf(
			"%s of VM %q\n\nFound: Its assignment on host %q is claimed by owner %q, and this provider's owner is %q.\nFix: Use the action where the assignment is declared.",
			a.name, t.at.VM.Name, t.at.Host, t.claim.Owner, a.fleet.Owner()))
		return t, false
	}
	return t, true
}
