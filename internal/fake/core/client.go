package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// schemas are what a provider says about itself.
type schemas struct {
	provider        *schema
	resources, data map[string]*schema
	identities      map[string]cty.Type
	functions       map[string]*tfprotov6.Function
}

func readSchemas(ctx context.Context, server tfprotov6.ProviderServer) (*schemas, error) {
	reply, err := server.GetProviderSchema(ctx, &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return nil, err
	}
	if d := fromProvider(reply.Diagnostics, "", nil); d.Failed() {
		return nil, failed{d}
	}
	out := &schemas{resources: map[string]*schema{}, data: map[string]*schema{}, identities: map[string]cty.Type{}, functions: reply.Functions}
	if out.provider, err = newSchema("provider", reply.Provider); err != nil {
		return nil, err
	}
	for name, s := range reply.ResourceSchemas {
		if out.resources[name], err = newSchema(name, s); err != nil {
			return nil, err
		}
	}
	for name, s := range reply.DataSourceSchemas {
		if out.data[name], err = newSchema("data."+name, s); err != nil {
			return nil, err
		}
	}
	identities, err := server.GetResourceIdentitySchemas(ctx, &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		return nil, err
	}
	for name, s := range identities.IdentitySchemas {
		if out.identities[name], err = typeOf(s.ValueType()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// client is a provider of one walk.
type client struct {
	*schemas
	key    string // of its block: name, name.alias
	defers bool   // what it is asked may be deferred, as while Terraform applies
	server tfprotov6.ProviderServer
}

// label names the provider in messages.
func (c *client) label() string {
	name, alias, aliased := strings.Cut(c.key, ".")
	text := fmt.Sprintf("provider[\"registry.terraform.io/hashicorp/%s\"]", name)
	if name == builtin {
		text = `provider["terraform.io/builtin/terraform"]`
	}
	if aliased {
		text += "." + alias
	}
	return text
}

func (c *client) schema(b *block) *schema {
	if b.data() {
		return c.data[b.typ]
	}
	return c.resources[b.typ]
}

// identity encodes an identity, if there is one.
func (c *client) identity(typ string, v cty.Value) (*tfprotov6.ResourceIdentityData, error) {
	ty, ok := c.identities[typ]
	if !ok || v == cty.NilVal || v.IsNull() {
		return nil, nil
	}
	d, err := encode(v, ty)
	return &tfprotov6.ResourceIdentityData{IdentityData: d}, err
}

func (c *client) readIdentity(typ string, d *tfprotov6.ResourceIdentityData) (cty.Value, error) {
	ty, ok := c.identities[typ]
	if !ok || d == nil {
		return cty.NilVal, nil
	}
	v, missing, err := decode(d.IdentityData, ty)
	if missing {
		return cty.NilVal, err
	}
	return v, err
}

// upgrade has the provider bring an object of the state to its present schema.
func (c *client) upgrade(ctx context.Context, a address, o *object) (*object, Diagnostics) {
	typ, _ := a.parts()
	s := c.resources[typ]
	if s == nil {
		return nil, Diagnostics{failure("Invalid resource type", "The provider %s does not support resource type %q.", c.label(), typ)}
	}
	raw, err := ctyjson.Marshal(o.value, s.ty)
	if err != nil {
		return nil, broken(err)
	}
	reply, err := c.server.UpgradeResourceState(ctx, &tfprotov6.UpgradeResourceStateRequest{
		TypeName: typ, Version: o.version, RawState: &tfprotov6.RawState{JSON: raw},
	})
	if err != nil {
		return nil, broken(err)
	}
	diags := fromProvider(reply.Diagnostics, a.String(), nil)
	if diags.Failed() {
		return nil, diags
	}
	v, _, err := decode(reply.UpgradedState, s.ty)
	if err != nil {
		return nil, broken(err)
	}
	out := *o
	out.value, out.version = v, s.version
	return &out, diags
}

func (c *client) read(ctx context.Context, a address, o *object, in *block) (*object, Diagnostics) {
	typ, _ := a.parts()
	s := c.resources[typ]
	state, err := encode(o.value, s.ty)
	if err != nil {
		return nil, broken(err)
	}
	identity, err := c.identity(typ, o.identity)
	if err != nil {
		return nil, broken(err)
	}
	reply, err := c.server.ReadResource(ctx, &tfprotov6.ReadResourceRequest{
		TypeName: typ, CurrentState: state, Private: o.private, CurrentIdentity: identity,
		ClientCapabilities: &tfprotov6.ReadResourceClientCapabilities{DeferralAllowed: c.defers},
	})
	if err != nil {
		return nil, broken(err)
	}
	diags := fromProvider(reply.Diagnostics, a.String(), in)
	if diags.Failed() {
		return nil, diags
	}
	v, _, err := decode(reply.NewState, s.ty)
	if err != nil {
		return nil, append(diags, failure("Provider produced invalid object", "Provider %q planned an invalid value for %s during refresh: %v.%s",
			c.label(), a, err, bug))
	}
	if v.IsNull() {
		return nil, diags
	}
	if !v.IsWhollyKnown() {
		return nil, append(diags,
			failure("Provider produced invalid object", "Provider %q planned an invalid value for %s during refresh: it has unknown values.%s",
				c.label(), a, bug))
	}
	out := *o
	out.value, out.private = v, reply.Private
	if out.identity, err = c.readIdentity(typ, reply.NewIdentity); err != nil {
		return nil, broken(err)
	}
	return &out, diags
}

const bug = "\n\nThis is a bug in the provider, which should be reported in the provider's own issue tracker."

func broken(err error) Diagnostics {
	return Diagnostics{failure("Plugin error", "The plugin returned an unexpected error: %v", err)}
}

// functionsOf makes the functions of a provider.
func (c *client) functionsOf(ctx context.Context) (map[string]function.Function, error) {
	out := map[string]function.Function{}
	for _, name := range slices.Sorted(maps.Keys(c.functions)) {
		f := c.functions[name]
		parameter := func(p *tfprotov6.FunctionParameter) (function.Parameter, error) {
			ty, err := typeOf(p.Type)
			return function.Parameter{Name: p.Name, Type: ty, AllowNull: p.AllowNullValue, AllowUnknown: p.AllowUnknownValues}, err
		}
		spec := &function.Spec{}
		for _, p := range f.Parameters {
			x, err := parameter(p)
			if err != nil {
				return nil, err
			}
			spec.Params = append(spec.Params, x)
		}
		if f.VariadicParameter != nil {
			x, err := parameter(f.VariadicParameter)
			if err != nil {
				return nil, err
			}
			spec.VarParam = &x
		}
		result, err := typeOf(f.Return.Type)
		if err != nil {
			return nil, err
		}
		spec.Type = function.StaticReturnType(result)
		spec.Impl = func(args []cty.Value, ret cty.Type) (cty.Value, error) {
			req := &tfprotov6.CallFunctionRequest{Name: name}
			for i, a := range args {
				ty := a.Type()
				if i < len(spec.Params) {
					ty = spec.Params[i].Type
				} else if spec.VarParam != nil {
					ty = spec.VarParam.Type
				}
				d, err := encode(a, ty)
				if err != nil {
					return cty.NilVal, err
				}
				req.Arguments = append(req.Arguments, d)
			}
			reply, err := c.server.CallFunction(ctx, req)
			if err != nil {
				return cty.NilVal, err
			}
			if e := reply.Error; e != nil {
				if e.FunctionArgument != nil {
					return cty.NilVal, function.NewArgErrorf(int(*e.FunctionArgument), "%s", e.Text)
				}
				return cty.NilVal, fmt.Errorf("%s", e.Text)
			}
			v, _, err := decode(reply.Result, ret)
			return v, err
		}
		out[name] = function.New(spec)
	}
	return out, nil
}
