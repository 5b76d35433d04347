// Package object decodes nested attributes, of which any part may be unknown.
package object

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// Decode reads a nested object into T, whose fields are framework values. It
// returns nil for a null or unknown object.
func Decode[T any](ctx context.Context, o types.Object, diags *diag.Diagnostics) *T {
	if o.IsNull() || o.IsUnknown() {
		return nil
	}
	var out T
	diags.Append(o.As(ctx, &out, basetypes.ObjectAsOptions{})...)
	if diags.HasError() {
		return nil
	}
	return &out
}

// Known tells whether values and everything inside them are known.
func Known(ctx context.Context, values ...attr.Value) bool {
	for _, v := range values {
		tv, err := v.ToTerraformValue(ctx)
		if err != nil || !tv.IsFullyKnown() {
			return false
		}
	}
	return true
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

// None is an empty list.
func None(of attr.Type) types.List { return types.ListValueMust(of, []attr.Value{}) }
