package lifecycle

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Planner is what a resource does by itself in a plan, in the order of Shell.plan.
type Planner[M any] struct {
	// Declare sets what the plan wants, as far as it is known, and fills in what follows from configuration and state alone. It plans the
	// destroy that a replacement begins with. It returns false where the plan ends with that.
	Declare func(context.Context, *Planning[M]) bool
	// Stays reports whether an object stays as it is of which all is known and nothing differs. Nil where it stays when the same is asked for.
	Stays func(context.Context, *Planning[M]) bool
	// Compute fills in the computed attributes: those of the state where the object stays, and what an apply may change is unknown.
	Compute func(context.Context, *Planning[M])
	// Wait says what can be said of a plan of which something is known only after apply, and has the ledger forget it. Nil where that is
	// nothing.
	Wait func(context.Context, *Planning[M])
	// Hold completes what is wanted by what an object that stays has. Nil where there is nothing to complete. A plan that changes nothing
	// asks nobody: seen are the hosts that the run has looked at.
	Hold func(ctx context.Context, p *Planning[M], seen fleet.View)
	// Choose looks at the hosts that the change concerns, and completes what is wanted by what it chooses there. It returns false where
	// the plan ends with what is wrong with them.
	Choose func(context.Context, *Planning[M], *change.Change) (fleet.View, bool)
	// Around looks at the hosts that a destroy is proven against.
	Around func(context.Context, *Planning[M], gpu.Want) fleet.View
}

// Planning is a plan of an object.
type Planning[M any] struct {
	// Instance is the object's name in the ledger.
	Instance string
	// Plan is what is planned; nil in a destroy.
	Plan *M
	// State is what there is; nil for a new object.
	State *M
	// Prior is what the state says that there is, empty for a new object.
	Prior gpu.Want
	// Differs is what the last Read found.
	Differs []change.Difference
	// Known reports whether all is known that the configuration sets, but for policy.
	Known bool
	// Want is what is planned; of it only what does not depend on the configuration while that is not known.
	Want gpu.Want
	// Unchanged reports whether the object stays as it is.
	Unchanged bool
	// Ended are the hosts once an object that this one replaces has ended on them.
	Ended fleet.View
	// LeftOut are GPUs that the configuration selects as it did before, and that the object cannot have.
	LeftOut []fleet.LeftOut
	// Leaves is the object that an update gives up for another one of its kind; nil for none.
	Leaves *gpu.Want
	Req    resource.ModifyPlanRequest
	Resp   *resource.ModifyPlanResponse
	// config is what Config has read; nil before.
	config *M
	// shown is the plan as Terraform has it.
	shown *M
}

// Config is what the configuration says; nil where it cannot be read. The plan has more: what the state has of attributes that are
// computed where the configuration does not set them.
func (p *Planning[M]) Config(ctx context.Context) *M {
	if p.config == nil {
		p.config = object.Get[M](ctx, p.Req.Config, &p.Resp.Diagnostics)
	}
	return p.config
}

// ModifyPlan implements resource.ResourceWithModifyPlan.
func (s *Shell[M]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if s.Fleet == nil {
		return // the validate walk
	}
	if req.ClientCapabilities.DeferralAllowed {
		s.Fleet.Replanning()
	}
	defer s.Fleet.Ledger.Begin(!req.Plan.Raw.IsNull() && !object.Same(req.Plan.Raw, req.State.Raw))()
	report.NoHosts(&resp.Diagnostics, s.Fleet, true)
	p := &Planning[M]{State: object.Get[M](ctx, req.State, &resp.Diagnostics), Req: req, Resp: resp}
	p.propose(ctx)
	if p.State != nil {
		p.Prior = s.Of.Prior(ctx, p.State, &resp.Diagnostics)
		p.Differs = report.DecodeDrift(ctx, *s.Of.Drift(p.State), &resp.Diagnostics)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	p.Instance = s.Fleet.Ledger.Instance(ledgerInstance(ctx, req.Private))
	if s.Fleet.Reports() {
		defer func() { s.Fleet.Ledger.NotePlanned(p.Instance, s.reported(ctx, p)) }()
	}
	if p.Plan == nil {
		resp.Diagnostics.Append(SetDeclaredPower(ctx, resp.Private, nil)...)
		s.PlanDestroy(ctx, p, p.Prior)
		return
	}
	resp.Diagnostics.Append(setLedgerInstance(ctx, resp.Private, p.Instance)...)
	if stays := s.plan(ctx, p); !stays {
		return
	}
	differs := *s.Of.Drift(p.State) // It is planned once more, as if nothing differed.
	*s.Of.Drift(p.State) = report.NoDrift()
	resp.Plan, resp.RequiresReplace, p.Differs = req.Plan, nil, nil
	p.propose(ctx)
	s.plan(ctx, p)
	resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("drift"), differs)...)
}

// propose begins with the plan that Terraform proposes.
func (p *Planning[M]) propose(ctx context.Context) {
	if p.State != nil && object.Same(p.Req.Plan.Raw, p.Req.State.Raw) {
		p.Plan = new(*p.State)
	} else {
		p.Plan = object.Get[M](ctx, p.Req.Plan, &p.Resp.Diagnostics)
	}
	if p.Plan != nil {
		p.shown = new(*p.Plan)
	}
}

// plan proves a plan against the hosts and the rest of the run. stays is what Record says.
func (s *Shell[M]) plan(ctx context.Context, p *Planning[M]) (stays bool) {
	p.Known, p.Ended, p.Leaves, p.LeftOut = s.known(p.Req.Config), fleet.View{}, nil, nil
	if !s.Of.Declare(ctx, p) {
		return false
	}
	p.Unchanged = p.State != nil && p.Known && len(p.Differs) == 0 && s.stays(ctx, p)
	s.Of.Compute(ctx, p)
	defer p.show(ctx)
	if !p.Known || s.Fleet.Unknown() {
		s.wait(ctx, p)
		return false
	}
	planned := change.Change{
		Subject: s.Of.Label(p.Want), Token: Token(ctx, p.Req.Private), Prior: p.Prior, Want: p.Want, Unchanged: p.Unchanged,
	}
	planned.Adopt = p.State != nil && planned.Token == ""
	view, ok := s.choose(ctx, p, &planned)
	if !ok {
		s.Fleet.Ledger.Forget(p.Instance)
		return false
	}
	stays = s.record(ctx, p, view, planned)
	if p.Leaves != nil { // After the record: another object that gives up the one that is wanted hands it over by that.
		s.PlanDestroy(ctx, p, *p.Leaves)
	}
	return stays
}

// known reports whether all of a configuration is known that matters to hosts.
func (s *Shell[M]) known(config tfsdk.Config) bool {
	var all map[string]tftypes.Value
	if config.Raw.As(&all) != nil {
		return false
	}
	for name, v := range all {
		if !v.IsFullyKnown() && !slices.Contains(s.Of.Policy, name) {
			return false
		}
	}
	return true
}

// AsksTheSame reports whether two models ask the hosts for the same: they differ in nothing but policy and what is computed.
func (s *Shell[M]) AsksTheSame(one, other *M, of tfsdk.Config) bool {
	return object.Alike(one, other, of, s.Of.Policy...)
}

func (s *Shell[M]) stays(ctx context.Context, p *Planning[M]) bool {
	if s.Of.Stays != nil {
		return s.Of.Stays(ctx, p)
	}
	return s.AsksTheSame(p.Plan, p.State, p.Req.Config)
}

// wait leaves the checks of a plan to the apply.
func (s *Shell[M]) wait(ctx context.Context, p *Planning[M]) {
	if s.Of.Wait != nil {
		s.Of.Wait(ctx, p)
		return
	}
	s.Fleet.Ledger.Forget(p.Instance)
}

func (s *Shell[M]) choose(ctx context.Context, p *Planning[M], planned *change.Change) (fleet.View, bool) {
	if !p.Unchanged {
		return s.Of.Choose(ctx, p, planned)
	}
	seen := s.Fleet.Snapshot(ctx, nil, fleet.Cached)
	if s.Of.Hold != nil {
		s.Of.Hold(ctx, p, seen)
	}
	return seen, true
}

// show makes the plan Terraform's.
func (p *Planning[M]) show(ctx context.Context) {
	object.Set(ctx, &p.Resp.Plan.Raw, p.shown, p.Plan, &p.Resp.Diagnostics)
	*p.shown = *p.Plan
}

// record puts a plan into the ledger, and reports what the rules find, what the hosts have
// otherwise, and whom the change disturbs. It returns true where the change would only put right
// what differs and that cannot be done: an apply that is bound to fail helps nobody, and an
// error would stop all else. Right before an apply, which reads nothing, it is too late for that.
func (s *Shell[M]) record(ctx context.Context, p *Planning[M], v fleet.View, planned change.Change) (stays bool) {
	diags := &p.Resp.Diagnostics
	s.Fleet.AwaitNamed(ctx, v, planned)
	findings, does := s.Fleet.Record(p.Instance, v, planned)
	drift := report.Drift{What: s.Of.Differs, Fleet: s.Fleet, View: v, Plan: planned, Differs: p.Differs, LeftOut: p.LeftOut, Does: does}
	repairs := len(p.Differs) > 0 && whatif.Repairs(planned) && !planned.Adopt
	if repairs && s.Fleet.Refreshes() && !diags.HasError() {
		if drift.NothingElse() {
			drift.Warn(diags)
			return true
		}
		refused := s.Fleet.Refused(v, planned)
		if at := slices.IndexFunc(findings, func(f rules.Finding) bool { return f.Level == rules.Error }); at >= 0 && len(refused) == 0 {
			refused = findings[at:]
		}
		if len(refused) > 0 {
			drift.Refused = refused
			drift.Warn(diags)
			return true
		}
	}
	findings = slices.Concat(findings, s.Fleet.CrossRunFindings(ctx, v, planned))
	report.Findings(diags, "", s.Fleet.ToldOnce(planned.Subject, findings))
	drift.Refused = s.Fleet.Refused(v, planned)
	drift.Warn(diags)
	if !planned.Unchanged && !rules.HasErrors(findings) {
		report.Disturbs(diags, s.Fleet, s.Of.DisturbsAt, planned, does)
	}
	return false
}

// PlanDestroy proves that an object, if there is one, can be taken from its hosts, for good or for a replacement. It says what that
// does, and keeps for the apply whom it disturbs. It returns the hosts as they are then, and whether they would do it.
func (s *Shell[M]) PlanDestroy(ctx context.Context, p *Planning[M], prior gpu.Want) (after fleet.View, ends bool) {
	if prior.Empty() || s.Fleet.Unknown() {
		return fleet.View{}, true
	}
	destroy := change.Change{Subject: s.Of.Label(prior), Prior: prior, Token: Token(ctx, p.Req.Private)}
	destroy.Adopt = destroy.Token == ""
	planned := s.Fleet.PlanDestroy(ctx, s.Of.Around(ctx, p, prior), destroy, p.Req.Plan.Raw.IsNull())
	report.Findings(&p.Resp.Diagnostics, destroy.Subject, s.Fleet.ToldOnce(destroy.Subject, planned.Findings))
	p.Resp.Diagnostics.Append(setApproved(ctx, p.Resp.Private, planned)...)
	if !rules.HasErrors(planned.Findings) {
		report.Disturbs(&p.Resp.Diagnostics, s.Fleet, s.Of.DisturbsAt, destroy, planned.Forecasts)
	}
	return planned.After()
}
