// Package vgpulayout is how resources and data sources write a layout of vGPUs: one type,
// or numbers by type.
package vgpulayout

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// What the parts of a layout are, for registry pages.
const (
	TypeText = "The vGPU type of each GPU, such as `L40S-12Q`. Data source `gpu_partition_options` lists the types of a GPU. Types that are MIG-backed are refused. " +
		"One of `type` and `types` is required."
	CountText         = "With `type`: vGPUs per GPU. Default: as many of the type as the GPU takes."
	TypesText         = "Number of vGPUs per GPU by type, such as `{ \"L40S-24Q\" = 1, \"L40S-12Q\" = 2 }`. `{}` is no vGPUs, and `0` of a type the same as without it."
	HeterogeneousText = "Whether vGPUs of different frame buffer sizes may share a GPU. It changes only while the GPU has no vGPU. Default: `true` for `types` of " +
		"different sizes, else as the GPU has it."
)

// countAtMost is more vGPUs than any GPU has.
const countAtMost = 1024

// TypeValidators are those of the attribute type, beside an attribute types.
func TypeValidators() []validator.String {
	return []validator.String{
		stringvalidator.ExactlyOneOf(path.MatchRelative().AtParent().AtName("types")),
		stringvalidator.LengthAtLeast(1),
	}
}

// CountValidators are those of the attribute count, beside an attribute type.
func CountValidators() []validator.Int64 {
	return []validator.Int64{
		int64validator.AlsoRequires(path.MatchRelative().AtParent().AtName("type")),
		int64validator.Between(1, countAtMost),
	}
}

// TypesValidators refuse empty names, and numbers that are none.
func TypesValidators() []validator.Map {
	return []validator.Map{
		mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1)),
		mapvalidator.ValueInt64sAre(int64validator.Between(0, countAtMost)),
	}
}

// Type is the type of the attribute.
func Type() map[string]attr.Type {
	return map[string]attr.Type{
		"type": types.StringType, "count": types.Int64Type, "types": types.MapType{ElemType: types.Int64Type}, "heterogeneous": types.BoolType,
	}
}

type model struct {
	Type          types.String `tfsdk:"type"`
	Count         types.Int64  `tfsdk:"count"`
	Types         types.Map    `tfsdk:"types"`
	Heterogeneous types.Bool   `tfsdk:"heterogeneous"`
}

// Decode reads a known layout; null gives nil.
func Decode(ctx context.Context, o types.Object, diags *diag.Diagnostics) *gpu.VGPULayout {
	m := object.Decode[model](ctx, o, diags)
	if m == nil {
		return nil
	}
	l := &gpu.VGPULayout{Type: m.Type.ValueString(), Heterogeneous: m.Heterogeneous.ValueBoolPointer()}
	if !m.Count.IsNull() {
		n := int(m.Count.ValueInt64())
		l.Count = &n
	}
	if !m.Types.IsNull() {
		diags.Append(m.Types.ElementsAs(ctx, &l.Types, false)...)
		maps.DeleteFunc(l.Types, func(_ string, n int) bool { return n == 0 }) // as modules write it
	}
	return l
}

// Encode is Decode's inverse, for import.
func Encode(ctx context.Context, l *gpu.VGPULayout, diags *diag.Diagnostics) types.Object {
	if l == nil {
		return types.ObjectNull(Type())
	}
	m := model{Types: types.MapNull(types.Int64Type), Heterogeneous: types.BoolPointerValue(l.Heterogeneous)}
	var d diag.Diagnostics
	if l.Type != "" {
		m.Type = types.StringValue(l.Type)
		if l.Count != nil {
			m.Count = types.Int64Value(int64(*l.Count))
		}
	} else {
		counts := map[string]int64{}
		for name, n := range l.Types {
			counts[name] = int64(n)
		}
		m.Types, d = types.MapValueFrom(ctx, types.Int64Type, counts)
		diags.Append(d...)
	}
	out, d := types.ObjectValueFrom(ctx, Type(), m)
	diags.Append(d...)
	return out
}

// Place is where a vGPU is or goes, for lists of computed attributes.
type Place struct {
	Type     string `tfsdk:"type"`
	Function *int64 `tfsdk:"function"`
}

// What the parts of a place are, for registry pages.
const (
	PlaceTypeText = "The vGPU's type."
	FunctionText  = "The index of its virtual function; null for a vGPU on the GPU itself."
)

// Places converts places.
func Places(list []gpu.VGPUPlace) []Place {
	out := make([]Place, len(list))
	for i, p := range list {
		out[i] = Place{Type: p.Type, Function: Function(p)}
	}
	return out
}

// Function is the index of a place's virtual function, nil for the GPU itself.
func Function(p gpu.VGPUPlace) *int64 {
	if p.Function == gpu.Itself {
		return nil
	}
	n := int64(p.Function)
	return &n
}
