package fastpath

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// Served is what is served. The framework keeps lists and actions apart from the rest of the
// protocol yet.
type Served interface {
	tfprotov6.ProviderServer
	tfprotov6.ListResourceServer
	tfprotov6.ActionServer
}

// server answers for the types of kinds, and hands all else to the framework's.
type server struct {
	Served
	configured func() any
	kinds      func() map[string]kind
	left       func() map[string]string // types that are left to the framework, and why
}

// kind is a type of resources.
type kind struct {
	construct func() resource.Resource
	schema    schema.Schema
	identity  identityschema.Schema
	is, known tftypes.Type // of a state, and of an identity
	together  *sync.Map    // attributes that may be set together
}

// New serves the resources of a provider beside the framework's server of it. configured gives what the provider's Configure hands to
// resources.
func New(p provider.Provider, configured func() any, framework Served) Served {
	guarded := sync.OnceValues(func() (map[string]kind, map[string]string) {
		ctx, kinds, left := context.Background(), map[string]kind{}, map[string]string{}
		var meta provider.MetadataResponse
		p.Metadata(ctx, provider.MetadataRequest{}, &meta)
		for _, construct := range p.Resources(ctx) {
			name, k, why := examine(ctx, meta.TypeName, construct)
			if why != "" {
				left[name] = why
				continue
			}
			kinds[name] = k
		}
		return kinds, left
	})
	return &server{
		Served: framework, configured: configured,
		kinds: func() map[string]kind { kinds, _ := guarded(); return kinds },
		left:  func() map[string]string { _, left := guarded(); return left },
	}
}

// ConfigureProvider logs which types are left to the framework.
func (d *server) ConfigureProvider(
	ctx context.Context, r *tfprotov6.ConfigureProviderRequest,
) (*tfprotov6.ConfigureProviderResponse, error) {
	for name, why := range d.left() {
		tflog.Info(ctx, "answers for "+name+" are the framework's alone", map[string]any{"why": why})
	}
	return d.Served.ConfigureProvider(ctx, r)
}

func (d *server) ReadResource(ctx context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	o, ok := d.open(ctx, r.TypeName, r.CurrentState, r.CurrentIdentity, r.Private)
	if !ok || o.state.IsNull() {
		return d.Served.ReadResource(ctx, r)
	}
	req := resource.ReadRequest{
		State: tfsdk.State{Raw: o.state, Schema: o.schema}, Identity: o.identify(),
		Private: fresh(resource.ReadRequest{}.Private),
	}
	req.ClientCapabilities.DeferralAllowed = r.ClientCapabilities != nil && r.ClientCapabilities.DeferralAllowed
	resp := resource.ReadResponse{State: req.State, Identity: o.identify(), Private: req.Private, Diagnostics: o.fill(ctx, req.Private)}
	o.Read(ctx, req, &resp)
	if !resp.Diagnostics.HasError() && resp.Identity.Raw.IsFullyNull() {
		return d.Served.ReadResource(ctx, r) // it says so
	}
	state, identity, private, said, err := o.close(ctx, r.CurrentState, resp.State.Raw, resp.Identity, resp.Private, resp.Diagnostics)
	return &tfprotov6.ReadResourceResponse{NewState: state, NewIdentity: identity, Private: private, Diagnostics: said}, err
}

func (d *server) PlanResourceChange(
	ctx context.Context, r *tfprotov6.PlanResourceChangeRequest,
) (*tfprotov6.PlanResourceChangeResponse, error) {
	stays, made := same(r.PriorState, r.ProposedNewState), same(r.Config, r.ProposedNewState)
	if !stays && !made {
		return d.Served.PlanResourceChange(ctx, r)
	}
	o, ok := d.open(ctx, r.TypeName, r.PriorState, r.PriorIdentity, r.PriorPrivate)
	if !ok || o.state.IsNull() == stays || r.Config == nil {
		return d.Served.PlanResourceChange(ctx, r)
	}
	config, err := r.Config.Unmarshal(o.is)
	if err != nil {
		return d.Served.PlanResourceChange(ctx, r)
	}
	plan := o.state
	if !stays {
		if plan, err = unknown(o.schema.Attributes, config); err != nil {
			return d.Served.PlanResourceChange(ctx, r)
		}
	}
	req := resource.ModifyPlanRequest{
		Config: tfsdk.Config{Raw: config, Schema: o.schema}, State: tfsdk.State{Raw: o.state, Schema: o.schema},
		Plan:     tfsdk.Plan{Raw: plan, Schema: o.schema},
		Identity: o.identify(), Private: fresh(resource.ModifyPlanRequest{}.Private),
	}
	req.ClientCapabilities.DeferralAllowed = r.ClientCapabilities != nil && r.ClientCapabilities.DeferralAllowed
	resp := resource.ModifyPlanResponse{Plan: req.Plan, Identity: o.identify(), Private: req.Private, Diagnostics: o.fill(ctx, req.Private)}
	o.ModifyPlan(ctx, req, &resp)
	state, identity, private, said, err := o.close(ctx, r.PriorState, resp.Plan.Raw, resp.Identity, resp.Private, resp.Diagnostics)
	return &tfprotov6.PlanResourceChangeResponse{
		PlannedState: state, PlannedIdentity: identity, PlannedPrivate: private, Diagnostics: said,
		RequiresReplace: replaces(ctx, resp.RequiresReplace),
	}, err
}

func (d *server) ApplyResourceChange(
	ctx context.Context, r *tfprotov6.ApplyResourceChangeRequest,
) (*tfprotov6.ApplyResourceChangeResponse, error) {
	o, ok := d.open(ctx, r.TypeName, r.PriorState, r.PlannedIdentity, nil)
	if !ok || !o.state.IsNull() || r.PlannedState == nil || r.Config == nil {
		return d.Served.ApplyResourceChange(ctx, r)
	}
	plan, err := r.PlannedState.Unmarshal(o.is)
	config, configErr := r.Config.Unmarshal(o.is)
	if err != nil || configErr != nil || plan.IsNull() {
		return d.Served.ApplyResourceChange(ctx, r)
	}
	req := resource.CreateRequest{
		Config: tfsdk.Config{Raw: config, Schema: o.schema}, Plan: tfsdk.Plan{Raw: plan, Schema: o.schema},
		Identity: o.identify(),
	}
	resp := resource.CreateResponse{
		State: tfsdk.State{Raw: o.state, Schema: o.schema}, Identity: o.identify(),
		Private: fresh(resource.CreateResponse{}.Private),
	}
	o.Create(ctx, req, &resp)
	state, identity, private, said, err := o.close(ctx, r.PriorState, resp.State.Raw, resp.Identity, resp.Private, resp.Diagnostics)
	return &tfprotov6.ApplyResourceChangeResponse{NewState: state, NewIdentity: identity, Private: private, Diagnostics: said}, err
}

// same tells whether two values are written alike.
func same(a, b *tfprotov6.DynamicValue) bool {
	return a != nil && b != nil && len(a.MsgPack) > 0 && bytes.Equal(a.MsgPack, b.MsgPack)
}

// unknown is a configuration with what it leaves out, and the resource computes, to be known after the apply.
func unknown(attributes map[string]schema.Attribute, v tftypes.Value) (tftypes.Value, error) {
	if v.IsNull() || !v.IsKnown() {
		return v, nil
	}
	var fields map[string]tftypes.Value
	if err := v.As(&fields); err != nil {
		return v, err
	}
	fields = maps.Clone(fields) // else the configuration changes
	for name, a := range attributes {
		nested, ok := a.(schema.SingleNestedAttribute) // in no list of objects is one computed alone
		switch {
		case fields[name].IsNull() && a.IsComputed():
			fields[name] = tftypes.NewValue(fields[name].Type(), tftypes.UnknownValue)
		case ok:
			var err error
			if fields[name], err = unknown(nested.Attributes, fields[name]); err != nil {
				return v, err
			}
		}
	}
	return tftypes.NewValue(v.Type(), fields), nil
}

// opened is an object that a resource is asked about, as the state has it: null for one that is still to be made.
type opened struct {
	resource.ResourceWithModifyPlan
	kind
	state, id tftypes.Value
	private   map[string][]byte
}

// open reads an object, if it need not be left to the framework.
func (d *server) open(
	ctx context.Context, name string, state *tfprotov6.DynamicValue, id *tfprotov6.ResourceIdentityData, private []byte,
) (o opened, ok bool) {
	if o.kind, ok = d.kinds()[name]; !ok || state == nil {
		return o, false
	}
	var err error
	if o.state, err = state.Unmarshal(o.is); err != nil {
		return o, false
	}
	o.id = tftypes.NewValue(o.known, nil)
	if id != nil && id.IdentityData != nil {
		if o.id, err = id.IdentityData.Unmarshal(o.known); err != nil {
			return o, false
		}
	}
	if len(private) > 0 && json.Unmarshal(private, &o.private) != nil {
		return o, false
	}
	for key, value := range o.private {
		if strings.HasPrefix(key, ".") || !utf8.Valid(value) || !json.Valid(value) { // the framework's own, such as that this was imported
			return o, false
		}
	}
	r := o.construct()
	if r, ok := r.(resource.ResourceWithConfigure); ok {
		r.Configure(ctx, resource.ConfigureRequest{ProviderData: d.configured()}, &resource.ConfigureResponse{})
	}
	o.ResourceWithModifyPlan, ok = r.(resource.ResourceWithModifyPlan)
	return o, ok
}

func (o opened) identify() *tfsdk.ResourceIdentity {
	return &tfsdk.ResourceIdentity{Raw: o.id, Schema: o.kind.identity}
}

// private is where a resource keeps what Terraform does not see. Its type has no name outside of the framework.
type private interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// writesPrivate is a resource that writes something there. The framework does not list what it is.
type writesPrivate interface {
	PrivateKeys() []string
}

// fresh is a new one, whose type the framework's own requests tell.
func fresh[T any](*T) *T { return new(T) }

func (o opened) fill(ctx context.Context, p private) (said diag.Diagnostics) {
	for key, value := range o.private {
		said.Append(p.SetKey(ctx, key, value)...)
	}
	return said
}

// close writes an answer. What is as it was stays written as it was.
func (o opened) close(ctx context.Context, was *tfprotov6.DynamicValue, state tftypes.Value, id *tfsdk.ResourceIdentity, p private,
	said diag.Diagnostics) (
	*tfprotov6.DynamicValue, *tfprotov6.ResourceIdentityData, []byte, []*tfprotov6.Diagnostic, error,
) {
	if !object.Same(state, o.state) {
		now, err := tfprotov6.NewDynamicValue(o.is, state)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		was = &now
	}
	newIdentity, err := tfprotov6.NewDynamicValue(o.known, id.Raw)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	kept := map[string][]byte{}
	keys := slices.Collect(maps.Keys(o.private))
	if r, ok := o.ResourceWithModifyPlan.(writesPrivate); ok {
		keys = append(keys, r.PrivateKeys()...)
	}
	for _, key := range keys {
		if value, _ := p.GetKey(ctx, key); len(value) > 0 {
			kept[key] = value
		}
	}
	var newPrivate []byte
	if len(kept) > 0 {
		newPrivate, err = json.Marshal(kept)
	}
	return was, &tfprotov6.ResourceIdentityData{IdentityData: &newIdentity}, newPrivate, diagnostics(ctx, said), err
}

func diagnostics(ctx context.Context, all diag.Diagnostics) []*tfprotov6.Diagnostic {
	var out []*tfprotov6.Diagnostic
	for _, d := range all {
		of := &tfprotov6.Diagnostic{Severity: tfprotov6.DiagnosticSeverityError, Summary: d.Summary(), Detail: d.Detail()}
		if d.Severity() == diag.SeverityWarning {
			of.Severity = tfprotov6.DiagnosticSeverityWarning
		}
		if d, ok := d.(diag.DiagnosticWithPath); ok {
			of.Attribute = attributePath(ctx, d.Path())
		}
		out = append(out, of)
	}
	return out
}

// replaces names each attribute that requires a replacement once.
func replaces(ctx context.Context, all path.Paths) []*tftypes.AttributePath {
	slices.SortFunc(all, func(a, b path.Path) int { return strings.Compare(a.String(), b.String()) })
	var out []*tftypes.AttributePath
	for _, p := range slices.CompactFunc(all, path.Path.Equal) {
		out = append(out, attributePath(ctx, p))
	}
	return out
}

func attributePath(ctx context.Context, p path.Path) *tftypes.AttributePath {
	var steps []tftypes.AttributePathStep
	for _, step := range p.Steps() {
		switch s := step.(type) {
		case path.PathStepAttributeName:
			steps = append(steps, tftypes.AttributeName(s))
		case path.PathStepElementKeyString:
			steps = append(steps, tftypes.ElementKeyString(s))
		case path.PathStepElementKeyInt:
			steps = append(steps, tftypes.ElementKeyInt(s))
		case path.PathStepElementKeyValue:
			value, err := s.Value.ToTerraformValue(ctx)
			if err != nil {
				return tftypes.NewAttributePathWithSteps(steps)
			}
			steps = append(steps, tftypes.ElementKeyValue(value))
		}
	}
	return tftypes.NewAttributePathWithSteps(steps)
}
