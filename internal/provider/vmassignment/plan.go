package vmassignment

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/drift"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// plan finds the VM, decides whether it has to be touched, and proves the plan against the hosts
// and the rest of this run.
func (r *Resource) plan(ctx context.Context, p *lifecycle.Planning[model]) (stays bool) {
	plan, state, prior, resp := p.Plan, p.State, p.Prior.Assignment, p.Resp
	want, known := gpu.Assignment{}, p.Known && object.Known(plan.Hosts, plan.Cluster, plan.Power)
	if known {
		want = plan.declared(ctx, r.Fleet.Power(), &resp.Diagnostics)
	}
	policy := r.policy(plan, &resp.Diagnostics)
	resp.Diagnostics.Append(instance.SetDeclaredPower(ctx, resp.Private, &policy.Power)...)
	if prior != nil {
		r.declare(p.Inst, policy, prior.VMID, prior.Host, r.Fleet.Snapshot(ctx, nil, fleet.Cached), &resp.Diagnostics)
	}
	sameVM := state != nil && plan.VM.Equal(state.VM)
	// An assignment that waited for the VM's power-off, and may not wait any more.
	due := state != nil && state.Pending.ValueBool() && !want.Power.NextOff
	same := known && state != nil && !due && len(p.Differs) == 0 && r.AsksTheSame(plan, state, p.Req.Config)
	unchanged := same && !r.configChanges(want)

	switch {
	case unchanged:
		plan.keep(state)
	case known && sameVM && !due && len(p.Differs) == 0 && !r.configChanges(want) && change.OnlyLiveSettings(*prior, want):
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
		r.Fleet.Ledger.Forget(p.Inst) // its checks wait until apply
		p.Show(ctx)
		return false
	}

	ch := change.Change{Subject: label(want.VM), Token: instance.Token(ctx, p.Req.Private), Prior: p.Prior, Want: gpu.Want{Assignment: &want}, Unchanged: unchanged}
	ch.Adopt = state != nil && ch.Token == ""
	if unchanged {
		p.Show(ctx)
		r.planUnchanged(ctx, p, ch)
		return false
	}
	view, at, ok := r.find(ctx, plan, want, prior, &resp.Diagnostics)
	if !ok {
		r.Fleet.Ledger.Forget(p.Inst)
		p.Show(ctx)
		return false
	}
	report.Unfinished(&resp.Diagnostics, r.Fleet, view)
	want.VMID, want.VMName, want.Host = at.VM.ID, at.VM.Name, at.Host
	leaves := false
	switch before := r.Fleet.Ledger.Prior(p.Inst).Assignment; {
	case state == nil && before != nil && gpu.SameID(at.VM.ID, before.VMID):
		again := *before // a replacement, which takes the GPU away and gives it again
		again.Power = again.Power.Stricter(want.Power)
		r.PlanDestroy(ctx, p, gpu.Want{Assignment: &again})
	case state == nil:
		r.declare(p.Inst, policy, at.VM.ID, at.Host, view, &resp.Diagnostics)
	case gpu.SameID(at.VM.ID, state.VMID.ValueString()):
		ch.Approved = instance.Seen(ctx, p.Req.Private)
	default:
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("vm"))
		plan.VMID = types.StringUnknown()
		leaves = true
	}
	p.Show(ctx)
	stays = r.Record(ctx, p, view, ch)
	if leaves { // after the record, by which another that leaves the wanted VM hands it over
		was := *prior
		was.Power = was.Power.Stricter(want.Power)
		r.PlanDestroy(ctx, p, gpu.Want{Assignment: &was})
	}
	return stays
}

// policy is what the configuration lets be done to the VM, and shows it in the plan.
func (r *Resource) policy(plan *model, diags *diag.Diagnostics) rules.Policy {
	p := rules.Policy{Label: label(plan.VM.ValueString()), Unknown: r.Fleet.PowerUnknown() || !object.Known(plan.Power)}
	if p.Unknown {
		plan.EffectivePower = power.Unknown()
		return p
	}
	p.Power = power.Decode(plan.Power, r.Fleet.Power(), diags)
	plan.EffectivePower = power.Applied(p.Power, plan.Power, diags)
	return p
}

// declare lets the partition configs of this run know what may be done to a VM now.
func (r *Resource) declare(inst string, p rules.Policy, vmID, host string, v fleet.View, diags *diag.Diagnostics) {
	p.VMID, p.Host = vmID, host
	report.Findings(diags, p.Label, r.Fleet.Ledger.Declare(inst, p, func() []rules.Finding { return r.Fleet.CheckPolicy(v, p) }))
}

// planUnchanged records what the resource goes on holding. It goes by what this run
// has seen: a change of policy alone asks nobody.
func (r *Resource) planUnchanged(ctx context.Context, p *lifecycle.Planning[model], ch change.Change) {
	want, view := ch.Want.Assignment, r.Fleet.Snapshot(ctx, nil, fleet.Cached)
	want.VMID, want.Host = p.Prior.Assignment.VMID, p.Prior.Assignment.Host
	if at, err := fleet.FindVMNear(view, want.VMID, want.Host); err == nil {
		want.VMName, want.Host = at.VM.Name, at.Host
		r.warnOfName(&p.Resp.Diagnostics, *want)
	}
	r.Record(ctx, p, view, ch)
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

// around looks for the VM, and lets the partition configs of this run know what a destroy may do to it.
func (r *Resource) around(ctx context.Context, p *lifecycle.Planning[model], was gpu.Want) fleet.View {
	prior := was.Assignment
	r.declare(p.Inst, rules.Policy{Label: label(prior.VM), Power: prior.Power, Unknown: r.Fleet.PowerUnknown()}, prior.VMID, prior.Host, r.Fleet.Snapshot(ctx, nil, fleet.Cached), &p.Resp.Diagnostics)
	// That the VM is not found, the destroy itself says, if anything is wrong with it.
	return r.Fleet.Snapshot(ctx, nil, fleet.ForVM(fleet.VMSearch{VM: prior.VMID, Hint: r.hint(*prior)}))
}

// keep copies the computed attributes of the state.
func (m *model) keep(state *model) {
	m.VMID, m.OwnerHost, m.GPUIDs, m.PartitionID = state.VMID, state.OwnerHost, state.GPUIDs, state.PartitionID
	m.PartitionVRAMMiB, m.Pending, m.Drift = state.PartitionVRAMMiB, state.Pending, state.Drift
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
