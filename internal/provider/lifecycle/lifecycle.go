// Package lifecycle is what the resources have in common: how a plan, an apply, a read and a
// destroy begin and end, and what private state keeps of them. What a resource wants of its hosts,
// and what it shows of them, is in its own package.
package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/drift"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Managed is what every resource is.
type Managed interface {
	resource.ResourceWithConfigure
	resource.ResourceWithConfigValidators
	resource.ResourceWithIdentity
	resource.ResourceWithImportState
	resource.ResourceWithModifyPlan
}

// Shell is embedded in a resource whose plans and states are of type M.
type Shell[M any] struct {
	Fleet *fleet.Fleet // nil in the validate walk
	Of    Parts[M]
}

// Parts are what a resource does by itself.
type Parts[M any] struct {
	Type string // the resource's name in configurations
	// Creating, Changing and Destroying finish "Could not …", Differs begins "… from the declaration".
	Creating, Changing, Destroying, Differs string
	// Limit bounds the work on one host where the configuration does not.
	Limit time.Duration
	// Policy names the attributes that say how hosts are changed or what becomes of the object later: where nothing else changes, no host
	// has to know. Whatever is not named here matters to hosts, as a new attribute does.
	Policy   []string
	Timeouts func(*M) timeouts.Value
	Drift    func(*M) *types.List

	// Identify writes what Terraform identifies the object by, once that is known.
	Identify func(ctx context.Context, known, next *tfsdk.ResourceIdentity, of *M) diag.Diagnostics
	// Label names an object for people. Prior is what a state says there is of it.
	Label func(gpu.Want) string
	Prior func(context.Context, *M, *diag.Diagnostics) gpu.Want
	// At is the attribute that warns of whom a change disturbs.
	At path.Path
	// Plan proves a plan against the hosts and the rest of the run. stays is what Record says.
	Plan func(context.Context, *Planning[M]) (stays bool)
	// Around looks at the hosts that a destroy is proven against.
	Around func(context.Context, *Planning[M], gpu.Want) fleet.View
	// Touches reports whether an update needs the hosts; Apply makes the plan real and fills in
	// its computed attributes, and returns false when nothing of the change is there; Permit
	// writes what the claims say of policy where nothing else changes, nil where they say nothing.
	Touches func(*Call[M]) bool
	Apply   func(context.Context, *Call[M]) bool
	Permit  func(context.Context, *Call[M])
	// Read writes what the hosts have. It returns the claim that an imported object goes by and
	// those of the hosts that hold the object, nil for none; ok is false when the state stays as it is.
	Read func(ctx context.Context, state *M, req resource.ReadRequest, resp *resource.ReadResponse) (claim *gpu.Claim, records map[string]*gpu.Claim, ok bool)
	// Destroy takes the object from its hosts.
	Destroy func(context.Context, *Call[M])
}

// Planning is a plan of an object.
type Planning[M any] struct {
	Inst        string              // the object's name in the ledger
	Plan, State *M                  // the former is nil in a destroy, the latter for a new object
	Prior       gpu.Want            // of the state
	Differs     []change.Difference // what the last Read found
	Known       bool                // all that the configuration sets, but for policy
	Req         resource.ModifyPlanRequest
	Resp        *resource.ModifyPlanResponse
	shown       *M // of the plan
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

// Show makes the plan Terraform's.
func (p *Planning[M]) Show(ctx context.Context) {
	object.Set(ctx, &p.Resp.Plan.Raw, p.shown, p.Plan, &p.Resp.Diagnostics)
	*p.shown = *p.Plan
}

// Call is a create, an update or a destroy. Prior is that of its state.
type Call[M any] struct {
	fleet.Request
	Plan, State *M // the former is nil in a destroy, the latter in a create
	Config      tfsdk.Config
	Private     instance.Getter
	Doing       string // for errors: "create the pool"
	Err         error  // how the change failed; nil if it did not
	Diags       *diag.Diagnostics
}

// Metadata implements resource.Resource.
func (s *Shell[M]) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = s.Of.Type
}

// Configure implements resource.ResourceWithConfigure.
func (s *Shell[M]) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	s.Fleet, _ = req.ProviderData.(*fleet.Fleet) // nil in the validate walk
}

// ModifyPlan implements resource.ResourceWithModifyPlan.
func (s *Shell[M]) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if s.Fleet == nil {
		return // the validate walk
	}
	if req.ClientCapabilities.DeferralAllowed {
		s.Fleet.Replanning()
	}
	defer s.Fleet.Ledger.Begin()()
	report.NoHosts(&resp.Diagnostics, s.Fleet, true)
	p := &Planning[M]{State: object.Get[M](ctx, req.State, &resp.Diagnostics), Req: req, Resp: resp, Known: s.known(req.Config)}
	p.propose(ctx)
	if p.State != nil {
		p.Prior = s.Of.Prior(ctx, p.State, &resp.Diagnostics)
		p.Differs = drift.Decode(ctx, *s.Of.Drift(p.State), &resp.Diagnostics)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	p.Inst = s.Fleet.Ledger.Instance(instance.Ledger(ctx, req.Private))
	if p.Plan == nil {
		resp.Diagnostics.Append(instance.SetDeclaredPower(ctx, resp.Private, nil)...)
		s.PlanDestroy(ctx, p, p.Prior)
		return
	}
	resp.Diagnostics.Append(instance.SetLedger(ctx, resp.Private, p.Inst)...)
	if !s.Of.Plan(ctx, p) {
		return
	}
	differs := *s.Of.Drift(p.State) // stays: planned once more, as if nothing differed
	*s.Of.Drift(p.State) = object.None(drift.Type)
	resp.Plan, resp.RequiresReplace, p.Differs = req.Plan, nil, nil
	p.propose(ctx)
	s.Of.Plan(ctx, p)
	resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("drift"), differs)...)
}

// PlanDestroy proves that an object, if there is one, can be taken from its hosts, and says what that does. It
// returns the hosts as they are then, and whether they would do it.
func (s *Shell[M]) PlanDestroy(ctx context.Context, p *Planning[M], prior gpu.Want) (after fleet.View, ends bool) {
	if prior.Empty() || s.Fleet.Unknown() {
		return fleet.View{}, true
	}
	ch := change.Change{Subject: s.Of.Label(prior), Prior: prior}
	return report.Destroy(ctx, s.Fleet, s.Of.At, s.Of.Around(ctx, p, prior), p.Req, p.Resp, ch)
}

// Record puts a plan into the ledger, and reports what the rules find, what the hosts have
// otherwise, and whom the change disturbs. It returns true where the change would only put right
// what differs and the hosts would refuse that: an apply that is bound to fail helps nobody, and an
// error would stop all else. Right before an apply, which reads nothing, it is too late for that.
func (s *Shell[M]) Record(ctx context.Context, p *Planning[M], v fleet.View, ch change.Change) (stays bool) {
	diags := &p.Resp.Diagnostics
	s.Fleet.AwaitNamed(ctx, v, ch)
	findings, does := s.Fleet.Record(p.Inst, v, ch)
	if len(p.Differs) > 0 && s.Fleet.Refreshes() && rules.Repairs(ch) && !rules.HasErrors(findings) && !diags.HasError() && len(s.Fleet.Refused(v, ch)) > 0 {
		report.Drift(diags, s.Fleet, v, ch, s.Of.Differs, p.Differs)
		return true
	}
	report.Findings(diags, ch.Subject, slices.Concat(findings, s.Fleet.CrossRunFindings(ctx, v, ch)))
	report.Drift(diags, s.Fleet, v, ch, s.Of.Differs, p.Differs)
	if !ch.Unchanged {
		report.Disturbs(diags, s.Fleet, s.Of.At, ch, does)
	}
	return false
}

// Create implements resource.Resource.
func (s *Shell[M]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	c := s.call(ctx, s.Of.Creating, &resp.Diagnostics)
	c.Plan, c.Config, c.Token = object.Get[M](ctx, req.Plan, c.Diags), req.Config, instance.NewToken()
	if c.Diags.HasError() {
		return
	}
	c.limit(s.Of.Timeouts(c.Plan).Create(ctx, s.Of.Limit))
	if s.apply(ctx, c) {
		s.keep(ctx, c, resp.Private, &resp.State, nil, resp.Identity)
	} // else nothing is there: no state
}

// Update implements resource.Resource.
func (s *Shell[M]) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	c := s.call(ctx, s.Of.Changing, &resp.Diagnostics)
	c.Plan, c.State, c.Config = object.Get[M](ctx, req.Plan, c.Diags), object.Get[M](ctx, req.State, c.Diags), req.Config
	if c.Diags.HasError() {
		return
	}
	c.limit(s.Of.Timeouts(c.Plan).Update(ctx, s.Of.Limit))
	c.Prior = s.Of.Prior(ctx, c.State, c.Diags)
	c.Token = instance.Token(ctx, req.Private)
	switch {
	case s.Of.Touches(c):
		c.Approved = instance.Seen(ctx, req.Private)
		if c.Adopt = c.Token == ""; c.Adopt {
			c.Token = instance.NewToken()
		}
		if !s.apply(ctx, c) {
			return // the framework keeps the prior state, which is what is there
		}
	case s.Of.Permit != nil:
		if s.Of.Permit(ctx, c); c.Diags.HasError() {
			return
		}
	}
	s.keep(ctx, c, resp.Private, &resp.State, req.Identity, resp.Identity)
}

func (s *Shell[M]) apply(ctx context.Context, c *Call[M]) bool {
	if c.Diags.HasError() || !s.Of.Apply(ctx, c) {
		return false
	}
	if !c.Diags.HasError() {
		*s.Of.Drift(c.Plan) = object.None(drift.Type) // as it was planned: what differs by now, the next Read says
	}
	return true
}

// keep writes what an apply leaves.
func (s *Shell[M]) keep(ctx context.Context, c *Call[M], private instance.Setter, state *tfsdk.State, known, next *tfsdk.ResourceIdentity) {
	c.Diags.Append(instance.SetToken(ctx, private, c.Token)...)
	object.Set(ctx, &state.Raw, nil, c.Plan, c.Diags)
	c.Diags.Append(s.Of.Identify(ctx, known, next, c.Plan)...)
}

// Read implements resource.Resource.
func (s *Shell[M]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	defer s.Fleet.Ledger.Begin()()
	s.Fleet.Refreshing()
	report.NoHosts(&resp.Diagnostics, s.Fleet, true)
	state := object.Get[M](ctx, req.State, &resp.Diagnostics)
	if state == nil {
		return
	}
	// A version of Terraform that carries no identity wants one whatever comes of the read.
	resp.Diagnostics.Append(s.Of.Identify(ctx, req.Identity, resp.Identity, state)...)
	if resp.Diagnostics.HasError() || s.Fleet.Unknown() {
		return
	}
	token := instance.Token(ctx, req.Private)
	s.Fleet.Ledger.MarkSeen(token)
	was := *state
	claim, records, ok := s.Of.Read(ctx, state, req, resp)
	if !ok {
		return
	}
	list := s.Of.Drift(state)
	*list = drift.Records(ctx, token, s.Fleet.Owner(), records, *list, &resp.Diagnostics)
	if token == "" && claim != nil && claim.Owner == s.Fleet.Owner() {
		resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, claim.Token)...)
	}
	object.Set(ctx, &resp.State.Raw, &was, state, &resp.Diagnostics)
	resp.Diagnostics.Append(s.Of.Identify(ctx, req.Identity, resp.Identity, state)...)
}

// Delete implements resource.Resource.
func (s *Shell[M]) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	c := s.call(ctx, s.Of.Destroying, &resp.Diagnostics)
	c.State, c.Private = object.Get[M](ctx, req.State, c.Diags), req.Private
	if c.Diags.HasError() {
		return
	}
	c.limit(s.Of.Timeouts(c.State).Delete(ctx, s.Of.Limit))
	c.Token, c.Approved = instance.Token(ctx, req.Private), instance.Approved(ctx, req.Private)
	c.Adopt = c.Token == ""
	c.Prior = s.Of.Prior(ctx, c.State, c.Diags)
	c.Subject = s.Of.Label(c.Prior)
	s.Of.Destroy(ctx, c)
}

func (s *Shell[M]) call(ctx context.Context, doing string, diags *diag.Diagnostics) *Call[M] {
	s.Fleet.Applying()
	report.NoHosts(diags, s.Fleet, false)
	return &Call[M]{Doing: doing, Diags: diags, Request: fleet.Request{
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}}
}

func (c *Call[M]) limit(d time.Duration, diags diag.Diagnostics) {
	c.HostTimeout = d
	c.Diags.Append(diags...)
}

// Answer refuses a change while one of its hosts does not answer, or where ok is false, since some are not known.
func (s *Shell[M]) Answer(c *Call[M], hosts []string, v fleet.View, ok bool) bool {
	if !ok {
		report.Unreachable(c.Diags, s.Fleet, c.Subject, v)
		return false
	}
	for _, n := range hosts {
		if err, silent := v.Errors[n]; silent {
			report.Failure(c.Diags, c.Doing, c.Subject, &fleet.Failure{Label: c.Subject, Host: n, Err: err})
			return false
		}
	}
	return true
}

// Carry makes the change. It returns hosts that were left without being told, and whether anything
// of the change is there.
func (s *Shell[M]) Carry(ctx context.Context, c *Call[M]) (skipped map[string]error, done bool) {
	if c.Diags.HasError() {
		return nil, false
	}
	res, err := s.Fleet.Apply(ctx, c.Request)
	return c.End(res, err)
}

// End reports how a change ended, as Carry does.
func (c *Call[M]) End(res *fleet.Result, err error) (skipped map[string]error, done bool) {
	if c.Err = err; err != nil {
		report.Failure(c.Diags, c.Doing, c.Subject, err)
		failure, ok := errors.AsType[*fleet.Failure](err)
		if !ok || failure.Clean() {
			return nil, false
		}
		res = &failure.Result
	}
	report.Skipped(c.Diags, c.Subject, res.Skipped)
	return res.Skipped, true
}

// Identify carries an identity that is known, which may not change, and sets one where Terraform
// has none.
func Identify[T any](ctx context.Context, known, next *tfsdk.ResourceIdentity, is T) (diags diag.Diagnostics) {
	if known == nil || known.Raw.IsFullyNull() {
		object.Set(ctx, &next.Raw, nil, &is, &diags)
	}
	return diags
}
