package object_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

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
		if known := object.Known(t.Context(), types.StringValue("x"), c.value); known != c.known {
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
