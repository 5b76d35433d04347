// Package vmassignment is the resource gpu_vm_assignment: one GPU partition, GPUs of
// a pool, or named devices, for one VM.
package vmassignment

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_vm_assignment"

// perVM bounds the work on one VM: its shutdown, the change, its start.
const perVM = 20 * time.Minute

var (
	_ resource.ResourceWithConfigure        = (*Resource)(nil)
	_ resource.ResourceWithConfigValidators = (*Resource)(nil)
	_ resource.ResourceWithIdentity         = (*Resource)(nil)
	_ resource.ResourceWithImportState      = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan       = (*Resource)(nil)
)

// Resource is gpu_vm_assignment.
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

func label(vm string) string { return fmt.Sprintf("%s for VM %q", ResourceType, vm) }

// Create implements resource.Resource.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	r.fleet.Applying()
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	timeout, d := plan.Timeouts.Create(ctx, perVM)
	resp.Diagnostics.Append(d...)
	token := instance.NewToken()
	if !r.apply(ctx, "assign a GPU", &plan, nil, change.Change{Token: token}, timeout, &resp.Diagnostics) {
		return
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{VMID: plan.VMID})...)
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
	timeout, d := plan.Timeouts.Update(ctx, perVM)
	resp.Diagnostics.Append(d...)
	if plan.OwnerHost.IsUnknown() || !plan.assigns(&state) {
		imported := token == ""
		if imported {
			token = instance.NewToken()
		}
		planned := plan
		if !r.apply(ctx, "change the assignment", &plan, &state, change.Change{Token: token, Adopt: imported, Approved: instance.Seen(ctx, req.Private)}, timeout, &resp.Diagnostics) {
			return
		}
		if !planned.OwnerHost.IsUnknown() {
			// What the VM holds was planned to stay: if it moved meanwhile, the next Read says so.
			differs := plan.Drift
			plan.keep(&planned)
			plan.Drift = differs
		}
	} else if r.updatePermission(ctx, &plan, &state, token, timeout, &resp.Diagnostics); resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{VMID: plan.VMID})...)
}

// updatePermission rewrites the claim when the power policy in force changes, by the
// resource's own `power` or the provider's: a partition config that has to stop the VM
// goes by the claim. Other changes of policy need no host.
func (r *Resource) updatePermission(ctx context.Context, plan, state *model, token string, timeout time.Duration, diags *diag.Diagnostics) {
	prior := state.prior(ctx, r.fleet.Power(), diags)
	want, _ := plan.declared(ctx, r.fleet.Power(), diags)
	plan.EffectivePower = power.Applied(want.Power)
	if diags.HasError() || token == "" || plan.EffectivePower.Equal(state.EffectivePower) {
		return
	}
	want.VMID, want.Host = prior.VMID, prior.Host
	if at, err := fleet.FindVM(r.fleet.LookAll(ctx), want.VMID); err == nil {
		want.VMName = at.VM.Name
	}
	if _, err := r.fleet.Apply(ctx, fleet.Request{
		Change: change.Change{Subject: label(want.VM), Token: token, Want: gpu.Want{Assignment: &want}, Prior: gpu.Want{Assignment: prior}, ClaimOnly: true}, HostTimeout: timeout,
	}); err != nil {
		report.Failure(diags, "record what may be done to the VM", label(want.VM), err)
	}
}

// apply makes the plan real and fills in its computed attributes. It returns false
// when nothing of the change stands.
func (r *Resource) apply(ctx context.Context, doing string, plan, state *model, ch change.Change, timeout time.Duration, diags *diag.Diagnostics) bool {
	want, known := plan.declared(ctx, r.fleet.Power(), diags)
	if !known || diags.HasError() {
		diags.AddError("Could not "+doing, "A value is still unknown at apply. This is a bug in the provider; please report it.")
		return false
	}
	prior := state.prior(ctx, r.fleet.Power(), diags)
	_, at, ok := r.find(ctx, plan, want, prior, diags)
	if !ok {
		if !diags.HasError() {
			diags.AddAttributeError(path.Root("vm"), "VM was not found", fmt.Sprintf("%s\n\nFound: the hosts that answer do not have it, and others do not answer.", label(want.VM)))
		}
		return false
	}
	want.VMID, want.VMName, want.Host = at.VM.ID, at.VM.Name, at.Host
	ch.Subject, ch.Want.Assignment, ch.Prior.Assignment = label(want.VM), &want, prior
	req := fleet.Request{
		Change: ch, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}
	if _, err := r.fleet.Apply(ctx, req); err != nil {
		report.Failure(diags, doing, req.Subject, err)
		if want.Device != nil && !want.Device.Force {
			report.NeedsForce(diags, path.Root("device").AtName("dismount"), req.Subject, err)
		}
		var failure *fleet.Failure
		if !errors.As(err, &failure) || failure.Clean() {
			return false
		}
	}
	view := r.fleet.Look(ctx, r.fleet.Peers(r.fleet.Look(ctx, []string{at.Host}), []string{at.Host}))
	now, err := fleet.FindVM(view, want.VMID)
	if err != nil {
		title := "VM disappeared"
		if !view.Complete() {
			title = "VM state unknown after the change"
		}
		diags.AddError(title, fmt.Sprintf("%s\n\nFound: %v, right after the change.", req.Subject, err))
		now = at
		view.Hosts[at.Host] = &gpu.Host{Name: at.Host}
	}
	plan.observe(ctx, view, now, want, diags)
	plan.EffectivePower = power.Applied(want.Power)
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
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{VMID: state.VMID})...)
	if resp.Diagnostics.HasError() || r.fleet.Unknown() {
		return
	}
	r.fleet.Ledger.Met(instance.Token(ctx, req.Private))
	var hint []string
	if h := state.OwnerHost.ValueString(); h != "" {
		hint = []string{h}
	}
	s, _ := scope.Decode(ctx, state.Hosts, state.Cluster, types.ObjectNull(scope.SelectorType()), &resp.Diagnostics)
	id := state.VMID.ValueString()
	view, at, err := r.fleet.LookForVM(ctx, id, nil, "", append(hint, s.Hosts...))
	if err != nil {
		for _, h := range hint {
			if !r.fleet.Has(h) { // the VM may well be there still, where nobody can ask
				view.Errors[h] = &fleet.UnknownHostError{Host: h, Known: r.fleet.HostNames()}
			}
		}
		if view.Complete() {
			resp.State.RemoveResource(ctx) // every host has answered that it does not have the VM
			return
		}
		if view.Answered() {
			report.Unfinished(&resp.Diagnostics, r.fleet, view)
			return // some host cannot tell its VMs; what the state has is the best that anybody knows
		}
		report.Unreachable(&resp.Diagnostics, r.fleet, label(state.VM.ValueString()), view, hint...)
		return
	}
	report.Unfinished(&resp.Diagnostics, r.fleet, view)
	imported := state.Partition.IsNull() && state.Pool.IsNull() && state.Device.IsNull()
	if u, unknown := view.Hosts[at.Host].Concerning(at.VM.ID, nil, gpu.PartVMs, gpu.PartDevices, gpu.PartCluster, gpu.PartPartitions); unknown {
		if imported {
			resp.Diagnostics.AddError("VM cannot be read", fmt.Sprintf(
				"Host: %s\nFound: of %s this cannot be read: %s\nFix: put that right on the host, and import again.", at.Host, label(at.VM.Name), u))
		}
		return // what the state has is the best that anybody knows
	}
	if imported {
		r.readImported(ctx, &state, view, at, &resp.Diagnostics)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	a, _ := state.declared(ctx, r.fleet.Power(), &resp.Diagnostics)
	state.observe(ctx, view, at, a, &resp.Diagnostics)
	seen := change.Approved{Keys: []string{}}
	seen.Approve(change.Stoppable(view.Hosts[at.Host], at.VM)...)
	resp.Diagnostics.Append(instance.SetSeen(ctx, resp.Private, seen)...)
	c, ok := fleet.AssignmentClaim(view, at.VM.ID)
	if ok && c.Want.Assignment != nil && c.Owner == r.fleet.Owner() && (c.Token == instance.Token(ctx, req.Private) || state.EffectivePower.IsNull()) {
		state.EffectivePower = power.Applied(c.Want.Assignment.Power)
	}
	if ok {
		if instance.Token(ctx, req.Private) == "" && c.Owner == r.fleet.Owner() {
			resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, c.Token)...)
		}
	}
	records := map[string]*gpu.Claim{}
	if own, recorded := fleet.RecordOf(view, at); recorded {
		records[at.Host] = own
	} else if len(view.Errors) == 0 || view.Hosts[at.Host].Keeps(at.VM) { // else a node that does not answer may have it
		records[at.Host] = nil
	}
	state.Drift = drift.Records(ctx, req.Private, r.fleet.Owner(), records, state.Drift, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// Delete implements resource.Resource.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.fleet.Applying()
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	timeout, d := state.Timeouts.Delete(ctx, perVM)
	resp.Diagnostics.Append(d...)
	prior := state.prior(ctx, r.fleet.Power(), &resp.Diagnostics)
	if declared, replaced := instance.DeclaredPower(ctx, req.Private); replaced {
		prior.Power = prior.Power.Stricter(declared)
	}
	token := instance.Token(ctx, req.Private)
	_, err := r.fleet.Apply(ctx, fleet.Request{
		Change: change.Change{Subject: label(prior.VM), Token: token, Adopt: token == "", Approved: instance.Approved(ctx, req.Private), Prior: gpu.Want{Assignment: prior}}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	})
	if err != nil {
		report.Failure(&resp.Diagnostics, "take the GPU from the VM", label(prior.VM), err)
		return
	}
	r.warnOfRemains(ctx, *prior, &resp.Diagnostics)
}

// warnOfRemains says when a destroy that succeeded may have left the VM as it was.
func (r *Resource) warnOfRemains(ctx context.Context, prior gpu.Assignment, diags *diag.Diagnostics) {
	view, _, err := r.fleet.LookForVM(ctx, prior.VMID, nil, "", r.hint(prior))
	if err != nil && !view.Complete() {
		diags.AddWarning("The VM was left unchanged", fmt.Sprintf(
			"%s\n\nFound: %v.\nThe assignment was removed from the state (on_unreachable = \"keep\"). If the VM is on one of these hosts, it still has its GPU: "+
				"adopt it again with `terraform import`.", label(prior.VM), err))
	}
}
