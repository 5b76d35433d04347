package object_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

type pair struct {
	Name  types.String `tfsdk:"name"`
	Count types.Int64  `tfsdk:"count"`
}

var pairTypes = map[string]attr.Type{"name": types.StringType, "count": types.Int64Type}

// TestDecode reads objects of which nothing, a part or all is known.
func TestDecode(t *testing.T) {
	t.Parallel()
	of := func(name types.String, count types.Int64) types.Object {
		return types.ObjectValueMust(pairTypes, map[string]attr.Value{"name": name, "count": count})
	}
	for _, c := range []struct {
		name  string
		value types.Object
		want  *pair
		known bool
	}{
		{"null", types.ObjectNull(pairTypes), nil, true},
		{"unknown", types.ObjectUnknown(pairTypes), nil, false},
		{"known in part", of(types.StringValue("a"), types.Int64Unknown()), &pair{types.StringValue("a"), types.Int64Unknown()}, false},
		{"with a null inside", of(types.StringNull(), types.Int64Value(2)), &pair{types.StringNull(), types.Int64Value(2)}, true},
	} {
		var diags diag.Diagnostics
		got := object.Decode[pair](c.value, &diags)
		if diags.HasError() || (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, %v", c.name, got, diags)
		}
		if known := object.Known(types.StringValue("x"), c.value); known != c.known {
			t.Errorf("%s is known: %t", c.name, known)
		}
	}
	var diags diag.Diagnostics
	type other struct {
		Elsewhere types.String `tfsdk:"elsewhere"`
	}
	got := object.Decode[other](of(types.StringNull(), types.Int64Null()), &diags)
	if got != nil || len(diags) == 0 || !strings.Contains(diags[0].Detail(), `attribute "elsewhere" of object_test.other is a <nil>`) {
		t.Errorf("an object of other attributes: %+v, %v", got, diags)
	}
}

// model has a field of each kind that the resources have.
type model struct {
	Name    types.String `tfsdk:"name"`
	Count   types.Int64  `tfsdk:"count"`
	On      types.Bool   `tfsdk:"on"`
	Hosts   types.Set    `tfsdk:"hosts"`
	Drift   types.List   `tfsdk:"drift"`
	GPUs    types.Map    `tfsdk:"gpus"`
	Options types.Object `tfsdk:"options"`
}

var (
	leaf = schema.NestedAttributeObject{
		Attributes: map[string]schema.Attribute{"name": schema.StringAttribute{}, "count": schema.Int64Attribute{}},
	}
	declared = schema.Schema{Attributes: map[string]schema.Attribute{
		"name": schema.StringAttribute{}, "count": schema.Int64Attribute{}, "on": schema.BoolAttribute{},
		"hosts": schema.SetAttribute{ElementType: types.StringType}, "drift": schema.ListNestedAttribute{NestedObject: leaf},
		"gpus": schema.MapNestedAttribute{NestedObject: leaf},
		"options": schema.SingleNestedAttribute{
			Attributes: map[string]schema.Attribute{
				"of": schema.SingleNestedAttribute{Attributes: leaf.Attributes}, "name": schema.StringAttribute{},
			},
		},
	}}
)

// value is any of a type, in part null or unknown.
func value(r *rand.Rand, typ tftypes.Type, some bool) tftypes.Value {
	switch n := r.IntN(8); {
	case some:
	case n == 0:
		return tftypes.NewValue(typ, nil)
	case n == 1:
		return tftypes.NewValue(typ, tftypes.UnknownValue)
	}
	several := func(of tftypes.Type) (all []tftypes.Value) {
		for range r.IntN(3) {
			all = append(all, value(r, of, false))
		}
		return all
	}
	switch t := typ.(type) {
	case tftypes.Object:
		fields := map[string]tftypes.Value{}
		for _, name := range slices.Sorted(maps.Keys(t.AttributeTypes)) {
			fields[name] = value(r, t.AttributeTypes[name], false)
		}
		return tftypes.NewValue(typ, fields)
	case tftypes.Map:
		fields := map[string]tftypes.Value{}
		for n, v := range several(t.ElementType) {
			fields[fmt.Sprint(n)] = v
		}
		return tftypes.NewValue(typ, fields)
	case tftypes.List:
		return tftypes.NewValue(typ, several(t.ElementType))
	case tftypes.Set:
		all := several(t.ElementType)
		if len(all) == 2 && all[0].Equal(all[1]) {
			all = all[1:] // as Terraform has it
		}
		return tftypes.NewValue(typ, all)
	}
	switch {
	case typ.Is(tftypes.Number):
		return tftypes.NewValue(typ, r.IntN(2))
	case typ.Is(tftypes.Bool):
		return tftypes.NewValue(typ, r.IntN(2) == 0)
	}
	return tftypes.NewValue(typ, []string{"a", "b"}[r.IntN(2)])
}

// TestValues reads and writes what the framework does, whatever of a plan is null or unknown.
func TestValues(t *testing.T) {
	t.Parallel()
	ctx, r := t.Context(), rand.New(rand.NewPCG(20, 1)) //nolint:gosec // the same every time
	read := func(raw tftypes.Value) (got *model) {
		var diags diag.Diagnostics
		var want model
		got = object.Get[model](ctx, tfsdk.Plan{Raw: raw, Schema: declared}, &diags)
		diags.Append(tfsdk.State{Raw: raw, Schema: declared}.Get(ctx, &want)...)
		if diags.HasError() || !reflect.DeepEqual(*got, want) {
			t.Fatalf("%s is read as\n%+v\nand by the framework as\n%+v (%v)", raw, got, want, diags)
		}
		return got
	}
	typ := declared.Type().TerraformType(ctx)
	for range 2000 {
		a, b := value(r, typ, true), value(r, typ, true)
		was, is := read(a), read(b)
		for name, v := range map[string]attr.Value{
			"name": is.Name, "hosts": is.Hosts, "drift": is.Drift, "gpus": is.GPUs, "options": is.Options,
		} {
			raw, err := v.ToTerraformValue(ctx)
			if err != nil || object.Known(v) != raw.IsFullyKnown() {
				t.Errorf("%s %s is known: %t (%v)", name, v, object.Known(v), err)
			}
		}
		switch r.IntN(3) {
		case 0:
			is.Hosts, is.Drift, is.Options, is.GPUs = was.Hosts, was.Drift, was.Options, was.GPUs
		case 1:
			*is = *was
		}
		to, anew, before := a, tftypes.NewValue(typ, nil), a.Copy()
		var diags diag.Diagnostics
		object.Set(ctx, &to, was, is, &diags)
		object.Set(ctx, &anew, nil, is, &diags)
		if diags.HasError() || !to.Equal(anew) || !a.Equal(before) {
			t.Fatalf("%s with %+v is %s, and made anew %s (%v)", before, is, to, anew, diags)
		}
		if object.Same(a, to) != reflect.DeepEqual(was, is) || object.Same(to, anew) {
			t.Fatalf("%s and %s are one: %t", a, to, object.Same(a, to))
		}
	}
}
