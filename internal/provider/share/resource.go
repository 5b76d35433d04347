// Package share is the resource gpu_share: a named fraction of one or several GPUs of a
// Linux host, handed to containers by CDI.
package share

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/drift"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_share"

// perHost bounds the work on one host: a few files are written.
const perHost = 10 * time.Minute

var (
	_ resource.ResourceWithConfigure        = (*Resource)(nil)
	_ resource.ResourceWithConfigValidators = (*Resource)(nil)
	_ resource.ResourceWithIdentity         = (*Resource)(nil)
	_ resource.ResourceWithImportState      = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan       = (*Resource)(nil)
	_ resource.ResourceWithValidateConfig   = (*Resource)(nil)
)

// Resource is gpu_share.
type Resource struct{ fleet *fleet.Fleet }

// New makes the resource.
func New() resource.Resource { return &Resource{} }

// Metadata implements resource.Resource.
func (r *Resource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = ResourceType
}

// Configure implements resource.ResourceWithConfigure.
func (r *Resource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.fleet, _ = req.ProviderData.(*fleet.Fleet) // nil in the validate walk
}

// label names a share in messages by where it was declared to be.
func label(s gpu.Share) string {
	if s.Pool != "" {
		return fmt.Sprintf("%s %q from pool %q", ResourceType, s.Name, s.Pool)
	}
	return fmt.Sprintf("%s %q on %s", ResourceType, s.Name, s.Host)
}

// Create implements resource.Resource.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	r.fleet.Applying()
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	want := r.wanted(ctx, req.Config, nil, &resp.Diagnostics)
	timeout, d := plan.Timeouts.Create(ctx, perHost)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	token := instance.NewToken()
	if !r.apply(ctx, "create the share", &plan, want, nil, token, timeout, &resp.Diagnostics) {
		return
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, plan.identity())...)
}

// Update implements resource.Resource.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	r.fleet.Applying()
	var plan, state model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	prior := state.prior(ctx, &resp.Diagnostics)
	want := r.wanted(ctx, req.Config, prior, &resp.Diagnostics)
	timeout, d := plan.Timeouts.Update(ctx, perHost)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	token := instance.Token(ctx, req.Private)
	if plan.Environment.IsUnknown() {
		if token == "" { // imported, never claimed
			token = instance.NewToken()
		}
		planned := plan
		if !r.apply(ctx, "change the share", &plan, want, prior, token, timeout, &resp.Diagnostics) {
			return
		}
		plan.keepPlanned(&planned)
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, plan.identity())...)
}

// wanted is what the configuration asks for, at the place that the share has.
func (r *Resource) wanted(ctx context.Context, from tfsdk.Config, prior *gpu.Share, diags *diag.Diagnostics) gpu.Share {
	var config model
	diags.Append(from.Get(ctx, &config)...)
	want, known := config.declared(ctx, diags)
	if !known && !diags.HasError() {
		diags.AddError("Could not apply the share", "A value is still unknown at apply. This is a bug in the provider; please report it.")
	}
	if prior != nil {
		stay(&want, *prior)
	}
	return want
}

// apply makes the plan real and fills in its computed attributes. It returns false when
// nothing of the change stands.
func (r *Resource) apply(ctx context.Context, doing string, plan *model, want gpu.Share, prior *gpu.Share, token string, timeout time.Duration, diags *diag.Diagnostics) bool {
	view, ok := r.look(ctx, want, diags)
	if !ok {
		return false
	}
	if h, answered := view.Hosts[want.Host]; answered && prior != nil {
		if c, claimed := h.Claim(gpu.ClaimShare, want.Name); claimed && c.Want.Share != nil {
			want.GPUIDs = c.Want.Share.GPUIDs // how it was pinned when it was placed: later pins move nothing
		}
	}
	req := fleet.Request{
		Change: change.Change{Subject: label(want), Token: token, Want: gpu.Want{Share: &want}, Prior: gpu.Want{Share: prior}}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}
	host, err := r.fleet.ApplyShare(ctx, req)
	if err != nil {
		report.Failure(diags, doing, req.Subject, err)
		var failure *fleet.Failure
		if !errors.As(err, &failure) || failure.Clean() {
			return false
		}
	}
	want.Host = host
	h, err := r.fleet.Snapshot(ctx, host)
	if err != nil {
		diags.AddError("Share state unknown after the change", fmt.Sprintf("%s\n\nHost: %s\nFound: %v, right after the change.", req.Subject, host, err))
		h = &gpu.Host{Name: host}
	}
	plan.observe(ctx, host, h, want, diags)
	if !diags.HasError() {
		plan.Drift = object.None(drift.Type) // as it was planned: what differs by now, the next Read says
	}
	warnOfLacks(diags, host, h, want)
	return true
}

// warnOfLacks says what containers of the share have to do without.
func warnOfLacks(diags *diag.Diagnostics, host string, h *gpu.Host, s gpu.Share) {
	if handed, ok := h.HandedShare(s.Name); ok && handed.Note != "" {
		diags.AddWarning("The share is incomplete for containers", fmt.Sprintf("%s\n\nHost: %s\nFound: %s", label(s), host, handed.Note))
	}
}

// Read implements resource.Resource.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	// A version of Terraform that carries no identity wants one whatever comes of the read.
	resp.Diagnostics.Append(resp.Identity.Set(ctx, state.identity())...)
	if resp.Diagnostics.HasError() || r.fleet.Unknown() {
		return
	}
	r.fleet.Ledger.Met(instance.Token(ctx, req.Private))
	host, name := state.Host.ValueString(), state.Name.ValueString()
	view := r.fleet.Look(ctx, []string{host})
	if !report.Unreachable(&resp.Diagnostics, r.fleet, label(*state.prior(ctx, &resp.Diagnostics)), view, host) || !view.Recorded() {
		return
	}
	h := view.Hosts[host]
	claim, claimed := h.Claim(gpu.ClaimShare, name)
	if state.CDIDevice.IsNull() && !r.readImported(ctx, &state, claim, &resp.Diagnostics) {
		return
	}
	if _, handed := h.HandedShare(name); !claimed && !handed {
		resp.State.RemoveResource(ctx) // the host has answered that it has no such share
		return
	}
	state.observe(ctx, host, h, *state.prior(ctx, &resp.Diagnostics), &resp.Diagnostics)
	if claimed {
		if instance.Token(ctx, req.Private) == "" && claim.Owner == r.fleet.Owner() {
			resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, claim.Token)...)
		}
		state.Drift = drift.Records(ctx, req.Private, r.fleet.Owner(), map[string]*gpu.Claim{state.Host.ValueString(): claim}, state.Drift, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// Delete implements resource.Resource.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.fleet.Applying()
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	prior := state.prior(ctx, &resp.Diagnostics)
	timeout, d := state.Timeouts.Delete(ctx, perHost)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	token := instance.Token(ctx, req.Private)
	res, err := r.fleet.Apply(ctx, fleet.Request{
		Change: change.Change{Subject: label(*prior), Token: token, Adopt: token == "", Approved: instance.Approved(ctx, req.Private), Prior: gpu.Want{Share: prior}}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	})
	if err != nil {
		report.Failure(&resp.Diagnostics, "destroy the share", label(*prior), err)
		return
	}
	report.Skipped(&resp.Diagnostics, label(*prior), res.Skipped)
}
