// Package lifecycle is what the resources have in common: how a plan, an apply, a read and a
// destroy begin and end, and what private state keeps of them. What a resource wants of its hosts,
// and what it shows of them, is in its own package.
package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
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

// Parts are what a resource does by itself. None may be nil but those that say so.
type Parts[M any] struct {
	// Type is the resource's name in configurations.
	Type string
	// Creating finishes the sentence "Could not ..." of a create that failed.
	Creating string
	// Changing does so of an update.
	Changing string
	// Destroying does so of a destroy.
	Destroying string
	// Differs begins the warning "... from the declaration".
	Differs string
	// DisturbsAt is the attribute at which a plan warns of whom a change disturbs; empty for the resource as a whole.
	DisturbsAt path.Path
	// Limit bounds the work on one host where the configuration does not.
	Limit time.Duration
	// Roll fills in how a plan goes through its hosts; nil where there is one.
	Roll func(of *M, req *fleet.Request, diags *diag.Diagnostics)
	// Policy names the attributes that say how hosts are changed or what becomes of the object later: where nothing else changes, no host
	// has to know. Whatever is not named here matters to hosts, as a new attribute does.
	Policy []string

	// Timeouts is the model's field for them.
	Timeouts func(*M) timeouts.Value
	// Drift is the model's field for what differs.
	Drift func(*M) *types.List
	// Label names an object for people.
	Label func(gpu.Want) string
	// Prior is what a state says that there is of the object.
	Prior func(ctx context.Context, state *M, diags *diag.Diagnostics) gpu.Want
	// Identify writes what Terraform identifies the object by into next, once that is known, unless it is known already.
	Identify func(ctx context.Context, known, next *tfsdk.ResourceIdentity, of *M) diag.Diagnostics

	Planner[M]

	// Touches reports whether an update needs the hosts.
	Touches func(*Call[M]) bool
	// Apply makes the plan real and fills in its computed attributes. It returns false when nothing of the change is there.
	Apply func(context.Context, *Call[M]) bool
	// Permit writes what claims say of policy where an update changes nothing else. Nil where they say nothing of it.
	Permit func(context.Context, *Call[M])
	// Read writes what the hosts have into the state. It returns the claim that an imported object goes by, nil for none, and the claims
	// of the hosts that hold the object, nil for a host without one. ok is false when the state stays as it is.
	Read func(
		ctx context.Context, state *M, req resource.ReadRequest, resp *resource.ReadResponse,
	) (claim *gpu.Claim, records map[string]*gpu.Claim, ok bool)
	// Destroy takes the object from its hosts.
	Destroy func(context.Context, *Call[M])
}

// Call is a create, an update or a destroy. Prior is that of its state.
type Call[M any] struct {
	fleet.Request
	Plan, State *M // the former is nil in a destroy, the latter in a create
	Config      tfsdk.Config
	Private     PrivateGetter
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

// Create implements resource.Resource.
func (s *Shell[M]) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	c := s.call(ctx, s.Of.Creating, &resp.Diagnostics)
	c.Plan, c.Config, c.Token = object.Get[M](ctx, req.Plan, c.Diags), req.Config, newToken()
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
	c.Token = Token(ctx, req.Private)
	switch {
	case s.Of.Touches(c):
		c.Approved = Seen(ctx, req.Private)
		if c.Adopt = c.Token == ""; c.Adopt {
			c.Token = newToken()
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
		*s.Of.Drift(c.Plan) = report.NoDrift() // as planned: the next Read says what differs by now
	}
	return true
}

// keep writes what an apply leaves.
func (s *Shell[M]) keep(ctx context.Context, c *Call[M], private PrivateSetter, state *tfsdk.State, known, next *tfsdk.ResourceIdentity) {
	c.Diags.Append(setToken(ctx, private, c.Token)...)
	object.Set(ctx, &state.Raw, nil, c.Plan, c.Diags)
	c.Diags.Append(s.Of.Identify(ctx, known, next, c.Plan)...)
}

// Read implements resource.Resource.
func (s *Shell[M]) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	defer s.Fleet.Ledger.Begin(false)()
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
	token := Token(ctx, req.Private)
	s.Fleet.Ledger.MarkSeen(token)
	stateBefore := *state
	claim, records, ok := s.Of.Read(ctx, state, req, resp)
	if !ok {
		return
	}
	list := s.Of.Drift(state)
	*list = report.AddLostRecords(ctx, token, s.Fleet.Owner(), records, *list, &resp.Diagnostics)
	if token == "" && claim != nil && claim.Owner == s.Fleet.Owner() {
		resp.Diagnostics.Append(setToken(ctx, resp.Private, claim.Token)...)
	}
	object.Set(ctx, &resp.State.Raw, &stateBefore, state, &resp.Diagnostics)
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
	c.Token = Token(ctx, req.Private)
	c.Approved, c.Ends = approved(ctx, req.Private)
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
