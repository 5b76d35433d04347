// Package partitionconfig is the resource gpu_partition_config: one layout on a
// homogeneous set of GPUs across hosts.
package partitionconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
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

var _ lifecycle.Managed = (*Resource)(nil)

// Resource is gpu_partition_config.
type Resource struct{ lifecycle.Shell[model] }

// New makes the resource.
func New() resource.Resource { return of(nil) }

func of(f *fleet.Fleet) *Resource {
	r := &Resource{}
	r.Fleet, r.Of = f, lifecycle.Parts[model]{
		Type: ResourceType, Differs: "Partitions differ",
		Creating: "create the partition config", Changing: "change the partition config", Destroying: "destroy the partition config",
		Limit: perHost, DisturbsAt: path.Empty(), Policy: []string{"max_disruption", "on_destroy", "rollout", "timeouts"},
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts },
		Roll:     (*model).roll,
		Drift:    func(m *model) *types.List { return &m.Drift },
		Label:    func(w gpu.Want) string { return label(w.Config.ID) },
		Prior:    prior, Identify: identify,
		Planner: lifecycle.Planner[model]{
			Declare: r.declare, Compute: r.compute, Wait: r.wait, Hold: r.hold, Choose: r.choose,
			Around: func(ctx context.Context, _ *planning, prior gpu.Want) fleet.View {
				return r.Fleet.Snapshot(ctx, slices.Sorted(maps.Keys(prior.Config.GPUs)), fleet.WithClusterPeers)
			},
		},
		Touches: func(c *lifecycle.Call[model]) bool {
			return !object.Known(c.Plan.GPUs) || !c.Plan.Drift.Equal(c.State.Drift) || !r.AsksTheSame(c.Plan, c.State, c.Config)
		},
		Apply: r.apply, Permit: r.updatePermission, Read: r.read, Destroy: r.destroy,
	}
	return r
}

type planning = lifecycle.Planning[model]

func label(id string) string { return fmt.Sprintf("%s %q", ResourceType, id) }

// declare makes the id, and plans the end of the config that this one replaces.
func (r *Resource) declare(ctx context.Context, p *planning) bool {
	want, plan, state, diags := gpu.PartitionConfig{}, p.Plan, p.State, &p.Resp.Diagnostics
	p.Differs = mended(p.Differs)
	if p.Known {
		want = plan.declared(ctx, diags)
		if plan.ID.IsUnknown() || state != nil && (!plan.Name.Equal(state.Name) || want.Kind != p.Prior.Config.Kind) {
			want.ID = configID(want)
			plan.ID = types.StringValue(want.ID)
		}
	}
	p.Want = gpu.Want{Config: &want}
	if prior := p.Prior.Config; prior != nil && plan.kindIsOpen(prior.Kind) {
		diags.AddError("The kind of the config has to be known at plan", fmt.Sprintf("%s\n\n"+
			"Found: It is of kind %s, and which kind it is to be is known only after apply.\n"+
			"Wanted: A plan must say whether the config is replaced: another kind forces replacement.\n"+
			"Fix: Let the kind depend on what is known at plan, such as a variable, or apply what it depends on first, with -target.",
			label(prior.ID), prior.Kind))
		return false
	}
	return r.replace(ctx, p) && !diags.HasError()
}

// replace plans the end of the config that this one replaces, if there is one. One of the same kind and another id is given up
// once this one is there. It returns false where one of another kind cannot end, which is what is wrong with the replacement.
func (r *Resource) replace(ctx context.Context, p *planning) bool {
	want, replaced := p.Want.Config, p.Prior.Config
	if p.State == nil {
		replaced = r.Fleet.Ledger.Prior(p.Instance).Config // The second call for a replacement does not tell what is replaced.
	}
	if replaced == nil {
		return true
	}
	otherKind := want.Kind != replaced.Kind
	switch {
	case p.Known && !otherKind && want.ID != replaced.ID:
		if p.State != nil {
			p.Leaves = &gpu.Want{Config: replaced}
		}
		return true
	case p.State != nil && (!p.Known || !otherKind):
		return true
	}
	after, ends := r.PlanDestroy(ctx, p, gpu.Want{Config: replaced})
	if !otherKind {
		return true
	}
	p.Ended = after
	if !ends {
		r.Fleet.Ledger.Forget(p.Instance)
	}
	return ends
}

func (r *Resource) compute(ctx context.Context, p *planning) {
	if p.Unchanged {
		p.Plan.keepObserved(p.State)
		return
	}
	p.Plan.forgetObserved(*p.Want.Config, p.Known)
	if p.Known {
		p.Plan.foresee(ctx, *p.Want.Config, p.State, p.Differs, &p.Resp.Diagnostics)
	}
}

// wait leaves the checks to the apply, but for VMs whose permission is taken back meanwhile.
func (r *Resource) wait(ctx context.Context, p *planning) {
	open := change.Change{Subject: label(p.Want.Config.ID), Prior: p.Prior}
	if p.State != nil {
		open.Subject = label(p.Prior.Config.ID)
	}
	findings := r.Fleet.Ledger.Open(p.Instance, open, func() []rules.Finding {
		return r.Fleet.CheckOpen(r.Fleet.Snapshot(ctx, nil, fleet.Cached), open)
	})
	report.Findings(&p.Resp.Diagnostics, open.Subject, findings)
}

func (r *Resource) hold(_ context.Context, p *planning, _ fleet.View) {
	p.Want.Config.GPUs = p.Prior.Config.GPUs
	r.Fleet.Ledger.Reshape(p.Want.Config.ID, false)
}

// choose selects the config's GPUs on its hosts. The hosts that leave the config matter as well.
func (r *Resource) choose(ctx context.Context, p *planning, planned *change.Change) (fleet.View, bool) {
	want, diags := p.Want.Config, &p.Resp.Diagnostics
	planned.Approved = lifecycle.Seen(ctx, p.Req.Private)
	hosts, view, ok := scope.Hosts(ctx, r.Fleet, want.Scope, has(p.Prior), diags)
	if !report.Unreachable(diags, r.Fleet, planned.Subject, view, p.State.held(diags)...) || !ok || diags.HasError() {
		return view, false
	}
	if !r.allAnswer(hosts, view, planned.Subject, diags) {
		return view, false
	}
	chooseGPUs(want, planned.Token, hosts, view.With(p.Ended))
	if prior := p.Prior.Config; prior != nil {
		view = view.With(r.Fleet.Snapshot(ctx, slices.Sorted(maps.Keys(prior.GPUs))))
		if p.Plan.selectsAs(p.State) {
			p.LeftOut = r.Fleet.LeaveOut(view, *planned)
		}
	}
	r.reshape(p)
	return view.With(p.Ended), true
}

// reshape tells the assignments of this run whether their VMs get other partitions. The second call for a replacement does not know.
func (r *Resource) reshape(p *planning) {
	if p.State != nil {
		r.Fleet.Ledger.Reshape(p.Want.Config.ID, p.State.hasOtherCount(*p.Want.Config, &p.Resp.Diagnostics))
	}
}

// has is where a config is by its state.
func has(prior gpu.Want) scope.Has {
	if c := prior.Config; c != nil {
		return scope.Has{Cluster: c.Scope.Cluster, Hosts: slices.Sorted(maps.Keys(c.GPUs))}
	}
	return scope.Has{}
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
				"Fix: Bring the host back, or take it out of this config.", label, n, words.Capital(err.Error())))
	}
	return ok
}

// updatePermission rewrites the claims when rollout.drain changes, or max_disruption of MPS: actions
// and the agent go by them. Other changes of policy need no host.
func (r *Resource) updatePermission(ctx context.Context, c *lifecycle.Call[model]) {
	prior := c.Prior.Config
	want := c.Plan.declared(ctx, c.Diags)
	if c.Token == "" || want.Drain == prior.Drain && (want.MPS == nil || want.MaxDisruption == prior.MaxDisruption) {
		return
	}
	want.GPUs = prior.GPUs
	c.Subject, c.Want.Config, c.ClaimOnly, c.MaxUnavailable = label(want.ID), &want, true, len(want.GPUs)
	c.Doing = "record what the config allows"
	r.Carry(ctx, c)
}

// apply makes the plan real and fills in its computed attributes. It returns false
// when nothing of the change is there.
func (r *Resource) apply(ctx context.Context, c *lifecycle.Call[model]) bool {
	want := c.Plan.declared(ctx, c.Diags)
	if c.Diags.HasError() {
		return false
	}
	c.Subject, c.Want.Config = label(want.ID), &want
	hosts, view, ok := scope.Hosts(ctx, r.Fleet, want.Scope, has(c.Prior), c.Diags)
	if !r.Answer(c, hosts, view, ok) {
		return false
	}
	chooseGPUs(&want, c.Token, hosts, view)
	if c.Prior.Config != nil {
		c.Prior.Config.Restore = want.Restore // what a host that leaves is to be put back to is the plan's business
		if c.Plan.selectsAs(c.State) {
			r.Fleet.LeaveOut(view, c.Change)
		}
	}
	c.Plan.roll(&c.Request, c.Diags)
	skipped, done := r.Carry(ctx, c)
	if !done {
		return false
	}
	// What the state knows stays for hosts that have not left yet.
	before := c.State.gpus(c.Diags)
	for name := range skipped {
		delete(before, name)
	}
	planned := *c.Plan
	c.Plan.setGPUs(ctx, before, c.Diags)
	c.Plan.observe(ctx, want, hosts, r.Fleet.Snapshot(ctx, slices.Concat(hosts, slices.Collect(maps.Keys(before)))), c.Diags)
	if !c.Diags.HasError() {
		c.Plan.asPlanned(ctx, &planned, c.Diags)
	}
	return true
}

// read completes an import, and writes what the hosts have.
func (r *Resource) read(
	ctx context.Context, state *model, req resource.ReadRequest, resp *resource.ReadResponse,
) (*gpu.Claim, map[string]*gpu.Claim, bool) {
	if state.kind() == "" {
		r.readImported(ctx, state, gpu.Kind(lifecycle.ImportedKind(ctx, req.Private)), &resp.Diagnostics)
		resp.Diagnostics.Append(lifecycle.SetImportedKind(ctx, resp.Private, "")...)
		if resp.Diagnostics.HasError() {
			return nil, nil, false
		}
	}
	c := state.declared(ctx, &resp.Diagnostics)
	hosts, view := r.look(ctx, c.Scope, state.gpus(&resp.Diagnostics), &resp.Diagnostics)
	if !report.Unreachable(&resp.Diagnostics, r.Fleet, label(c.ID), view, state.held(&resp.Diagnostics)...) {
		return nil, nil, false
	}
	view = state.begun(ctx, r.Fleet, lifecycle.Token(ctx, req.Private), c, view, &resp.Diagnostics)
	resp.Diagnostics.Append(lifecycle.SetSeen(ctx, resp.Private, view.Disturbable(hosts))...)
	state.warnLost(c, view, &resp.Diagnostics)
	gpusBefore := state.gpus(&resp.Diagnostics)
	state.observe(ctx, c, hosts, view, &resp.Diagnostics)
	claim, _ := claimOf(view, c.ID, r.Fleet.Owner())
	return claim, state.records(hosts, gpusBefore, view, &resp.Diagnostics), true
}

// look takes the hosts of a scope as the state has it, and looks at those that the
// state lists besides: a host that the provider no longer knows is in the view as one
// that does not answer.
func (r *Resource) look(
	ctx context.Context, s gpu.Scope, listed map[string]map[string]gpuModel, diags *diag.Diagnostics,
) ([]string, fleet.View) {
	hosts := scope.Stated(ctx, r.Fleet, s, slices.Sorted(maps.Keys(listed)), diags)
	all := slices.Concat(hosts, slices.Collect(maps.Keys(listed)))
	slices.Sort(all)
	return hosts, r.Fleet.Snapshot(ctx, slices.Compact(all))
}

// destroy takes the config from its hosts.
func (r *Resource) destroy(ctx context.Context, c *lifecycle.Call[model]) {
	c.State.roll(&c.Request, c.Diags)
	if r.Carry(ctx, c); c.Err != nil && c.Prior.Config.Restore {
		c.Diags.AddWarning("Destroying uses what was applied last", "To destroy without putting the GPUs back, first "+
			"apply on_destroy = \"keep\".")
	}
}

// claimOf finds a config's claim on any host.
func claimOf(v fleet.View, id, owner string) (*gpu.Claim, bool) {
	for _, c := range v.Claims(gpu.ClaimConfig, id) {
		if c.Owner == owner {
			return c, true
		}
	}
	return nil, false
}
