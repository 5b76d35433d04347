// Package sharelayout is how resources and data sources write how processes share a GPU or
// a GPU instance: the Multi-Process Service, or time-slicing.
package sharelayout

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// MPSInMIGType is the type of the attribute mps inside of mig, where GPUs have no compute
// mode of their own.
func MPSInMIGType() types.ObjectType {
	return types.ObjectType{AttrTypes: map[string]attr.Type{
		"uid": types.Int64Type, "multi_user": types.BoolType, "active_thread_percentage": types.Float64Type, "pinned_memory_limit_mib": types.Int64Type,
		"oversubscription": types.Float64Type,
	}}
}

// MPSType is the type of the attribute mps.
func MPSType() types.ObjectType { return with(MPSInMIGType(), "compute_mode") }

// TimeSlicingInMIGType is the type of the attribute time_slicing inside of mig: GPU
// instances have no time slice.
func TimeSlicingInMIGType() types.ObjectType {
	return types.ObjectType{AttrTypes: map[string]attr.Type{"replicas": types.Int64Type, "oversubscription": types.Float64Type}}
}

// TimeSlicingType is the type of the attribute time_slicing.
func TimeSlicingType() types.ObjectType { return with(TimeSlicingInMIGType(), "interval") }

// with is a type with one more text.
func with(t types.ObjectType, name string) types.ObjectType {
	out := maps.Clone(t.AttrTypes)
	out[name] = types.StringType
	return types.ObjectType{AttrTypes: out}
}

type mpsInMIG struct {
	User             types.Int64   `tfsdk:"uid"`
	MultiUser        types.Bool    `tfsdk:"multi_user"`
	Threads          types.Float64 `tfsdk:"active_thread_percentage"`
	MemoryMiB        types.Int64   `tfsdk:"pinned_memory_limit_mib"`
	Oversubscription types.Float64 `tfsdk:"oversubscription"`
}

type mps struct {
	mpsInMIG
	ComputeMode types.String `tfsdk:"compute_mode"`
}

type timeSlicingInMIG struct {
	Replicas         types.Int64   `tfsdk:"replicas"`
	Oversubscription types.Float64 `tfsdk:"oversubscription"`
}

type timeSlicing struct {
	timeSlicingInMIG
	Interval types.String `tfsdk:"interval"`
}

// DecodeMPS reads a known layout of MPS; null gives nil.
func DecodeMPS(ctx context.Context, o types.Object, diags *diag.Diagnostics) *gpu.MPSLayout {
	m := object.Decode[mps](ctx, o, diags)
	if m == nil {
		return nil
	}
	l := m.layout()
	l.ComputeMode = gpu.ComputeMode(m.ComputeMode.ValueString())
	return l
}

// DecodeMPSInMIG is DecodeMPS for the attribute inside of mig.
func DecodeMPSInMIG(ctx context.Context, o types.Object, diags *diag.Diagnostics) *gpu.MPSLayout {
	m := object.Decode[mpsInMIG](ctx, o, diags)
	if m == nil {
		return nil
	}
	return m.layout()
}

func (m mpsInMIG) layout() *gpu.MPSLayout {
	l := &gpu.MPSLayout{
		MultiUser: m.MultiUser.ValueBool(), ActiveThreadPercentage: m.Threads.ValueFloat64(), PinnedMemoryLimit: gpu.FromMiB(m.MemoryMiB.ValueInt64()),
		Oversubscription: m.Oversubscription.ValueFloat64(),
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
	return encode(ctx, MPSType(), mps{mpsInMIG: mpsOf(l), ComputeMode: text(l.ComputeMode)}, diags)
}

// EncodeMPSInMIG is DecodeMPSInMIG's inverse.
func EncodeMPSInMIG(ctx context.Context, l *gpu.MPSLayout, diags *diag.Diagnostics) types.Object {
	if l == nil {
		return types.ObjectNull(MPSInMIGType().AttrTypes)
	}
	return encode(ctx, MPSInMIGType(), mpsOf(l), diags)
}

func mpsOf(l *gpu.MPSLayout) mpsInMIG {
	m := mpsInMIG{Threads: number(l.ActiveThreadPercentage), Oversubscription: number(l.Oversubscription)}
	if l.User != nil {
		m.User = types.Int64Value(int64(*l.User))
	}
	if l.MultiUser {
		m.MultiUser = types.BoolValue(true)
	}
	if l.PinnedMemoryLimit > 0 {
		m.MemoryMiB = types.Int64Value(l.PinnedMemoryLimit.MiB())
	}
	return m
}

// DecodeTimeSlicing reads a known layout of time-slicing; null gives nil.
func DecodeTimeSlicing(ctx context.Context, o types.Object, diags *diag.Diagnostics) *gpu.TimeSlicing {
	m := object.Decode[timeSlicing](ctx, o, diags)
	if m == nil {
		return nil
	}
	l := m.layout()
	l.Interval = gpu.TimeSlice(m.Interval.ValueString())
	return l
}

// DecodeTimeSlicingInMIG is DecodeTimeSlicing for the attribute inside of mig.
func DecodeTimeSlicingInMIG(ctx context.Context, o types.Object, diags *diag.Diagnostics) *gpu.TimeSlicing {
	m := object.Decode[timeSlicingInMIG](ctx, o, diags)
	if m == nil {
		return nil
	}
	return m.layout()
}

func (m timeSlicingInMIG) layout() *gpu.TimeSlicing {
	return &gpu.TimeSlicing{Replicas: int(m.Replicas.ValueInt64()), Oversubscription: m.Oversubscription.ValueFloat64()}
}

// EncodeTimeSlicing is DecodeTimeSlicing's inverse, for import.
func EncodeTimeSlicing(ctx context.Context, l *gpu.TimeSlicing, diags *diag.Diagnostics) types.Object {
	if l == nil {
		return types.ObjectNull(TimeSlicingType().AttrTypes)
	}
	return encode(ctx, TimeSlicingType(), timeSlicing{timeSlicingInMIG: timeSlicingOf(l), Interval: text(l.Interval)}, diags)
}

// EncodeTimeSlicingInMIG is DecodeTimeSlicingInMIG's inverse.
func EncodeTimeSlicingInMIG(ctx context.Context, l *gpu.TimeSlicing, diags *diag.Diagnostics) types.Object {
	if l == nil {
		return types.ObjectNull(TimeSlicingInMIGType().AttrTypes)
	}
	return encode(ctx, TimeSlicingInMIGType(), timeSlicingOf(l), diags)
}

func timeSlicingOf(l *gpu.TimeSlicing) timeSlicingInMIG {
	return timeSlicingInMIG{Replicas: types.Int64Value(int64(l.Replicas)), Oversubscription: number(l.Oversubscription)}
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
