package vmassignment

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/drift"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// plan finds the VM, decides whether it has to be touched, and proves the plan against the hosts
// and the rest of this run.
func (r *Resource) plan(ctx context.Context, inst string, plan, state *model, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) (stays bool) {
	want, known := plan.declared(ctx, r.Fleet.Power(), &resp.Diagnostics)
	prior := state.prior(ctx, r.Fleet.Power(), &resp.Diagnostics)
	policy := r.policy(ctx, plan, &resp.Diagnostics)
	resp.Diagnostics.Append(instance.SetDeclaredPower(ctx, resp.Private, &policy.Power)...)
	if prior != nil {
		r.declare(inst, policy, prior.VMID, r.Fleet.Seen(), &resp.Diagnostics)
	}
	drifted := state.drifted(ctx, &resp.Diagnostics)
	sameVM := state != nil && plan.VM.Equal(state.VM)
	// An assignment that waited for the VM's power-off, and may not wait any more.
	due := state != nil && state.Pending.ValueBool() && !want.Power.NextOff
	same := known && sameVM && !due && len(drifted) == 0 && plan.assigns(state)
	unchanged := same && !r.configChanges(want)

	switch {
	case unchanged:
		plan.keep(state)
	case known && sameVM && !due && len(drifted) == 0 && !r.configChanges(want) && change.OnlyLiveSettings(*prior, want):
		plan.keep(state) // nothing that the VM holds can change
		plan.Drift = object.None(drift.Type)
	default:
		plan.forget(want, known, r.Fleet.PowerUnknown())
	}
	if state != nil && plan.VM.IsUnknown() {
		// A reference that is not known yet mostly means a VM that is made anew. A
		// replacement is right whichever VM it turns out to be.
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("vm"))
		plan.VMID = types.StringUnknown()
	}
	if !known || r.Fleet.Unknown() {
		r.Fleet.Ledger.Forget(inst) // its checks wait until apply
		object.Set(ctx, &resp.Plan.Raw, plan, &resp.Diagnostics)
		return false
	}

	p := change.Change{Subject: label(want.VM), Token: instance.Token(ctx, req.Private), Unchanged: unchanged}
	p.Adopt = state != nil && p.Token == ""
	p.Prior.Assignment, p.Want.Assignment = prior, &want
	if unchanged {
		object.Set(ctx, &resp.Plan.Raw, plan, &resp.Diagnostics)
		r.planUnchanged(ctx, inst, p, &resp.Diagnostics)
		return false
	}
	view, at, ok := r.find(ctx, plan, want, prior, &resp.Diagnostics)
	if !ok {
		r.Fleet.Ledger.Forget(inst)
		object.Set(ctx, &resp.Plan.Raw, plan, &resp.Diagnostics)
		return false
	}
	report.Unfinished(&resp.Diagnostics, r.Fleet, view)
	want.VMID, want.VMName, want.Host = at.VM.ID, at.VM.Name, at.Host
	leaves := false
	switch before := r.Fleet.Ledger.Prior(inst).Assignment; {
	case state == nil && before != nil && gpu.SameID(at.VM.ID, before.VMID):
		again := *before // a replacement, which takes the GPU away and gives it again
		again.Power = again.Power.Stricter(want.Power)
		r.planDestroy(ctx, req, &again, resp)
	case state == nil:
		r.declare(inst, policy, at.VM.ID, view, &resp.Diagnostics)
	case gpu.SameID(at.VM.ID, state.VMID.ValueString()):
		p.Approved = instance.Seen(ctx, req.Private)
	default:
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("vm"))
		plan.VMID = types.StringUnknown()
		leaves = true
	}
	object.Set(ctx, &resp.Plan.Raw, plan, &resp.Diagnostics)
	stays = r.Record(ctx, inst, path.Root("vm"), view, p, drifted, &resp.Diagnostics)
	if leaves { // after the record, by which another that leaves the wanted VM hands it over
		was := *prior
		was.Power = was.Power.Stricter(want.Power)
		r.planDestroy(ctx, req, &was, resp)
	}
	return stays
}

func (r *Resource) planGone(ctx context.Context, state *model, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	resp.Diagnostics.Append(instance.SetDeclaredPower(ctx, resp.Private, nil)...)
	r.planDestroy(ctx, req, state.prior(ctx, r.Fleet.Power(), &resp.Diagnostics), resp)
}

// policy is what the configuration lets be done to the VM, and shows it in the plan.
func (r *Resource) policy(ctx context.Context, plan *model, diags *diag.Diagnostics) rules.Policy {
	p := rules.Policy{Label: label(plan.VM.ValueString()), Unknown: r.Fleet.PowerUnknown() || !object.Known(ctx, plan.Power)}
	if p.Unknown {
		plan.EffectivePower = power.Unknown()
		return p
	}
	p.Power = power.Decode(plan.Power, r.Fleet.Power(), diags)
	plan.EffectivePower = power.Applied(p.Power, plan.Power, diags)
	return p
}

// declare lets the partition configs of this run know what may be done to a VM now.
func (r *Resource) declare(inst string, p rules.Policy, vmID string, v fleet.View, diags *diag.Diagnostics) {
	p.VMID = vmID
	report.Findings(diags, p.Label, r.Fleet.Ledger.Declare(inst, p, func() []rules.Finding { return r.Fleet.CheckPolicy(v, p) }))
}

// planUnchanged records what the resource goes on holding. It goes by what this run
// has seen: a change of policy alone asks nobody.
func (r *Resource) planUnchanged(ctx context.Context, inst string, p change.Change, diags *diag.Diagnostics) {
	want, view := p.Want.Assignment, r.Fleet.Seen()
	want.VMID, want.Host = p.Prior.Assignment.VMID, p.Prior.Assignment.Host
	if at, err := fleet.FindVM(view, want.VMID); err == nil {
		want.VMName, want.Host = at.VM.Name, at.Host
		r.warnOfName(diags, *want)
	}
	r.Record(ctx, inst, path.Root("vm"), view, p, nil, diags)
}

// warnOfName says that a name in the configuration is out of date: the VM that it
// meant when it was applied is the one that counts.
func (r *Resource) warnOfName(diags *diag.Diagnostics, a gpu.Assignment) {
	if fleet.IsVMID(a.VM) || gpu.SameID(a.VM, a.VMName) {
		return
	}
	diags.AddAttributeWarning(path.Root("vm"), "The VM has another name now", fmt.Sprintf(
		"%s\n\nFound: The VM (id %s) is called %q on %s.\nFix: Write its new name, or its id, which never changes.", label(a.VM), a.VMID, a.VMName, a.Host))
}

// planDestroy proves that the GPU can be taken from the VM.
func (r *Resource) planDestroy(ctx context.Context, req resource.ModifyPlanRequest, prior *gpu.Assignment, resp *resource.ModifyPlanResponse) {
	if prior == nil || r.Fleet.Unknown() {
		return
	}
	inst := r.Fleet.Ledger.Instance(instance.Ledger(ctx, req.Private))
	r.declare(inst, rules.Policy{Label: label(prior.VM), Power: prior.Power, Unknown: r.Fleet.PowerUnknown()}, prior.VMID, r.Fleet.Seen(), &resp.Diagnostics)
	// That the VM is not found, the destroy itself says, if anything is wrong with it.
	view, _, _ := r.Fleet.LookForVM(ctx, prior.VMID, nil, "", r.hint(*prior))
	report.Destroy(ctx, r.Fleet, path.Root("vm"), view, req, resp, change.Change{Subject: label(prior.VM), Prior: gpu.Want{Assignment: prior}})
}

// keep copies the computed attributes of the state.
func (m *model) keep(state *model) {
	m.VMID, m.OwnerHost, m.GPUIDs, m.PartitionID = state.VMID, state.OwnerHost, state.GPUIDs, state.PartitionID
	m.PartitionVRAMMiB, m.Pending, m.Drift = state.PartitionVRAMMiB, state.Pending, state.Drift
}

// assigns reports whether the VM is to get what the state says, and no other settings.
func (m *model) assigns(state *model) bool {
	return m.Partition.Equal(state.Partition) && m.Pool.Equal(state.Pool) && m.Device.Equal(state.Device) && m.LowMMIO.Equal(state.LowMMIO) &&
		m.HighMMIO.Equal(state.HighMMIO) && m.Cache.Equal(state.Cache) && m.Stop.Equal(state.Stop) && m.Offline.Equal(state.Offline)
}

// forget makes what an apply may change unknown, and only that. The VM's id stays as it is
// planned.
func (m *model) forget(want gpu.Assignment, known, powerUnknown bool) {
	m.OwnerHost, m.GPUIDs, m.PartitionID = types.StringUnknown(), types.SetUnknown(types.StringType), types.Int64Unknown()
	m.PartitionVRAMMiB, m.Pending, m.Drift = types.Int64Unknown(), types.BoolUnknown(), object.None(drift.Type)
	if known && want.Partition == nil {
		m.PartitionID, m.PartitionVRAMMiB = types.Int64Null(), types.Int64Null()
	}
	if known && !powerUnknown && !want.Power.NextOff {
		m.Pending = types.BoolValue(false)
	}
}
