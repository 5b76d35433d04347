// Package vmassignment is the resource gpu_vm_assignment: one GPU partition, GPUs of
// a pool, or named devices, for one VM.
package vmassignment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_vm_assignment"

// perVM bounds the work on one VM: its shutdown, the change, its start.
const perVM = 20 * time.Minute

var _ lifecycle.Managed = (*Resource)(nil)

// Resource is gpu_vm_assignment.
type Resource struct{ lifecycle.Shell[model] }

// New makes the resource.
func New() resource.Resource { return of(nil) }

func of(f *fleet.Fleet) *Resource {
	r := &Resource{}
	r.Fleet, r.Of = f, lifecycle.Parts[model]{
		Type: ResourceType, Differs: "Assignment differs",
		Creating: "assign a GPU", Changing: "change the assignment", Destroying: "take the GPU from the VM",
		Limit: perVM, DisturbsAt: path.Root("vm"), Policy: []string{"cluster", "hosts", "power", "timeouts"},
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts },
		Drift:    func(m *model) *types.List { return &m.Drift },
		Label:    func(w gpu.Want) string { return label(w.Assignment.VM) },
		Prior:    r.prior, Identify: identify,
		Planner: lifecycle.Planner[model]{
			Declare: r.declare, Stays: r.stays, Compute: r.compute, Hold: r.hold, Choose: r.choose, Around: r.around,
		},
		Touches: func(c *lifecycle.Call[model]) bool {
			return c.Plan.GPUIDs.IsUnknown() || !r.AsksTheSame(c.Plan, c.State, c.Config)
		},
		Apply: r.apply, Permit: r.updatePermission, Read: r.read, Destroy: r.destroy,
	}
	return r
}

type planning = lifecycle.Planning[model]

func identify(ctx context.Context, known, next *tfsdk.ResourceIdentity, m *model) diag.Diagnostics {
	return lifecycle.Identify(ctx, known, next, identityModel{VMID: m.VMID})
}

func label(vm string) string { return fmt.Sprintf("%s for VM %q", ResourceType, vm) }

// updatePermission rewrites the claim when the power policy in force changes, by the
// resource's own `power` or the provider's: a partition config that has to stop the VM
// goes by the claim. Other changes of policy need no host.
func (r *Resource) updatePermission(ctx context.Context, c *lifecycle.Call[model]) {
	prior := c.Prior.Assignment
	want := c.Plan.declared(ctx, r.Fleet.Power(), c.Diags)
	c.Plan.EffectivePower = power.Applied(want.Power, c.Plan.Power, c.Diags)
	if c.Token == "" || power.Same(c.Plan.EffectivePower, c.Plan.Power, c.State.EffectivePower, c.State.Power, c.Diags) {
		return
	}
	want.VMID, want.Host = prior.VMID, prior.Host
	if at, err := fleet.FindAssigned(r.Fleet.Snapshot(ctx, r.Fleet.HostNames()), &want); err == nil {
		want.VMName = at.VM.Name
	}
	c.Subject, c.Want.Assignment, c.ClaimOnly = label(want.VM), &want, true
	c.Doing = "record what may be done to the VM"
	r.Carry(ctx, c)
}

// apply makes the plan real and fills in its computed attributes. It returns false
// when nothing of the change is there.
func (r *Resource) apply(ctx context.Context, c *lifecycle.Call[model]) bool {
	planned := *c.Plan
	want := planned.declared(ctx, r.Fleet.Power(), c.Diags)
	if c.Diags.HasError() {
		return false
	}
	_, at, ok := r.find(ctx, c.Plan, want, c.Prior.Assignment, c.Diags)
	if !ok {
		if !c.Diags.HasError() {
			c.Diags.AddAttributeError(path.Root("vm"), "VM was not found", fmt.Sprintf("%s\n\nFound: The hosts that answer do not have it, "+
				"and others do not answer.", label(want.VM)))
		}
		return false
	}
	want.VMID, want.VMName, want.Host, want.Among = at.VM.ID, at.VM.Name, at.Host, at.Among
	c.Subject, c.Want.Assignment = label(want.VM), &want
	_, done := r.Carry(ctx, c)
	if want.Device != nil && !want.Device.Force {
		report.NeedsForce(c.Diags, path.Root("device").AtName("dismount"), c.Subject, c.Err)
	}
	if !done {
		return false
	}
	view := r.Fleet.Snapshot(ctx, []string{at.Host}, fleet.WithClusterPeers)
	now, err := fleet.FindAssigned(view, &want)
	if err != nil {
		title := "VM disappeared"
		if !view.Complete() {
			title = "VM state unknown after the change"
		}
		c.Diags.AddError(title, fmt.Sprintf("%s\n\nFound: %v, right after the change.", c.Subject, words.Capital(err.Error())))
		now = at
		view.Hosts[at.Host] = &gpu.Host{Name: at.Host}
	}
	c.Plan.observe(ctx, view, now, want, c.Diags)
	c.Plan.EffectivePower = power.Applied(want.Power, c.Plan.Power, c.Diags)
	// What was planned to stay is left so: if the VM moved meanwhile, the next Read says so.
	if !planned.OwnerHost.IsUnknown() && !c.Diags.HasError() {
		c.Plan.OwnerHost = planned.OwnerHost
	}
	if !planned.GPUIDs.IsUnknown() {
		planned.Drift = c.Plan.Drift
		c.Plan.keep(&planned)
	}
	return true
}

// read finds the VM, completes an import, and writes what the hosts have.
func (r *Resource) read(
	ctx context.Context, state *model, req resource.ReadRequest, resp *resource.ReadResponse,
) (own *gpu.Claim, records map[string]*gpu.Claim, ok bool) {
	view, at, found := r.lookAgain(ctx, state, resp)
	if !found {
		return nil, nil, false
	}
	diags := &resp.Diagnostics
	report.Unfinished(diags, r.Fleet, view)
	imported := state.Partition.IsNull() && state.Pool.IsNull() && state.Device.IsNull()
	parts := []gpu.Part{gpu.PartVMs, gpu.PartDevices, gpu.PartCluster, gpu.PartPartitions}
	if part, unknown := view.Hosts[at.Host].Concerning(at.VM.ID, nil, parts...); unknown {
		if imported {
			diags.AddError("VM cannot be read", fmt.Sprintf(
				"Host: %s\nFound: Of %s this cannot be read: %s\nFix: Repair it on the host, and import again.", at.Host, label(at.VM.Name), part))
		}
		return nil, nil, false // what the state has is the best that anybody knows
	}
	if imported {
		if r.readImported(ctx, state, view, at, diags); diags.HasError() {
			return nil, nil, false
		}
	}
	state.observe(ctx, view, at, state.declared(ctx, r.Fleet.Power(), diags), diags)
	seen := change.Approved{Keys: []string{}}
	seen.Approve(change.Stoppable(view.Hosts[at.Host], at.VM)...)
	diags.Append(lifecycle.SetSeen(ctx, resp.Private, seen)...)
	claim, claimed := fleet.RecordOf(view, at)
	records = map[string]*gpu.Claim{}
	if !claimed {
		if len(view.Errors) == 0 || view.Hosts[at.Host].Keeps(at.VM) { // else a node that does not answer may have it
			records[at.Host] = nil
		}
		return claim, records, true
	}
	records[at.Host] = claim
	ours := claim.Owner == r.Fleet.Owner() && (claim.Token == lifecycle.Token(ctx, req.Private) || imported)
	if recorded := claim.Want.Assignment; recorded != nil && ours {
		state.EffectivePower = power.Applied(recorded.Power, state.Power, diags)
	}
	return claim, records, true
}

// lookAgain looks for the VM of a state: where it was, and where the configuration says. A VM that is nowhere takes its assignment with
// it. Where it is not known, the state stays as it is.
func (r *Resource) lookAgain(
	ctx context.Context, state *model, resp *resource.ReadResponse,
) (view fleet.View, at fleet.FoundVM, found bool) {
	diags := &resp.Diagnostics
	if of, is := r.reservation(ctx, state, diags); is {
		return r.lookAtReservation(ctx, of, diags)
	}
	within, _ := scope.Decode(ctx, state.Hosts, state.Cluster, types.ObjectNull(scope.SelectorType), diags)
	hint := within.Hosts
	if host := state.OwnerHost.ValueString(); host != "" {
		hint = []string{host}
	}
	search := fleet.VMSearch{VM: state.VMID.ValueString(), Hint: hint}
	view = r.Fleet.Snapshot(ctx, nil, fleet.ForVM(search))
	at, err := search.In(view)
	if err == nil {
		return view, at, true
	}
	if notOneVM(err) {
		diags.AddAttributeWarning(path.Root("vm"), "The VM's host is not known", fmt.Sprintf(
			"%s\n\nFound: %v.\nThe state stays as it is.", label(state.VM.ValueString()), words.Capital(err.Error())))
		return view, at, false
	}
	for _, host := range hint {
		if !r.Fleet.Has(host) { // the VM may well be there still, where nobody can ask
			view.Errors[host] = &fleet.UnknownHostError{Host: host, Known: r.Fleet.HostNames()}
		}
	}
	switch {
	case view.Complete():
		resp.State.RemoveResource(ctx) // every host has answered that it does not have the VM
		r.Fleet.Ledger.NoteDeleted(state.VM.ValueString())
		warnOfRecord(view, state, diags)
	case view.Answered(): // some host cannot tell its VMs; what the state has is the best that anybody knows
		report.Unfinished(diags, r.Fleet, view)
	default:
		report.Unreachable(diags, r.Fleet, label(state.VM.ValueString()), view, hint...)
	}
	return view, at, false
}

// warnOfRecord says what becomes of the record of a VM that is gone.
func warnOfRecord(view fleet.View, state *model, diags *diag.Diagnostics) {
	var hosts []string
	for host := range view.Claims(gpu.ClaimAssignment, state.VMID.ValueString()) {
		hosts = append(hosts, host)
	}
	if len(hosts) > 0 {
		diags.AddWarning("The record of a VM that was deleted is left", fmt.Sprintf(
			"%s\n\nHost: %s\nFound: The host has a record of this assignment, and no host has its VM any more.\n"+
				"Fix: The next apply that changes something and has looked at every host drops it. "+
				"`gpu-agent claims forget` on the host does so at once.",
			label(state.VM.ValueString()), words.Join(hosts)))
	}
}

// notOneVM reports whether a VM was not found because hosts disagree on where it is, or because only a
// replica of it is left. Neither says that it is gone.
func notOneVM(err error) bool {
	gone, ok := errors.AsType[*fleet.VMGoneError](err)
	return ok && len(gone.Copies) > 0 || errors.As(err, new(*fleet.AmbiguousVMError))
}

// destroy takes from the VM what it was given.
func (r *Resource) destroy(ctx context.Context, c *lifecycle.Call[model]) {
	prior := c.Prior.Assignment
	if declared, replaced := lifecycle.DeclaredPower(ctx, c.Private); replaced {
		prior.Power = prior.Power.Stricter(declared)
	}
	if r.Carry(ctx, c); !c.Diags.HasError() {
		r.warnOfRemains(ctx, *prior, c.Diags)
	}
}

// warnOfRemains says when a destroy that succeeded may have left the VM as it was.
func (r *Resource) warnOfRemains(ctx context.Context, prior gpu.Assignment, diags *diag.Diagnostics) {
	if prior.Reserves() {
		return
	}
	search := fleet.VMSearch{VM: prior.VMID, Hint: r.hint(prior)}
	view := r.Fleet.Snapshot(ctx, nil, fleet.ForVM(search))
	if _, err := search.In(view); err != nil && !view.Complete() {
		diags.AddWarning("The VM was left unchanged", fmt.Sprintf(
			"%s\n\nFound: %v.\nThe assignment was removed from the state (on_unreachable = \"keep\"). "+
				"If the VM is on one of these hosts, it still has its GPU: "+
				"adopt it again with `terraform import`.", label(prior.VM), words.Capital(err.Error())))
	}
}
