package fastpath

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// ValidateResourceConfig answers for a configuration without a fault. What is wrong with another one, the framework says.
func (d *server) ValidateResourceConfig(
	ctx context.Context, r *tfprotov6.ValidateResourceConfigRequest,
) (*tfprotov6.ValidateResourceConfigResponse, error) {
	if k, ok := d.kinds()[r.TypeName]; ok && r.Config != nil {
		if config, err := r.Config.Unmarshal(k.is); err == nil && k.faultless(ctx, tfsdk.Config{Raw: config, Schema: k.schema}) {
			return &tfprotov6.ValidateResourceConfigResponse{}, nil
		}
	}
	return d.Served.ValidateResourceConfig(ctx, r)
}

// faultless tells whether a configuration is known to be without a fault.
func (k kind) faultless(ctx context.Context, config tfsdk.Config) bool {
	var fields map[string]tftypes.Value
	if !config.Raw.IsKnown() || config.Raw.As(&fields) != nil || fields == nil {
		return false
	}
	req, r := resource.ValidateConfigRequest{Config: config}, k.construct()
	var said diag.Diagnostics
	if r, ok := r.(resource.ResourceWithValidateConfig); ok {
		var resp resource.ValidateConfigResponse
		r.ValidateConfig(ctx, req, &resp)
		said = resp.Diagnostics
	}
	set := set(fields) // all that validators of whole configurations ask here
	if _, known := k.together.Load(set); !known {
		if r, ok := r.(resource.ResourceWithConfigValidators); ok {
			for _, v := range r.ConfigValidators(ctx) {
				var resp resource.ValidateConfigResponse
				v.ValidateResource(ctx, req, &resp)
				said = append(said, resp.Diagnostics...)
			}
		}
		if len(said) == 0 {
			k.together.Store(set, nil)
		}
	}
	return len(said) == 0 && faultless(ctx, config, k.schema.Attributes, fields, path.Empty(), path.MatchRoot)
}

// set names the attributes that are set, those that are set to nothing, and those of which this is unknown.
func set(fields map[string]tftypes.Value) string {
	var names []string
	for name, v := range fields {
		if !v.IsKnown() {
			name += "?"
		} else if empty(v) {
			name += "0"
		}
		if !v.IsNull() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// empty reports whether a value is a set or a map without elements.
func empty(v tftypes.Value) bool {
	var list []tftypes.Value
	var fields map[string]tftypes.Value
	switch t := v.Type(); {
	case v.IsNull():
		return false
	case t.Is(tftypes.Set{}):
		return v.As(&list) == nil && len(list) == 0
	case t.Is(tftypes.Map{}):
		return v.As(&fields) == nil && len(fields) == 0
	}
	return false
}

// faultless tells so of the attributes of an object.
func faultless(
	ctx context.Context, config tfsdk.Config, attributes map[string]schema.Attribute, fields map[string]tftypes.Value, at path.Path,
	match func(string) path.Expression,
) bool {
	for name, a := range attributes {
		v := fields[name]
		if v.IsNull() && a.IsRequired() || !v.IsNull() && (!a.IsRequired() && !a.IsOptional() || a.GetDeprecationMessage() != "") {
			return false
		}
		if !sound(ctx, config, a, v, at.AtName(name), match(name)) {
			return false
		}
		nested, ok := a.(schema.SingleNestedAttribute)
		if !ok || v.IsNull() || !v.IsKnown() {
			continue
		}
		var inner map[string]tftypes.Value
		if v.As(&inner) != nil || !faultless(ctx, config, nested.Attributes, inner, at.AtName(name), match(name).AtName) {
			return false
		}
	}
	return true
}

// sound asks the validators of an attribute. Of lists, maps and nested sets it only knows those that are not set, and that nobody
// has to ask whether they may be left out.
func sound(ctx context.Context, config tfsdk.Config, a schema.Attribute, v tftypes.Value, at path.Path, match path.Expression) bool {
	switch a := a.(type) {
	case schema.StringAttribute:
		return silent(ctx, a, a.Validators, v, func(each validator.String, v basetypes.StringValue) diag.Diagnostics {
			var resp validator.StringResponse
			each.ValidateString(ctx, validator.StringRequest{Config: config, ConfigValue: v, Path: at, PathExpression: match}, &resp)
			return resp.Diagnostics
		})
	case schema.BoolAttribute:
		return silent(ctx, a, a.Validators, v, func(each validator.Bool, v basetypes.BoolValue) diag.Diagnostics {
			var resp validator.BoolResponse
			each.ValidateBool(ctx, validator.BoolRequest{Config: config, ConfigValue: v, Path: at, PathExpression: match}, &resp)
			return resp.Diagnostics
		})
	case schema.Int64Attribute:
		return silent(ctx, a, a.Validators, v, func(each validator.Int64, v basetypes.Int64Value) diag.Diagnostics {
			var resp validator.Int64Response
			each.ValidateInt64(ctx, validator.Int64Request{Config: config, ConfigValue: v, Path: at, PathExpression: match}, &resp)
			return resp.Diagnostics
		})
	case schema.NumberAttribute:
		return silent(ctx, a, a.Validators, v, func(each validator.Number, v basetypes.NumberValue) diag.Diagnostics {
			var resp validator.NumberResponse
			each.ValidateNumber(ctx, validator.NumberRequest{Config: config, ConfigValue: v, Path: at, PathExpression: match}, &resp)
			return resp.Diagnostics
		})
	case schema.SetAttribute:
		return silent(ctx, a, a.Validators, v, func(each validator.Set, v basetypes.SetValue) diag.Diagnostics {
			var resp validator.SetResponse
			each.ValidateSet(ctx, validator.SetRequest{Config: config, ConfigValue: v, Path: at, PathExpression: match}, &resp)
			return resp.Diagnostics
		})
	case schema.SingleNestedAttribute:
		return silent(ctx, a, a.Validators, v, func(each validator.Object, v basetypes.ObjectValue) diag.Diagnostics {
			var resp validator.ObjectResponse
			each.ValidateObject(ctx, validator.ObjectRequest{Config: config, ConfigValue: v, Path: at, PathExpression: match}, &resp)
			return resp.Diagnostics
		})
	}
	return v.IsNull() && reflect.ValueOf(a).FieldByName("Validators").Len() == 0
}

// silent tells whether no validator has anything to say of a value.
func silent[V any, T attr.Value](
	ctx context.Context, a schema.Attribute, validators []V, v tftypes.Value, ask func(V, T) diag.Diagnostics,
) bool {
	if len(validators) == 0 {
		return true
	}
	read, err := object.Read(ctx, a.GetType(), v)
	value, ok := read.(T) // which those are not that have a type of their own
	return err == nil && ok && !slices.ContainsFunc(validators, func(each V) bool { return len(ask(each, value)) > 0 })
}
