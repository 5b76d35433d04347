package partitionconfig

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

var vgpuKind = layoutKind{
	kind: gpu.KindVGPU,
	attribute: layout.VGPU("Virtual GPUs (vGPUs) for virtual machines of KVM, on Linux hosts with NVIDIA's vGPU driver: of types that share " +
		"the GPU by time slices, or of MIG-backed types, whose GPU instances are derived from them."),
	decode: func(ctx context.Context, block types.Object, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
		c.VGPU = layout.DecodeVGPU(ctx, block, diags)
	},
	encode: func(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
		return layout.EncodeVGPU(ctx, c.VGPU, diags)
	},
	describe: func(ctx context.Context, out *gpuModel, _ gpu.PartitionConfig, _ *gpu.Host, g *gpu.GPU, diags *diag.Diagnostics) {
		out.describeVGPUs(ctx, g.VGPU, diags)
	},
	foresee: func(g gpuModel, _ gpu.PartitionConfig) gpuModel {
		g.Layout, g.VGPUs = types.StringUnknown(), types.ListUnknown(vgpuType)
		return g
	},
}

// vgpuModel is one vGPU. Who holds it is left out: that changes without a change of ours.
type vgpuModel struct {
	Type     string  `tfsdk:"type"`
	Function *int64  `tfsdk:"function"`
	Address  *string `tfsdk:"address"`
	UUID     *string `tfsdk:"uuid"`
}

func (m *gpuModel) describeVGPUs(ctx context.Context, v *gpu.VGPU, diags *diag.Diagnostics) {
	m.Layout = types.StringValue(v.State().String())
	now := slices.SortedFunc(slices.Values(v.Instances), func(a, b gpu.VGPUInstance) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Type, b.Type), cmp.Compare(a.UUID, b.UUID))
	})
	list := []vgpuModel{}
	for i := range now {
		in := &now[i]
		list = append(list, vgpuModel{
			Type: in.Type, Function: layout.Function(in.VGPUPlace), Address: object.NilIfEmpty(in.Address),
			UUID: object.NilIfEmpty(in.UUID),
		})
	}
	m.VGPUs = object.ListOf(ctx, vgpuType, list, diags)
}
