package pool

import (
	"context"
	"maps"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework-validators/float64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

type quotaModel struct {
	GPUs      types.Float64 `tfsdk:"gpus"`
	MemoryMiB types.Int64   `tfsdk:"memory_mib"`
	Shares    types.Int64   `tfsdk:"shares"`
}

var quotaType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"gpus": types.Float64Type, "memory_mib": types.Int64Type,
	"shares": types.Int64Type,
}}

// maxMiB keeps an amount of memory below what 64 bits of bytes can tell.
const maxMiB = 1 << 43

func quotasAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "How much the shares of each `owner_label` may take of the pool together, over all of its hosts, by label. " +
			"What is not set is not limited, and neither is a label without a quota. `{}` is none. Only for pools on Linux hosts.",
		Optional:   true,
		Validators: []validator.Map{mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1))},
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"gpus":       tfschema.OptionalDecimal("In whole GPUs, such as `1.5`: a share counts for its `fraction`.", float64validator.AtLeast(0)),
			"memory_mib": tfschema.OptionalNumber("The memory that the shares request, in MiB.", int64validator.Between(0, maxMiB)),
			"shares":     tfschema.OptionalNumber("The number of shares.", int64validator.AtLeast(0)),
		}},
	}
}

// decodeQuotas reads known quotas; null gives nil.
func decodeQuotas(ctx context.Context, m types.Map, diags *diag.Diagnostics) map[string]gpu.PoolQuota {
	if m.IsNull() || len(m.Elements()) == 0 {
		return nil
	}
	list := map[string]quotaModel{}
	diags.Append(m.ElementsAs(ctx, &list, false)...)
	out := map[string]gpu.PoolQuota{}
	for label, q := range list {
		out[label] = gpu.PoolQuota{
			GPUs: q.GPUs.ValueFloat64Pointer(), Memory: object.BytesFromMiB(q.MemoryMiB),
			Shares: object.IntFromInt64(q.Shares),
		}
	}
	return out
}

// encodeQuotas is decodeQuotas's inverse, for import.
func encodeQuotas(ctx context.Context, quotas map[string]gpu.PoolQuota, diags *diag.Diagnostics) types.Map {
	if len(quotas) == 0 {
		return types.MapNull(quotaType)
	}
	list := map[string]quotaModel{}
	for label, q := range quotas {
		list[label] = quotaModel{
			GPUs: types.Float64PointerValue(q.GPUs), MemoryMiB: object.MiBFromBytes(q.Memory),
			Shares: object.Int64FromInt(q.Shares),
		}
	}
	return object.MapOf(ctx, quotaType, list, diags)
}

// sameQuotas compares quotas; none is the same as null.
func sameQuotas(a, b map[string]gpu.PoolQuota) bool {
	return maps.EqualFunc(a, b, func(x, y gpu.PoolQuota) bool { return reflect.DeepEqual(x, y) })
}
