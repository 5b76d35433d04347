package layout

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// countAtMost is more vGPUs than any GPU takes.
const countAtMost = 1024

// VGPU is the attribute vgpu.
func VGPU(text string) schema.SingleNestedAttribute {
	return tfschema.OptionalObject(text, tfschema.Attributes{
		"type": tfschema.OptionalText("The vGPU type of each GPU, such as `L40S-12Q`. Data source `gpu_partition_options` lists the types of a "+
			"GPU. A MIG-backed type, such as `H100-1-10C`, brings MIG mode and its GPU instances. "+
			"One of `type` and `types` is required.", stringvalidator.ExactlyOneOf(path.MatchRelative().AtParent().AtName("types")),
			stringvalidator.LengthAtLeast(1)),
		"count": tfschema.OptionalNumber("With `type`: vGPUs per GPU. Default: as many of the type as the GPU takes.",
			int64validator.AlsoRequires(path.MatchRelative().AtParent().AtName("type")), int64validator.Between(1, countAtMost)),
		"types": tfschema.OptionalMapOf(types.Int64Type, "Number of vGPUs per GPU by type, such as `{ \"L40S-24Q\" = 1, \"L40S-12Q\" = 2 }`. "+
			"`{}` is no vGPUs, and `0` of a type the same as without it. MIG-backed types are not beside others. "+
			"Their sizes may differ without heterogeneous mode.",
			mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1)), mapvalidator.ValueInt64sAre(int64validator.Between(0, countAtMost))),
		"heterogeneous": tfschema.OptionalFlag("Whether vGPUs of different frame buffer sizes may share a GPU. " +
			"It changes only while the GPU has no vGPU. Default: `true` for `types` of different sizes, else as the GPU has it."),
	})
}

type vgpuModel struct {
	Type          types.String `tfsdk:"type"`
	Count         types.Int64  `tfsdk:"count"`
	Types         types.Map    `tfsdk:"types"`
	Heterogeneous types.Bool   `tfsdk:"heterogeneous"`
}

// DecodeVGPU reads a known layout; null gives nil.
func DecodeVGPU(ctx context.Context, o types.Object, diags *diag.Diagnostics) *gpu.VGPULayout {
	m := object.Decode[vgpuModel](o, diags)
	if m == nil {
		return nil
	}
	l := &gpu.VGPULayout{Type: m.Type.ValueString(), Count: object.IntFromInt64(m.Count), Heterogeneous: m.Heterogeneous.ValueBoolPointer()}
	if !m.Types.IsNull() {
		diags.Append(m.Types.ElementsAs(ctx, &l.Types, false)...)
		maps.DeleteFunc(l.Types, func(_ string, n int) bool { return n == 0 }) // as modules write it
	}
	return l
}

// EncodeVGPU is DecodeVGPU's inverse, for import.
func EncodeVGPU(ctx context.Context, l *gpu.VGPULayout, diags *diag.Diagnostics) types.Object {
	as := VGPU("")
	if l == nil {
		return types.ObjectNull(tfschema.TypesOf(as.Attributes))
	}
	m := vgpuModel{Types: types.MapNull(types.Int64Type), Heterogeneous: types.BoolPointerValue(l.Heterogeneous)}
	if l.Type == "" {
		m.Types = counted(ctx, l.Types, diags)
		return encode(ctx, as, m, diags)
	}
	m.Type, m.Count = types.StringValue(l.Type), object.Int64FromInt(l.Count)
	return encode(ctx, as, m, diags)
}

// Place is where a vGPU is or goes, for lists of computed attributes.
type Place struct {
	Type     string `tfsdk:"type"`
	Function *int64 `tfsdk:"function"`
}

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
	return new(int64(p.Function))
}
