// Package object reads objects into structs and writes them again: nested attributes, of which any
// part may be unknown, and whole plans and states. The framework (v1.19.0) does so too, and looks
// the fields of a struct up for each value anew, with a regular expression that it compiles for each.
package object

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Decode reads a nested object into T, whose fields are framework values. It
// returns nil for a null or unknown object.
func Decode[T any](o types.Object, diags *diag.Diagnostics) *T {
	if o.IsNull() || o.IsUnknown() {
		return nil
	}
	values := o.Attributes()
	return fill[T](len(values), func(name string) (attr.Value, error) { return values[name], nil }, diags)
}

// fill makes a struct of the values of as many attributes.
func fill[T any](count int, value func(name string) (attr.Value, error), diags *diag.Diagnostics) *T {
	var out T
	to, fields := reflect.ValueOf(&out).Elem(), fieldsOf(reflect.TypeFor[T]())
	for name, at := range fields {
		v, err := value(name)
		if field := to.FieldByIndex(at); err == nil && reflect.TypeOf(v) == field.Type() {
			field.Set(reflect.ValueOf(v))
			continue
		}
		mismatch(diags, "attribute %q of %T is a %T (%v)", name, out, v, err)
	}
	if count != len(fields) {
		mismatch(diags, "%T has %d fields for %d attributes", out, len(fields), count)
	}
	if diags.HasError() {
		return nil
	}
	return &out
}

// Get reads a plan, a state or a configuration into T, nil where there is none.
func Get[T any, V tfsdk.Plan | tfsdk.State | tfsdk.Config](ctx context.Context, value V, diags *diag.Diagnostics) *T {
	from := tfsdk.State(value)
	var values map[string]tftypes.Value
	if from.Raw.IsNull() || from.Raw.As(&values) != nil {
		return nil
	}
	kinds := kindsOf(reflect.TypeFor[T](), from)
	var said diag.Diagnostics
	out := fill[T](len(values), func(name string) (attr.Value, error) { return Read(ctx, kinds[name], values[name]) }, &said)
	diags.Append(said...)
	return out
}

// Read makes a value of a type. The framework's objects build their type for each of their values anew, to compare it.
func Read(ctx context.Context, of attr.Type, v tftypes.Value) (attr.Value, error) {
	o, ok := of.(types.ObjectType)
	var inner map[string]tftypes.Value
	switch {
	case of == nil:
		return nil, errors.New("no such attribute")
	case !ok || !v.IsKnown():
		return of.ValueFromTerraform(ctx, v)
	case v.IsNull():
		return types.ObjectNull(o.AttrTypes), nil
	}
	if err := v.As(&inner); err != nil {
		return nil, err
	}
	values := make(map[string]attr.Value, len(inner))
	for name, v := range inner {
		var err error
		if values[name], err = Read(ctx, o.AttrTypes[name], v); err != nil {
			return nil, err
		}
	}
	out, said := types.ObjectValue(o.AttrTypes, values)
	if said.HasError() {
		return nil, fmt.Errorf("%v", said)
	}
	return out, nil
}

// Set writes a struct into the value of a plan or a state, which has what another one says, nil for nothing.
func Set[T any](ctx context.Context, to *tftypes.Value, before, after *T, diags *diag.Diagnostics) {
	values, changed := map[string]tftypes.Value{}, before == nil
	if before != nil {
		var there map[string]tftypes.Value
		_ = to.As(&there) // what is missing, the type says
		maps.Copy(values, there)
	}
	for name, at := range fieldsOf(reflect.TypeFor[T]()) {
		field, ok := reflect.ValueOf(after).Elem().FieldByIndex(at).Interface().(attr.Value)
		if !ok {
			mismatch(diags, "attribute %q of %T is a %T", name, *after, field)
			return
		}
		if before != nil {
			if held, ok := reflect.ValueOf(before).Elem().FieldByIndex(at).Interface().(attr.Value); ok && field.Equal(held) {
				continue
			}
		}
		value, err := field.ToTerraformValue(ctx)
		if err != nil {
			mismatch(diags, "attribute %q of %T: %v", name, *after, err)
			return
		}
		values[name], changed = value, true
	}
	if !changed {
		return
	}
	if err := tftypes.ValidateValue(to.Type(), values); err != nil {
		mismatch(diags, "%T: %v", *after, err)
		return
	}
	*to = tftypes.NewValue(to.Type(), values)
}

// Same tells whether two objects are one. Those that only hold the same may not be.
func Same(a, b tftypes.Value) bool {
	var in, also map[string]tftypes.Value
	return a.As(&in) == nil && b.As(&also) == nil && reflect.ValueOf(in).Pointer() == reflect.ValueOf(also).Pointer()
}

// Alike reports whether two structs have the same values of all attributes that a configuration may set, but for those named.
func Alike[T any](a, b *T, of tfsdk.Config, but ...string) bool {
	one, other, fields := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), fieldsOf(reflect.TypeFor[T]())
	for _, name := range settableOf(reflect.TypeFor[T](), of) {
		v, ok := one.FieldByIndex(fields[name]).Interface().(attr.Value)
		o, also := other.FieldByIndex(fields[name]).Interface().(attr.Value)
		if !slices.Contains(but, name) && (!ok || !also || !v.Equal(o)) {
			return false
		}
	}
	return true
}

// mismatch says that a struct is not as its schema.
func mismatch(diags *diag.Diagnostics, format string, args ...any) {
	diags.AddError("Value conversion failed", fmt.Sprintf("Found: "+format+".\nFix: Report it; this is a bug in the provider.", args...))
}

// fieldsOf finds a struct's fields by the names of their attributes.
func fieldsOf(t reflect.Type) map[string][]int {
	if known, ok := fields.Load(t); ok {
		return known.(map[string][]int) //nolint:forcetypeassert // nothing else is stored
	}
	all := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if name, ok := f.Tag.Lookup("tfsdk"); ok {
			all[name] = f.Index
		}
	}
	fields.Store(t, all)
	return all
}

// kindsOf are the types of the attributes that a struct's fields are, which the schema copies for whoever asks.
func kindsOf(t reflect.Type, of tfsdk.State) map[string]attr.Type {
	if known, ok := kinds.Load(t); ok {
		return known.(map[string]attr.Type) //nolint:forcetypeassert // nothing else is stored
	}
	all := map[string]attr.Type{}
	for name, a := range of.Schema.GetAttributes() {
		all[name] = a.GetType()
	}
	kinds.Store(t, all)
	return all
}

// settableOf are the attributes that a configuration may set.
func settableOf(t reflect.Type, of tfsdk.Config) []string {
	if known, ok := settable.Load(t); ok {
		return known.([]string) //nolint:forcetypeassert // nothing else is stored
	}
	var all []string
	for name, a := range of.Schema.GetAttributes() {
		if a.IsRequired() || a.IsOptional() {
			all = append(all, name)
		}
	}
	settable.Store(t, all)
	return all
}

var fields, kinds, settable sync.Map // of fieldsOf, kindsOf and settableOf, by type

// Known tells whether values and everything inside them are known.
func Known(values ...attr.Value) bool {
	return !slices.ContainsFunc(values, func(v attr.Value) bool {
		var parts []attr.Value
		switch v := v.(type) {
		case interface{ Attributes() map[string]attr.Value }:
			parts = slices.Collect(maps.Values(v.Attributes()))
		case interface{ Elements() map[string]attr.Value }:
			parts = slices.Collect(maps.Values(v.Elements()))
		case interface{ Elements() []attr.Value }:
			parts = v.Elements()
		}
		return v.IsUnknown() || !Known(parts...)
	})
}

// Strings reads a known set or list of strings; null gives nil.
func Strings(ctx context.Context, v interface {
	IsNull() bool
	ElementsAs(context.Context, any, bool) diag.Diagnostics
}, diags *diag.Diagnostics,
) []string {
	if v.IsNull() {
		return nil
	}
	out := []string{}
	diags.Append(v.ElementsAs(ctx, &out, false)...)
	return out
}

// ListOf writes a list, and what is wrong with it to the diagnostics.
func ListOf(ctx context.Context, of attr.Type, from any, diags *diag.Diagnostics) types.List {
	v, d := types.ListValueFrom(ctx, of, from)
	diags.Append(d...)
	return v
}

// SetOf writes a set, as ListOf does.
func SetOf(ctx context.Context, of attr.Type, from any, diags *diag.Diagnostics) types.Set {
	v, d := types.SetValueFrom(ctx, of, from)
	diags.Append(d...)
	return v
}

// MapOf writes a map, as ListOf does.
func MapOf(ctx context.Context, of attr.Type, from any, diags *diag.Diagnostics) types.Map {
	v, d := types.MapValueFrom(ctx, of, from)
	diags.Append(d...)
	return v
}

// NestedOf writes a nested object, as ListOf does.
func NestedOf(ctx context.Context, of map[string]attr.Type, from any, diags *diag.Diagnostics) types.Object {
	v, d := types.ObjectValueFrom(ctx, of, from)
	diags.Append(d...)
	return v
}

// NullIfEmpty is a text, null for "".
func NullIfEmpty[T ~string](s T) types.String { return types.StringPointerValue(NilIfEmpty(s)) }

// NilIfEmpty is a text, nil for "".
func NilIfEmpty[T ~string](s T) *string {
	if s == "" {
		return nil
	}
	out := string(s)
	return &out
}

// BytesFromMiB is an amount of memory, nil for null or unknown.
func BytesFromMiB(v types.Int64) *gpu.Bytes {
	if v.IsNull() || v.IsUnknown() {
		return nil
	}
	return new(gpu.FromMiB(v.ValueInt64()))
}

// MiBFromBytes is BytesFromMiB's inverse.
func MiBFromBytes(b *gpu.Bytes) types.Int64 {
	if b == nil {
		return types.Int64Null()
	}
	return types.Int64Value(b.MiB())
}

// MiBIfKnown is an amount of memory that a host tells, nil for one that it does not.
func MiBIfKnown(b gpu.Bytes) *int64 { return MiBFromBytes(b.Known()).ValueInt64Pointer() }

// IntFromInt64 is a whole number, nil for null or unknown.
func IntFromInt64(v types.Int64) *int {
	if v.IsNull() || v.IsUnknown() {
		return nil
	}
	return new(int(v.ValueInt64()))
}

// Int64FromInt is IntFromInt64's inverse.
func Int64FromInt(n *int) types.Int64 {
	if n == nil {
		return types.Int64Null()
	}
	return types.Int64Value(int64(*n))
}

// NullIfFalse is null for false.
func NullIfFalse(v bool) types.Bool {
	if !v {
		return types.BoolNull()
	}
	return types.BoolValue(true)
}

// Round keeps of a fraction what is worth reading: 33.3333 and not 33.333333333333336.
func Round(f float64) float64 { return math.Round(f*1e4) / 1e4 }

// Identity reads the identity that an import names, nil where it names none.
func Identity[T any](ctx context.Context, id *tfsdk.ResourceIdentity, diags *diag.Diagnostics) *T {
	if id == nil || id.Raw.IsNull() {
		return nil
	}
	var out T
	diags.Append(id.Get(ctx, &out)...)
	if diags.HasError() {
		return nil
	}
	return &out
}
