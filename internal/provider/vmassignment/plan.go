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
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// declare lets the partition configs of this run know what may be done to the VM, as long as it is the one of the state.
func (r *Resource) declare(ctx context.Context, p *planning) bool {
	want, diags := gpu.Assignment{}, &p.Resp.Diagnostics
	p.Known = p.Known && object.Known(p.Plan.Hosts, p.Plan.Cluster, p.Plan.Power)
	if p.Known {
		want = p.Plan.declared(ctx, r.Fleet.Power(), diags)
	}
	p.Want = gpu.Want{Assignment: &want}
	policy := r.policy(p.Plan, diags)
	diags.Append(lifecycle.SetDeclaredPower(ctx, p.Resp.Private, &policy.Power)...)
	if prior := p.Prior.Assignment; prior != nil {
		policy.VMID, policy.Host = prior.VMID, prior.Host
		r.announce(p, policy, r.Fleet.Snapshot(ctx, nil, fleet.Cached))
	}
	return true
}

func (r *Resource) stays(_ context.Context, p *planning) bool {
	return r.undisturbed(p) && r.AsksTheSame(p.Plan, p.State, p.Req.Config)
}

// undisturbed reports whether nothing but its configuration asks for a change of an assignment: no assignment that waited for the VM's
// power-off, and may not wait any more, and no change of the layout that its partition comes from.
func (r *Resource) undisturbed(p *planning) bool {
	due := p.State.Pending.ValueBool() && !p.Want.Assignment.Power.NextOff
	return !due && len(p.Differs) == 0 && !r.configChanges(*p.Want.Assignment)
}

// compute makes unknown what an apply may change. A VM that is not known yet is mostly one that is made anew: a replacement is right
// whichever VM it turns out to be.
func (r *Resource) compute(_ context.Context, p *planning) {
	plan, state, want := p.Plan, p.State, *p.Want.Assignment
	switch {
	case p.Unchanged:
		plan.keep(state)
	case p.Known && state != nil && plan.VM.Equal(state.VM) && r.undisturbed(p) && change.OnlyLiveSettings(*p.Prior.Assignment, want):
		plan.keep(state) // nothing that the VM holds can change
		plan.Drift = report.NoDrift()
	default:
		plan.forget(want, p.Known, r.Fleet.PowerUnknown())
		if state != nil && plan.VM.Equal(state.VM) {
			plan.OwnerHost = state.OwnerHost // no change of an assignment moves its VM
		}
	}
	if state != nil && plan.VM.IsUnknown() {
		replaceVM(p)
	}
}

// hold goes by what this run has seen of the VM.
func (r *Resource) hold(_ context.Context, p *planning, seen fleet.View) {
	want, prior := p.Want.Assignment, p.Prior.Assignment
	want.VMID, want.Host = prior.VMID, prior.Host
	if at, err := fleet.FindAssigned(seen, want); err == nil {
		want.VMName, want.Host = at.VM.Name, at.Host
		r.warnOfName(&p.Resp.Diagnostics, *want)
	}
}

// choose finds the VM. The destroy of a replacement, which takes the GPU from a VM and gives it again, is planned first. An assignment
// that goes to another VM leaves the one that it has.
func (r *Resource) choose(ctx context.Context, p *planning, planned *change.Change) (fleet.View, bool) {
	want, prior, diags := p.Want.Assignment, p.Prior.Assignment, &p.Resp.Diagnostics
	view, at, ok := r.find(ctx, p.Plan, *want, prior, diags)
	if !ok {
		return view, false
	}
	report.Unfinished(diags, r.Fleet, view)
	want.VMID, want.VMName, want.Host = at.VM.ID, at.VM.Name, at.Host
	if h, seen := view.Hosts[at.Host]; seen && h.Platform == gpu.HyperV { // whose partitions have neither
		p.Plan.PartitionAddress, p.Plan.PartitionUUID = types.StringNull(), types.StringNull()
	}
	replaced := r.Fleet.Ledger.Prior(p.Instance).Assignment
	switch {
	case prior == nil && replaced != nil && gpu.SameID(at.VM.ID, replaced.VMID):
		r.PlanDestroy(ctx, p, stricter(*replaced, want.Power))
	case prior == nil:
		r.announce(p, r.policyOf(*want), view)
	case prior.Reserves() != want.Reserves():
		replaceVM(p)
		p.Resp.RequiresReplace = append(p.Resp.RequiresReplace, path.Root("partition"))
		p.Leaves = new(stricter(*prior, want.Power))
	case gpu.SameID(at.VM.ID, prior.VMID):
		planned.Approved = lifecycle.Seen(ctx, p.Req.Private)
		if from := r.replaced(prior, want); from != "" {
			planned.Replaces = true
			p.Resp.RequiresReplace = append(p.Resp.RequiresReplace, path.Root(from))
			p.Leaves = new(stricter(*prior, want.Power))
		}
	default:
		replaceVM(p)
		p.Leaves = new(stricter(*prior, want.Power))
	}
	return view, true
}

// replaced is the attribute that says what the VM draws from, where this run puts another pool or config in the place of that one and
// the old one cannot go before the VM has given back what it has: a pool, or a config that restores the layout. "" where it stays.
func (r *Resource) replaced(prior, want *gpu.Assignment) string {
	switch {
	case prior.Pool != nil && want.Pool != nil:
		p, planned := r.Fleet.Ledger.Pool(want.Pool.ID)
		if was := p.Prior.Pool; planned && was != nil && gpu.SameID(was.ID, prior.Pool.ID) && !gpu.SameID(was.Name, want.Pool.Name) {
			return "pool"
		}
	case prior.Partition != nil && want.Partition != nil && want.Partition.Config != "":
		p, planned := r.Fleet.Ledger.Config(want.Partition.Config)
		if was := p.Prior.Config; planned && was != nil && was.Restore && gpu.SameID(was.ID, prior.Partition.Config) &&
			!gpu.SameID(was.ID, want.Partition.Config) {
			return "partition"
		}
	}
	return ""
}

// replaceVM replaces the assignment by one of another VM.
func replaceVM(p *planning) {
	p.Resp.RequiresReplace = append(p.Resp.RequiresReplace, path.Root("vm"))
	p.Plan.VMID = types.StringUnknown()
}

// stricter is an assignment of whose VM no more may be disturbed than another policy allows as well.
func stricter(a gpu.Assignment, also gpu.Power) gpu.Want {
	a.Power = a.Power.Stricter(also)
	return gpu.Want{Assignment: &a}
}

// policy is what the configuration lets be done to the VM, and shows it in the plan.
func (r *Resource) policy(plan *model, diags *diag.Diagnostics) whatif.Policy {
	p := whatif.Policy{Label: label(plan.VM.ValueString()), Unknown: r.Fleet.PowerUnknown() || !object.Known(plan.Power)}
	if p.Unknown {
		plan.EffectivePower = power.Unknown()
		return p
	}
	p.Power = power.Decode(plan.Power, r.Fleet.Power(), diags)
	plan.EffectivePower = power.Applied(p.Power, plan.Power, diags)
	return p
}

// policyOf is what an assignment of which all is known lets be done to its VM.
func (r *Resource) policyOf(a gpu.Assignment) whatif.Policy {
	return whatif.Policy{Label: label(a.VM), VMID: a.VMID, Host: a.Host, Power: a.Power, Unknown: r.Fleet.PowerUnknown()}
}

// announce lets the partition configs of this run know what may be done to a VM now.
func (r *Resource) announce(p *planning, policy whatif.Policy, view fleet.View) {
	findings := r.Fleet.Ledger.Declare(p.Instance, policy, func() []rules.Finding { return r.Fleet.CheckPolicy(view, policy) })
	report.Findings(&p.Resp.Diagnostics, policy.Label, findings)
}

// warnOfName says that a name in the configuration is out of date: the VM that it
// meant when it was applied is the one that counts.
func (r *Resource) warnOfName(diags *diag.Diagnostics, a gpu.Assignment) {
	if fleet.IsVMID(a.VM) || gpu.SameID(a.VM, a.VMName) || a.Reserves() {
		return
	}
	diags.AddAttributeWarning(path.Root("vm"), "The VM has another name now", fmt.Sprintf(
		"%s\n\nFound: The VM (id %s) is called %q on %s.\nFix: Write its new name, or its id, which never changes.", label(a.VM), a.VMID,
		a.VMName, a.Host))
}

// around looks for the VM, and lets the partition configs of this run know what a destroy may do to it.
func (r *Resource) around(ctx context.Context, p *planning, want gpu.Want) fleet.View {
	prior := want.Assignment
	r.announce(p, r.policyOf(*prior), r.Fleet.Snapshot(ctx, nil, fleet.Cached))
	if prior.Reserves() {
		return r.Fleet.Snapshot(ctx, []string{prior.Host})
	}
	// That the VM is not found, the destroy itself says, if anything is wrong with it.
	return r.Fleet.Snapshot(ctx, nil, fleet.ForVM(fleet.VMSearch{VM: prior.VMID, Hint: r.hint(*prior)}))
}

// keep copies the computed attributes of the state.
func (m *model) keep(state *model) {
	m.VMID, m.OwnerHost, m.GPUIDs, m.PartitionID = state.VMID, state.OwnerHost, state.GPUIDs, state.PartitionID
	m.PartitionVRAMMiB, m.Pending, m.Drift = state.PartitionVRAMMiB, state.Pending, state.Drift
	m.PartitionAddress, m.PartitionUUID = state.PartitionAddress, state.PartitionUUID
}

// forget makes what an apply may change unknown, and only that. The VM's id stays as it is
// planned.
func (m *model) forget(want gpu.Assignment, known, powerUnknown bool) {
	m.OwnerHost, m.GPUIDs, m.PartitionID = types.StringUnknown(), types.SetUnknown(types.StringType), types.Int64Unknown()
	m.PartitionVRAMMiB, m.Pending, m.Drift = types.Int64Unknown(), types.BoolUnknown(), report.NoDrift()
	m.PartitionAddress, m.PartitionUUID = types.StringUnknown(), types.StringUnknown()
	if known && want.Partition == nil {
		m.PartitionID, m.PartitionVRAMMiB = types.Int64Null(), types.Int64Null()
		m.PartitionAddress, m.PartitionUUID = types.StringNull(), types.StringNull()
	}
	if known && !powerUnknown && !want.Power.NextOff {
		m.Pending = types.BoolValue(false)
	}
}
