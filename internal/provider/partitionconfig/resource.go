// Package partitionconfig is the resource gpu_partition_config: one layout on a
// homogeneous set of GPUs across hosts.
package partitionconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/drift"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_partition_config"

const (
	onDestroyKeep    = "keep"
	onDestroyRestore = "restore"
	onFailureUndo    = "rollback"
	onFailureStop    = "stop"
	// perHost bounds the work on one host: stopping VMs takes minutes.
	perHost = 30 * time.Minute
)

var (
	_ resource.ResourceWithConfigure        = (*Resource)(nil)
	_ resource.ResourceWithConfigValidators = (*Resource)(nil)
	_ resource.ResourceWithIdentity         = (*Resource)(nil)
	_ resource.ResourceWithImportState      = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan       = (*Resource)(nil)
)

// Resource is gpu_partition_config.
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

func label(id string) string { return fmt.Sprintf("%s %q", ResourceType, id) }

// ModifyPlan makes the id, decides whether the hosts have to be touched, and proves
// the plan against the hosts and the rest of this run.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.fleet == nil {
		return // the validate walk
	}
	var plan model
	var state *model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if req.Plan.Raw.IsNull() {
		r.planDestroy(ctx, req, state.prior(ctx, &resp.Diagnostics), resp)
		return
	}
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	inst := r.fleet.Ledger.Instance(instance.Ledger(ctx, req.Private))
	resp.Diagnostics.Append(instance.SetLedger(ctx, resp.Private, inst)...)

	want, known := plan.declared(ctx, &resp.Diagnostics)
	if known && plan.ID.IsUnknown() {
		id, err := configID(want)
		if err != nil {
			resp.Diagnostics.AddError("Could not name the partition config", err.Error())
			return
		}
		want.ID, plan.ID = id, types.StringValue(id)
	}
	prior := state.prior(ctx, &resp.Diagnostics)
	var ended fleet.View // the hosts once one of another kind has ended
	replaced := cmp.Or(prior, r.fleet.Ledger.Prior(inst).Config)
	if replaced != nil && (state == nil || known && (!plan.Name.Equal(state.Name) || want.Kind != prior.Kind)) {
		after, ends := r.planDestroy(ctx, req, replaced, resp)
		if want.Kind != replaced.Kind {
			ended = after
			if !ends {
				r.fleet.Ledger.Forget(inst)
				return // that is what is wrong with the replacement
			}
		}
	}
	differs := state.drifted(ctx, &resp.Diagnostics)
	unchanged := state != nil && known && len(differs) == 0 &&
		plan.Hosts.Equal(state.Hosts) && plan.Cluster.Equal(state.Cluster) && plan.Selector.Equal(state.Selector) &&
		plan.sameLayout(state) && plan.Name.Equal(state.Name) &&
		plan.QuiesceUnits.Equal(state.QuiesceUnits) // the host keeps it for the next boot
	if unchanged {
		plan.keepObserved(state)
	} else {
		plan.forgetObserved(want, known)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !known || r.fleet.Unknown() {
		// Its checks wait until apply, but for VMs whose permission is taken back meanwhile.
		open := change.Change{Subject: label(want.ID), Prior: gpu.Want{Config: prior}}
		if prior != nil {
			open.Subject = label(prior.ID)
		}
		report.Findings(&resp.Diagnostics, open.Subject, r.fleet.Ledger.Open(inst, open, func() []rules.Finding { return r.fleet.CheckOpen(r.fleet.Seen(), open) }))
		return
	}

	p := change.Change{Subject: label(want.ID), Token: instance.Token(ctx, req.Private), Unchanged: unchanged}
	p.Adopt = state != nil && p.Token == ""
	var view fleet.View
	if unchanged {
		want.GPUs = prior.GPUs
		view = r.fleet.Seen() // a change of policy alone asks nobody
	} else {
		hosts, v, ok := scope.Hosts(ctx, r.fleet, want.Scope, &resp.Diagnostics)
		if !report.Unreachable(&resp.Diagnostics, r.fleet, p.Subject, v, state.held(ctx, &resp.Diagnostics)...) || !ok || resp.Diagnostics.HasError() {
			r.fleet.Ledger.Forget(inst)
			return
		}
		if !r.allAnswer(hosts, v, p.Subject, &resp.Diagnostics) {
			r.fleet.Ledger.Forget(inst)
			return
		}
		choose(&want, p.Token, hosts, v.With(ended))
		view = v
		if prior != nil { // hosts that leave matter as well
			view = v.With(r.fleet.Look(ctx, slices.Sorted(maps.Keys(prior.GPUs))))
		}
		view = view.With(ended)
	}
	if state != nil { // the second call for a replacement does not tell what is replaced
		r.fleet.Ledger.Reshape(want.ID, state.hasOtherCount(ctx, want, &resp.Diagnostics))
	}
	p.Want.Config = &want
	p.Prior.Config = prior
	p.Approved = instance.Seen(ctx, req.Private)
	findings, does := r.fleet.Record(inst, view, p)
	report.Findings(&resp.Diagnostics, p.Subject, slices.Concat(findings, r.fleet.Elsewhere(ctx, view, p)))
	report.Drift(&resp.Diagnostics, r.fleet, view, p, "Partitions differ", differs)
	if !unchanged {
		report.Disturbs(&resp.Diagnostics, r.fleet, path.Empty(), view, p, does)
	}
}

// planDestroy proves that the config can be taken from its hosts, and says what that does. It
// returns the hosts as they are then.
func (r *Resource) planDestroy(ctx context.Context, req resource.ModifyPlanRequest, prior *gpu.PartitionConfig, resp *resource.ModifyPlanResponse) (after fleet.View, ends bool) {
	if r.fleet.Unknown() {
		return fleet.View{}, true
	}
	names := slices.Sorted(maps.Keys(prior.GPUs))
	view := r.fleet.Look(ctx, r.fleet.Peers(r.fleet.Look(ctx, names), names))
	ch := change.Change{Subject: label(prior.ID), Token: instance.Token(ctx, req.Private), Prior: gpu.Want{Config: prior}}
	return report.Destroy(ctx, r.fleet, path.Empty(), view, req, resp, ch)
}

// allAnswer refuses to change a layout while some of its hosts are silent, even when
// their state is kept otherwise: the cluster would end with two layouts.
func (r *Resource) allAnswer(hosts []string, v fleet.View, label string, diags *diag.Diagnostics) bool {
	ok := true
	for _, n := range hosts {
		err, silent := v.Errors[n]
		var notYet *fleet.NotYetKnownError
		if !silent || errors.As(err, &notYet) { // the latter answers at apply, or the apply refuses
			continue
		}
		ok = false
		diags.AddError("Layout cannot change while a host does not answer", fmt.Sprintf(
			"%s\n\nHost: %s\nFound: %v.\nA layout is changed on all of its hosts or on none.\n"+
				"Fix: bring the host back, or take it out of this config.", label, n, err))
	}
	return ok
}

// Create implements resource.Resource.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	r.fleet.Applying()
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	timeout, d := plan.Timeouts.Create(ctx, perHost)
	resp.Diagnostics.Append(d...)
	token := instance.NewToken()
	if !r.apply(ctx, "create the partition config", &plan, nil, change.Change{Token: token}, timeout, &resp.Diagnostics) {
		return // nothing stands: no state
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(identify(ctx, nil, resp.Identity, plan.ID)...)
}

// Update implements resource.Resource.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	r.fleet.Applying()
	var plan, state model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	token := instance.Token(ctx, req.Private)
	timeout, d := plan.Timeouts.Update(ctx, perHost)
	resp.Diagnostics.Append(d...)
	if plan.GPUs.IsUnknown() {
		imported := token == ""
		if imported {
			token = instance.NewToken()
		}
		if !r.apply(ctx, "change the partition config", &plan, &state, change.Change{Token: token, Adopt: imported, Approved: instance.Seen(ctx, req.Private)}, timeout, &resp.Diagnostics) {
			return // the framework keeps the prior state, which is what stands
		}
	} else if r.updatePermission(ctx, &plan, &state, token, timeout, &resp.Diagnostics); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(identify(ctx, req.Identity, resp.Identity, plan.ID)...)
}

// updatePermission rewrites the claims when rollout.drain changes, or max_disruption of MPS: actions
// and the agent go by them. Other changes of policy need no host.
func (r *Resource) updatePermission(ctx context.Context, plan, state *model, token string, timeout time.Duration, diags *diag.Diagnostics) {
	prior := state.prior(ctx, diags)
	want, _ := plan.declared(ctx, diags)
	if diags.HasError() || token == "" || want.Drain == prior.Drain && (want.MPS == nil || want.MaxDisruption == prior.MaxDisruption) {
		return
	}
	want.GPUs = prior.GPUs
	if _, err := r.fleet.Apply(ctx, fleet.Request{
		Change:         change.Change{Subject: label(want.ID), Token: token, Want: gpu.Want{Config: &want}, Prior: gpu.Want{Config: prior}, ClaimOnly: true},
		MaxUnavailable: len(want.GPUs), HostTimeout: timeout,
	}); err != nil {
		report.Failure(diags, "record what the config allows", label(want.ID), err)
	}
}

// apply makes the plan real and fills in its computed attributes. It returns false
// when nothing of the change stands.
func (r *Resource) apply(ctx context.Context, doing string, plan, state *model, ch change.Change, timeout time.Duration, diags *diag.Diagnostics) bool {
	want, known := plan.declared(ctx, diags)
	if !known || diags.HasError() {
		diags.AddError("Could not "+doing, "A value is still unknown at apply. This is a bug in the provider; please report it.")
		return false
	}
	hosts, view, ok := scope.Hosts(ctx, r.fleet, want.Scope, diags)
	if !ok {
		report.Unreachable(diags, r.fleet, label(want.ID), view)
		return false
	}
	for _, n := range hosts {
		if err, silent := view.Errors[n]; silent {
			report.Failure(diags, doing, label(want.ID), &fleet.Failure{Label: label(want.ID), Host: n, Err: err})
			return false
		}
	}
	choose(&want, ch.Token, hosts, view)
	ch.Subject, ch.Want.Config = label(want.ID), &want
	req := fleet.Request{
		Change: ch, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}
	if prior := state.prior(ctx, diags); prior != nil {
		if prior.Kind != want.Kind {
			diags.AddError("Kind cannot change in place", fmt.Sprintf("%s\n\nFound: the config is of kind %s, and its new kind, %s, was not known at plan.\n"+
				"Fix: plan and apply again; the config is then replaced.", label(want.ID), prior.Kind, want.Kind))
			return false
		}
		prior.Restore = want.Restore // what a host that leaves is to be put back to is the plan's business
		req.Prior.Config = prior
	}
	plan.roll(ctx, &req, diags)
	if diags.HasError() {
		return false
	}
	res, err := r.fleet.Apply(ctx, req)
	if err != nil {
		report.Failure(diags, doing, req.Subject, err)
		var failure *fleet.Failure
		if !errors.As(err, &failure) || failure.Clean() {
			return false
		}
		res = &failure.Result
	}
	report.Skipped(diags, req.Subject, res.Skipped)
	// What the state knows stays for hosts that have not left yet.
	before := state.gpus(ctx, diags)
	for name := range res.Skipped {
		delete(before, name)
	}
	var d diag.Diagnostics
	plan.GPUs, d = types.MapValueFrom(ctx, gpusOfHostType, before)
	diags.Append(d...)
	plan.observe(ctx, want, hosts, r.fleet.Look(ctx, slices.Concat(hosts, slices.Collect(maps.Keys(before)))), diags)
	if !diags.HasError() {
		plan.Drift = object.None(drift.Type) // as it was planned: what differs by now, the next Read says
	}
	return true
}

// Read implements resource.Resource.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	// A version of Terraform that carries no identity wants one whatever comes of the read.
	resp.Diagnostics.Append(identify(ctx, req.Identity, resp.Identity, state.ID)...)
	if resp.Diagnostics.HasError() || r.fleet.Unknown() {
		return
	}
	r.fleet.Ledger.Met(instance.Token(ctx, req.Private))
	if state.kind() == "" {
		r.readImported(ctx, &state, importedKind(ctx, req.Private), &resp.Diagnostics)
		resp.Diagnostics.Append(resp.Private.SetKey(ctx, importKindKey, nil)...)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	c, _ := state.declared(ctx, &resp.Diagnostics)
	hosts, view := r.look(ctx, c.Scope, state.gpus(ctx, &resp.Diagnostics))
	if !report.Unreachable(&resp.Diagnostics, r.fleet, label(c.ID), view, state.held(ctx, &resp.Diagnostics)...) {
		return
	}
	view = state.begun(ctx, r.fleet, instance.Token(ctx, req.Private), c, view, &resp.Diagnostics)
	resp.Diagnostics.Append(instance.SetSeen(ctx, resp.Private, view.Disturbable(hosts))...)
	state.warnLost(ctx, c, view, &resp.Diagnostics)
	state.observe(ctx, c, hosts, view, &resp.Diagnostics)
	state.Drift = drift.Records(ctx, req.Private, r.fleet.Owner(), state.records(ctx, hosts, view, &resp.Diagnostics), state.Drift, &resp.Diagnostics)
	if token := instance.Token(ctx, req.Private); token == "" {
		if cl, ok := claimOf(view, c.ID, r.fleet.Owner()); ok {
			resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, cl.Token)...)
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
	resp.Diagnostics.Append(identify(ctx, req.Identity, resp.Identity, state.ID)...)
}

// look takes the hosts of a scope as the state has it, and looks at those that the
// state lists besides: a host that the provider no longer knows is in the view as one
// that does not answer.
func (r *Resource) look(ctx context.Context, s gpu.Scope, listed map[string]map[string]gpuModel) ([]string, fleet.View) {
	hosts := s.Hosts
	if s.Cluster != "" {
		members, unknown := r.fleet.ClusterHosts(r.fleet.LookAll(ctx), s.Cluster)
		hosts = slices.Concat(members, unknown)
	}
	all := slices.Concat(hosts, slices.Collect(maps.Keys(listed)))
	slices.Sort(all)
	return hosts, r.fleet.Look(ctx, slices.Compact(all))
}

// Delete implements resource.Resource.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.fleet.Applying()
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	timeout, d := state.Timeouts.Delete(ctx, perHost)
	resp.Diagnostics.Append(d...)
	prior := state.prior(ctx, &resp.Diagnostics)
	token := instance.Token(ctx, req.Private)
	apply := fleet.Request{
		Change: change.Change{Subject: label(prior.ID), Token: token, Adopt: token == "", Approved: instance.Approved(ctx, req.Private), Prior: gpu.Want{Config: prior}}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}
	state.roll(ctx, &apply, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	res, err := r.fleet.Apply(ctx, apply)
	if err != nil {
		report.Failure(&resp.Diagnostics, "destroy the partition config", label(prior.ID), err)
		if prior.Restore {
			resp.Diagnostics.AddWarning("Destroying uses what was applied last", "To destroy without putting the GPUs back, first apply on_destroy = \"keep\".")
		}
		return
	}
	report.Skipped(&resp.Diagnostics, label(prior.ID), res.Skipped)
}

// claimOf finds a config's claim on any host.
func claimOf(v fleet.View, id, owner string) (gpu.Claim, bool) {
	for _, h := range v.Hosts {
		for _, c := range h.Claims {
			if c.Is(gpu.ClaimConfig, id) && c.Owner == owner {
				return c, true
			}
		}
	}
	return gpu.Claim{}, false
}
