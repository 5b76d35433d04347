// Package acts is the actions: what is done once with an object that stays as declared, and is
// declared nowhere.
package acts

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// timeout bounds an act on a host: of a VM its shutdown, the change, its start.
const timeout = 20 * time.Minute

// act is one of them.
type act struct {
	name, doing   string
	text, instead string // what it does, and gpu-agent's command for it
	on            string // the attribute that names what it is done with, a VM or a host
	object        schema.StringAttribute
	arg, about    string // the argument beside it, "" for none
	check         []validator.String
	// find finds what is to be done: no act where nothing of this owner says what may be done, which missing says.
	find  func(ctx context.Context, a *act, object, arg string, diags *diag.Diagnostics) (found, bool)
	fleet *fleet.Fleet
}

type found struct {
	view    fleet.View
	change  change.Change
	missing func()
}

var (
	_ action.ActionWithConfigure  = (*act)(nil)
	_ action.ActionWithModifyPlan = (*act)(nil)
)

// Metadata implements action.Action.
func (a *act) Metadata(_ context.Context, _ action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = a.name
}

// Configure implements action.ActionWithConfigure.
func (a *act) Configure(_ context.Context, req action.ConfigureRequest, resp *action.ConfigureResponse) {
	a.fleet, _ = req.ProviderData.(*fleet.Fleet) // nil in the validate walk
	report.NoHosts(&resp.Diagnostics, a.fleet, false)
}

// Schema implements action.Action.
func (a *act) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: a.text + " Requires Terraform 1.14; `" + a.instead + "` on the host does the same for others.",
		Attributes:          map[string]schema.Attribute{a.on: a.object},
	}
	if a.arg != "" {
		resp.Schema.Attributes[a.arg] = schema.StringAttribute{MarkdownDescription: a.about, Required: true, Validators: a.check}
	}
}

// ModifyPlan says who is disturbed, and what stands in the way. Nothing is said of what has no record yet: a resource of
// this run may make it.
func (a *act) ModifyPlan(ctx context.Context, req action.ModifyPlanRequest, resp *action.ModifyPlanResponse) {
	if a.fleet == nil || a.fleet.Unknown() {
		return
	}
	diags := &resp.Diagnostics
	f, ok := a.read(ctx, req.Config, diags)
	if !ok || f.change.Act == "" {
		return
	}
	report.Findings(diags, f.change.Subject, slices.Concat(a.fleet.CheckAlone(f.view, f.change), a.fleet.RefusedLater(f.change.Subject)))
	if !diags.HasError() {
		report.Findings(diags, f.change.Subject, a.fleet.Refused(f.view, f.change))
	}
	report.Disturbs(diags, a.fleet, path.Root(a.on), f.change, a.fleet.Forecasts(f.view, f.change))
}

// Invoke implements action.Action.
func (a *act) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	a.fleet.Applying()
	f, ok := a.read(ctx, req.Config, &resp.Diagnostics)
	switch {
	case !ok:
		return
	case f.change.Act == "":
		f.missing()
		return
	}
	if _, err := a.fleet.Apply(ctx, fleet.Request{
		Change: f.change, HostTimeout: timeout,
		Progress: func(host, text string) { resp.SendProgress(action.InvokeProgressEvent{Message: host + ": " + text}) },
	}); err != nil {
		report.Failure(&resp.Diagnostics, a.doing, f.change.Subject, err)
	}
}

// read finds what a configuration asks for, once that is known.
func (a *act) read(ctx context.Context, config tfsdk.Config, diags *diag.Diagnostics) (f found, ok bool) {
	var object, arg types.String
	diags.Append(config.GetAttribute(ctx, path.Root(a.on), &object)...)
	if a.arg != "" {
		diags.Append(config.GetAttribute(ctx, path.Root(a.arg), &arg)...)
	}
	if diags.HasError() || object.IsUnknown() || arg.IsUnknown() {
		return f, false
	}
	return a.find(ctx, a, object.ValueString(), arg.ValueString(), diags)
}
