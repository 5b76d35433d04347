package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// direct hands to resources what is asked of them for what they have and for what they make, and to their validators what is
// configured. The framework (v1.19.0) walks through each value a dozen times on the way there and back, for blocks, defaults,
// write-only attributes, plan modifiers and values that are as good as equal, and copies all attributes of the schema at every
// step: most of what a plan takes. No schema here has any of these, but for plan modifiers, which leave alone what is planned as
// it was and what is new. An update, an import, a state of another version and a configuration with a fault are the framework's.
// TestAnswers... hold it to the framework's answers.
type direct struct {
	Served
	provider *gpuProvider
	kinds    func() map[string]kind
}

// kind is a type of resources.
type kind struct {
	construct func() resource.Resource
	schema    schema.Schema
	identity  identityschema.Schema
	is, known tftypes.Type // of a state, and of an identity
	together  *sync.Map    // attributes that may be set together
}

func newDirect(p *gpuProvider, inner Served) *direct {
	return &direct{Served: inner, provider: p, kinds: sync.OnceValue(func() map[string]kind {
		ctx, out := context.Background(), map[string]kind{}
		for _, construct := range p.Resources(ctx) {
			r := construct()
			var name resource.MetadataResponse
			r.Metadata(ctx, resource.MetadataRequest{}, &name)
			var s resource.SchemaResponse
			r.Schema(ctx, resource.SchemaRequest{}, &s)
			var id resource.IdentitySchemaResponse
			if r, ok := r.(resource.ResourceWithIdentity); ok {
				r.IdentitySchema(ctx, resource.IdentitySchemaRequest{}, &id)
			}
			out[name.TypeName] = kind{construct, s.Schema, id.IdentitySchema, s.Schema.Type().TerraformType(ctx), id.IdentitySchema.Type().TerraformType(ctx), new(sync.Map)}
		}
		return out
	})}
}

// UpgradeResourceState gives a state of this version back as it came, written as all other answers are: Terraform reads that in a
// third of the time that it takes to read the JSON of the state. The framework's own way there makes 3,000 more allocations for an
// assignment.
func (d *direct) UpgradeResourceState(ctx context.Context, r *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	k, ok := d.kinds()[r.TypeName]
	if !ok || r.RawState == nil || r.Version != k.schema.Version {
		return d.Served.UpgradeResourceState(ctx, r)
	}
	var state any
	in := json.NewDecoder(bytes.NewReader(r.RawState.JSON))
	in.UseNumber()
	var out bytes.Buffer
	if in.Decode(&state) != nil || in.More() || !rewrite(msgpack.NewEncoder(&out), state, k.is) {
		return d.Served.UpgradeResourceState(ctx, r)
	}
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &tfprotov6.DynamicValue{MsgPack: out.Bytes()}}, nil
}

// rewrite writes what was read from JSON as a value of a type, whose attributes it may lack. It returns false where it is of another type.
func rewrite(to *msgpack.Encoder, v any, typ tftypes.Type) bool {
	switch v := v.(type) {
	case nil:
		return to.EncodeNil() == nil
	case string:
		return typ.Is(tftypes.String) && to.EncodeString(v) == nil
	case json.Number:
		n, _, err := big.ParseFloat(string(v), 10, 512, big.ToNearestEven) // as Terraform reads it
		if err != nil || !typ.Is(tftypes.Number) {
			return false
		}
		written, err := tfprotov6.NewDynamicValue(typ, tftypes.NewValue(typ, n))
		return err == nil && to.Encode(msgpack.RawMessage(written.MsgPack)) == nil
	case bool:
		return typ.Is(tftypes.Bool) && to.EncodeBool(v) == nil
	case []any:
		var of tftypes.Type
		switch typ := typ.(type) {
		case tftypes.List:
			of = typ.ElementType
		case tftypes.Set:
			of = typ.ElementType
		default:
			return false
		}
		return to.EncodeArrayLen(len(v)) == nil && !slices.ContainsFunc(v, func(v any) bool { return !rewrite(to, v, of) })
	case map[string]any:
		of := map[string]tftypes.Type{}
		switch typ := typ.(type) {
		case tftypes.Object:
			of = typ.AttributeTypes
		case tftypes.Map:
			for key := range v {
				of[key] = typ.ElementType
			}
		default:
			return false
		}
		for key := range v {
			if of[key] == nil {
				return false
			}
		}
		if to.EncodeMapLen(len(of)) != nil {
			return false
		}
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if to.EncodeString(key) != nil || !rewrite(to, v[key], of[key]) {
				return false
			}
		}
		return true
	}
	return false
}

func (d *direct) ReadResource(ctx context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	o, ok := d.open(ctx, r.TypeName, r.CurrentState, r.CurrentIdentity, r.Private)
	if !ok || o.state.IsNull() {
		return d.Served.ReadResource(ctx, r)
	}
	req := resource.ReadRequest{State: tfsdk.State{Raw: o.state, Schema: o.schema}, Identity: o.identify(), Private: fresh(resource.ReadRequest{}.Private)}
	req.ClientCapabilities.DeferralAllowed = r.ClientCapabilities != nil && r.ClientCapabilities.DeferralAllowed
	resp := resource.ReadResponse{State: req.State, Identity: o.identify(), Private: req.Private, Diagnostics: o.fill(ctx, req.Private)}
	o.Read(ctx, req, &resp)
	if !resp.Diagnostics.HasError() && resp.Identity.Raw.IsFullyNull() {
		return d.Served.ReadResource(ctx, r) // it says so
	}
	state, identity, private, said, err := o.close(ctx, r.CurrentState, resp.State.Raw, resp.Identity, resp.Private, resp.Diagnostics)
	return &tfprotov6.ReadResourceResponse{NewState: state, NewIdentity: identity, Private: private, Diagnostics: said}, err
}

func (d *direct) PlanResourceChange(ctx context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
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
		Config: tfsdk.Config{Raw: config, Schema: o.schema}, State: tfsdk.State{Raw: o.state, Schema: o.schema}, Plan: tfsdk.Plan{Raw: plan, Schema: o.schema},
		Identity: o.identify(), Private: fresh(resource.ModifyPlanRequest{}.Private),
	}
	req.ClientCapabilities.DeferralAllowed = r.ClientCapabilities != nil && r.ClientCapabilities.DeferralAllowed
	resp := resource.ModifyPlanResponse{Plan: req.Plan, Identity: o.identify(), Private: req.Private, Diagnostics: o.fill(ctx, req.Private)}
	o.ModifyPlan(ctx, req, &resp)
	state, identity, private, said, err := o.close(ctx, r.PriorState, resp.Plan.Raw, resp.Identity, resp.Private, resp.Diagnostics)
	return &tfprotov6.PlanResourceChangeResponse{PlannedState: state, PlannedIdentity: identity, PlannedPrivate: private, Diagnostics: said, RequiresReplace: replaces(ctx, resp.RequiresReplace)}, err
}

func (d *direct) ApplyResourceChange(ctx context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	o, ok := d.open(ctx, r.TypeName, r.PriorState, r.PlannedIdentity, nil)
	if !ok || !o.state.IsNull() || r.PlannedState == nil || r.Config == nil {
		return d.Served.ApplyResourceChange(ctx, r)
	}
	plan, err := r.PlannedState.Unmarshal(o.is)
	config, configErr := r.Config.Unmarshal(o.is)
	if err != nil || configErr != nil || plan.IsNull() {
		return d.Served.ApplyResourceChange(ctx, r)
	}
	req := resource.CreateRequest{Config: tfsdk.Config{Raw: config, Schema: o.schema}, Plan: tfsdk.Plan{Raw: plan, Schema: o.schema}, Identity: o.identify()}
	resp := resource.CreateResponse{State: tfsdk.State{Raw: o.state, Schema: o.schema}, Identity: o.identify(), Private: fresh(resource.CreateResponse{}.Private)}
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
func (d *direct) open(ctx context.Context, name string, state *tfprotov6.DynamicValue, id *tfprotov6.ResourceIdentityData, private []byte) (o opened, ok bool) {
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
		r.Configure(ctx, resource.ConfigureRequest{ProviderData: d.provider.fleet}, &resource.ConfigureResponse{})
	}
	o.ResourceWithModifyPlan, ok = r.(resource.ResourceWithModifyPlan)
	return o, ok
}

func (o opened) identify() *tfsdk.ResourceIdentity {
	return &tfsdk.ResourceIdentity{Raw: o.id, Schema: o.kind.identity}
}

// private is where a resource keeps what Terraform does not see. Its type has no name outside of the framework.
type private interface {
	instance.Getter
	instance.Setter
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
func (o opened) close(ctx context.Context, was *tfprotov6.DynamicValue, state tftypes.Value, id *tfsdk.ResourceIdentity, p private, said diag.Diagnostics) (
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
	keys := slices.Clone(instance.Keys)
	for key := range o.private {
		keys = append(keys, key)
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
