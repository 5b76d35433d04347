// Package sharelayout is how resources and data sources write how processes share a GPU or
// a GPU instance: the Multi-Process Service, or time-slicing.
package sharelayout

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// MPSType is the type of the attribute mps, on GPUs and inside of mig.
func MPSType() types.ObjectType {
	return types.ObjectType{AttrTypes: map[string]attr.Type{
		"uid": types.Int64Type, "multi_user": types.BoolType, "active_thread_percentage": types.Float64Type, "pinned_memory_limit_mib": types.Int64Type,
		"compute_mode": types.StringType, "oversubscription": types.Float64Type,
	}}
}

// TimeSlicingType is the type of the attribute time_slicing, on GPUs and inside of mig.
func TimeSlicingType() types.ObjectType {
	return types.ObjectType{AttrTypes: map[string]attr.Type{"interval": types.StringType, "replicas": types.Int64Type, "oversubscription": types.Float64Type}}
}

type mps struct {
	User             types.Int64   `tfsdk:"uid"`
	MultiUser        types.Bool    `tfsdk:"multi_user"`
	Threads          types.Float64 `tfsdk:"active_thread_percentage"`
	MemoryMiB        types.Int64   `tfsdk:"pinned_memory_limit_mib"`
	ComputeMode      types.String  `tfsdk:"compute_mode"`
	Oversubscription types.Float64 `tfsdk:"oversubscription"`
}

type timeSlicing struct {
	Interval         types.String  `tfsdk:"interval"`
	Replicas         types.Int64   `tfsdk:"replicas"`
	Oversubscription types.Float64 `tfsdk:"oversubscription"`
}

// DecodeMPS reads a known layout of MPS; null gives nil.
func DecodeMPS(ctx context.Context, o types.Object, diags *diag.Diagnostics) *gpu.MPSLayout {
	m := object.Decode[mps](ctx, o, diags)
	if m == nil {
		return nil
	}
	l := &gpu.MPSLayout{
		MultiUser: m.MultiUser.ValueBool(), ActiveThreadPercentage: m.Threads.ValueFloat64(), PinnedMemoryLimit: gpu.FromMiB(m.MemoryMiB.ValueInt64()),
		ComputeMode: gpu.ComputeMode(m.ComputeMode.ValueString()), Oversubscription: m.Oversubscription.ValueFloat64(),
	}
	if !m.User.IsNull() {
		id := int(m.User.ValueInt64())
		l.User = &id
	}
	return l
}

// EncodeMPS is DecodeMPS's inverse, for import.
func EncodeMPS(ctx context.Context, l *gpu.MPSLayout, diags *diag.Diagnostics) types.Object {
	if l == nil {
		return types.ObjectNull(MPSType().AttrTypes)
	}
	m := mps{Threads: number(l.ActiveThreadPercentage), ComputeMode: text(l.ComputeMode), Oversubscription: number(l.Oversubscription)}
	if l.User != nil {
		m.User = types.Int64Value(int64(*l.User))
	}
	if l.MultiUser {
		m.MultiUser = types.BoolValue(true)
	}
	if l.PinnedMemoryLimit > 0 {
		m.MemoryMiB = types.Int64Value(l.PinnedMemoryLimit.MiB())
	}
	return encode(ctx, MPSType(), m, diags)
}

// DecodeTimeSlicing reads a known layout of time-slicing; null gives nil.
func DecodeTimeSlicing(ctx context.Context, o types.Object, diags *diag.Diagnostics) *gpu.TimeSlicing {
	m := object.Decode[timeSlicing](ctx, o, diags)
	if m == nil {
		return nil
	}
	return &gpu.TimeSlicing{
		Interval: gpu.TimeSlice(m.Interval.ValueString()), Replicas: int(m.Replicas.ValueInt64()), Oversubscription: m.Oversubscription.ValueFloat64(),
	}
}

// EncodeTimeSlicing is DecodeTimeSlicing's inverse, for import.
func EncodeTimeSlicing(ctx context.Context, l *gpu.TimeSlicing, diags *diag.Diagnostics) types.Object {
	if l == nil {
		return types.ObjectNull(TimeSlicingType().AttrTypes)
	}
	m := timeSlicing{Interval: text(l.Interval), Replicas: types.Int64Value(int64(l.Replicas)), Oversubscription: number(l.Oversubscription)}
	return encode(ctx, TimeSlicingType(), m, diags)
}

func encode(ctx context.Context, t types.ObjectType, from any, diags *diag.Diagnostics) types.Object {
	out, d := types.ObjectValueFrom(ctx, t.AttrTypes, from)
	diags.Append(d...)
	return out
}

// number is null for 0, which stands for the default.
func number(n float64) types.Float64 {
	if n == 0 {
		return types.Float64Null()
	}
	return types.Float64Value(n)
}

// text is null for "", which stands for the default.
func text[T ~string](s T) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(string(s))
}
