// Package layout is how resources and data sources write the layout that GPUs shall have: a file
// for each kind, with its attribute and how its values are read and written.
package layout

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

func encode(ctx context.Context, as schema.SingleNestedAttribute, from any, diags *diag.Diagnostics) types.Object {
	return object.NestedOf(ctx, tfschema.TypesOf(as.Attributes), from, diags)
}

// counted is a map of numbers by name, empty for nil.
func counted(ctx context.Context, of map[string]int, diags *diag.Diagnostics) types.Map {
	counts := map[string]int{}
	maps.Copy(counts, of)
	return object.MapOf(ctx, types.Int64Type, counts, diags)
}

// number is null for 0, which stands for the default.
func number(n float64) types.Float64 {
	if n == 0 {
		return types.Float64Null()
	}
	return types.Float64Value(n)
}
