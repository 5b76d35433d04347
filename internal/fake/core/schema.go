package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
	"github.com/zclconf/go-cty/cty/msgpack"
)

// attributes is a schema, or what a nested attribute consists of.
type attributes map[string]*attribute

type attribute struct {
	name                         string
	ty                           cty.Type // with nested attributes
	nested                       attributes
	nesting                      tfprotov6.SchemaObjectNestingMode
	required, optional, computed bool
	sensitive, writeOnly         bool
}

// schema is the schema of a resource, a data source or a provider.
type schema struct {
	attributes
	version int64
	ty      cty.Type
}

func newSchema(name string, s *tfprotov6.Schema) (*schema, error) {
	if s == nil {
		return &schema{attributes: attributes{}, ty: cty.EmptyObject}, nil
	}
	if len(s.Block.BlockTypes) > 0 {
		return nil, fmt.Errorf("%s has nested blocks, which %w", name, errUnsupported)
	}
	a, err := newAttributes(name, s.Block.Attributes)
	if err != nil {
		return nil, err
	}
	return &schema{attributes: a, version: s.Version, ty: a.object()}, nil
}

func newAttributes(at string, from []*tfprotov6.SchemaAttribute) (attributes, error) {
	out := attributes{}
	for _, s := range from {
		a := &attribute{
			name: s.Name, required: s.Required, optional: s.Optional, computed: s.Computed, sensitive: s.Sensitive, writeOnly: s.WriteOnly,
		}
		switch {
		case s.NestedType != nil:
			var err error
			if a.nested, err = newAttributes(at+"."+s.Name, s.NestedType.Attributes); err != nil {
				return nil, err
			}
			a.nesting, a.ty = s.NestedType.Nesting, a.nested.object()
			switch a.nesting {
			case tfprotov6.SchemaObjectNestingModeSingle:
			case tfprotov6.SchemaObjectNestingModeList:
				a.ty = cty.List(a.ty)
			case tfprotov6.SchemaObjectNestingModeMap:
				a.ty = cty.Map(a.ty)
			case tfprotov6.SchemaObjectNestingModeSet:
				a.ty = cty.Set(a.ty)
			default:
				return nil, fmt.Errorf("%s.%s has a nesting mode which %w", at, s.Name, errUnsupported)
			}
		default:
			var err error
			if a.ty, err = typeOf(s.Type); err != nil {
				return nil, fmt.Errorf("%s.%s: %w", at, s.Name, err)
			}
		}
		out[s.Name] = a
	}
	return out, nil
}

// typeOf goes by the form of a type that both libraries write as JSON.
func typeOf(t tftypes.Type) (cty.Type, error) {
	raw, err := json.Marshal(t)
	if err != nil {
		return cty.NilType, err
	}
	return ctyjson.UnmarshalType(raw)
}

func (a attributes) names() []string { return slices.Sorted(maps.Keys(a)) }

func (a attributes) object() cty.Type {
	types := map[string]cty.Type{}
	for name, x := range a {
		types[name] = x.ty
	}
	return cty.Object(types)
}

// written is the type of an attribute as a configuration may write it: nested
// attributes may be left out unless they are required.
func (a *attribute) written() cty.Type {
	if a.nested == nil {
		return a.ty
	}
	types, optional := map[string]cty.Type{}, []string{}
	for name, x := range a.nested {
		types[name] = x.written()
		if !x.required {
			optional = append(optional, name)
		}
	}
	object := cty.ObjectWithOptionalAttrs(types, optional)
	switch a.nesting {
	case tfprotov6.SchemaObjectNestingModeList:
		return cty.List(object)
	case tfprotov6.SchemaObjectNestingModeMap:
		return cty.Map(object)
	case tfprotov6.SchemaObjectNestingModeSet:
		return cty.Set(object)
	default:
		return object
	}
}

// spec decodes a body. Attributes that are only computed may be written too, and the
// provider refuses them as Terraform lets it.
func (a attributes) spec() hcldec.Spec {
	out := hcldec.ObjectSpec{}
	for name, x := range a {
		out[name] = &hcldec.AttrSpec{Name: name, Type: x.written(), Required: x.required}
	}
	return out
}

// null is an object of which every attribute is null.
func (a attributes) null() cty.Value {
	values := map[string]cty.Value{}
	for name, x := range a {
		values[name] = cty.NullVal(x.ty)
	}
	return cty.ObjectVal(values)
}

// at is the attribute at a path, whatever elements are on the way.
func (a attributes) at(path cty.Path) *attribute {
	var found *attribute
	for _, step := range path {
		switch s := step.(type) {
		case cty.GetAttrStep:
			if a == nil || a[s.Name] == nil {
				return nil
			}
			found = a[s.Name]
			a = found.nested
		case cty.IndexStep:
		}
	}
	if len(path) > 0 {
		if _, element := path[len(path)-1].(cty.IndexStep); element {
			return nil
		}
	}
	return found
}

func encode(v cty.Value, ty cty.Type) (*tfprotov6.DynamicValue, error) {
	raw, err := msgpack.Marshal(v, ty)
	if err != nil {
		return nil, err
	}
	return &tfprotov6.DynamicValue{MsgPack: raw}, nil
}

// decode reads a value that a provider has sent. None at all is reported as missing.
func decode(v *tfprotov6.DynamicValue, ty cty.Type) (value cty.Value, missing bool, err error) {
	switch {
	case v == nil || len(v.MsgPack) == 0 && len(v.JSON) == 0:
		return cty.NullVal(ty), true, nil
	case len(v.MsgPack) > 0:
		value, err = msgpack.Unmarshal(v.MsgPack, ty)
	default:
		value, err = ctyjson.Unmarshal(v.JSON, ty)
	}
	return value, false, err
}

// pathOf turns a provider's path into one of a value.
func pathOf(p *tftypes.AttributePath) cty.Path {
	var out cty.Path
	if p == nil {
		return nil
	}
	for _, step := range p.Steps() {
		switch s := step.(type) {
		case tftypes.AttributeName:
			out = append(out, cty.GetAttrStep{Name: string(s)})
		case tftypes.ElementKeyString:
			out = append(out, cty.IndexStep{Key: cty.StringVal(string(s))})
		case tftypes.ElementKeyInt:
			out = append(out, cty.IndexStep{Key: cty.NumberIntVal(int64(s))})
		default: // an element of a set has no path of its own
			return out
		}
	}
	return out
}
