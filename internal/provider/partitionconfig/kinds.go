package partitionconfig

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// layoutKind is a kind of layout in Terraform: its block, and what it makes of a GPU's entry in the
// attribute gpus. Each is in a file of its own.
type layoutKind struct {
	kind      gpu.Kind
	attribute schema.SingleNestedAttribute
	// decode reads a block that there is, encode writes one, null for another kind.
	decode   func(context.Context, types.Object, *gpu.PartitionConfig, *diag.Diagnostics)
	encode   func(context.Context, gpu.PartitionConfig, *diag.Diagnostics) types.Object
	describe func(context.Context, *gpuModel, gpu.PartitionConfig, *gpu.Host, *gpu.GPU, *diag.Diagnostics)
	// foresee is what becomes of a GPU's entry when its layout changes, as far as the configuration tells; nil
	// where it tells nothing.
	foresee func(gpuModel, gpu.PartitionConfig) gpuModel
}

// layoutKinds are in the order of gpu.Kinds.
var layoutKinds = []layoutKind{gpuPKind, migKind, vgpuKind, mpsKind, timeSlicingKind}

// layout reads the layout that the configuration asks for.
func (m *model) layout(ctx context.Context, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
	for i, k := range layoutKinds {
		if k.kind == c.Kind {
			k.decode(ctx, *m.blocks()[i], c, diags)
		}
	}
}

// setLayout is layout's inverse, for import.
func (m *model) setLayout(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) {
	for i, k := range layoutKinds {
		*m.blocks()[i] = k.encode(ctx, c, diags)
	}
}

// describe makes a GPU's entry in the attribute gpus.
func describe(ctx context.Context, c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU, diags *diag.Diagnostics) gpuModel {
	out := gpuModel{
		Model: types.StringValue(g.Model), Address: object.NullIfEmpty(g.Address), Instances: types.ListNull(instanceType),
		VGPUs: types.ListNull(vgpuType), Minor: object.Int64FromInt(g.Minor), Cores: object.NullIfEmpty(g.Cores),
	}
	for _, k := range layoutKinds {
		if k.kind == c.Kind {
			k.describe(ctx, &out, c, h, g, diags)
		}
	}
	return out
}

// otherKind replaces the config when it becomes one of another kind.
func otherKind() planmodifier.Object {
	return objectplanmodifier.RequiresReplaceIf(func(_ context.Context, req planmodifier.ObjectRequest,
		resp *objectplanmodifier.RequiresReplaceIfFuncResponse,
	) {
		resp.RequiresReplace = !req.PlanValue.IsUnknown() && req.PlanValue.IsNull() != req.StateValue.IsNull()
	}, "A change of kind forces a new resource.", "A change of kind forces a new resource.")
}
