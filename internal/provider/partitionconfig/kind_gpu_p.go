package partitionconfig

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

var gpuPKind = layoutKind{
	kind: gpu.KindGPUP,
	attribute: tfschema.OptionalObject("GPU-P: partitions that Hyper-V gives to virtual machines. Exactly one of the kinds `gpu_p`, `mig`, "+
		"`vgpu`, `mps` and `time_slicing` is required; changing from one "+
		"to another forces a new resource.", tfschema.Attributes{
		"partition_count": schema.Int64Attribute{
			MarkdownDescription: "Partitions per GPU. Only the counts that the GPU's driver offers are valid; " +
				"data source `gpu_partition_options` lists them with the memory that each partition gets.",
			Required: true, Validators: []validator.Int64{int64validator.Between(1, 1024)},
		},
	}),
	decode: func(_ context.Context, block types.Object, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
		if p := object.Decode[gpuPModel](block, diags); p != nil {
			c.Count = int(p.PartitionCount.ValueInt64())
		}
	},
	encode: func(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
		if c.Kind != gpu.KindGPUP {
			return types.ObjectNull(gpuPType)
		}
		return object.NestedOf(ctx, gpuPType, gpuPModel{PartitionCount: types.Int64Value(int64(c.Count))}, diags)
	},
	describe: func(_ context.Context, out *gpuModel, _ gpu.PartitionConfig, _ *gpu.Host, g *gpu.GPU, _ *diag.Diagnostics) {
		p := g.Partitionable
		out.Layout = types.StringValue(gpu.Layout{Partitions: p.Count}.Text(gpu.KindGPUP))
		out.PartitionCount, out.PartitionVRAMMiB = types.Int64Value(int64(p.Count)), object.MiBFromBytes(p.PartitionVRAM().Known())
	},
	foresee: func(g gpuModel, c gpu.PartitionConfig) gpuModel {
		count := types.Int64Value(int64(c.Count))
		if !g.PartitionCount.Equal(count) || g.PartitionVRAMMiB.IsNull() {
			g.PartitionVRAMMiB = types.Int64Unknown()
		}
		g.Layout, g.PartitionCount = types.StringValue(gpu.Layout{Partitions: c.Count}.Text(c.Kind)), count
		return g
	},
}

type gpuPModel struct {
	PartitionCount types.Int64 `tfsdk:"partition_count"`
}

var gpuPType = map[string]attr.Type{"partition_count": types.Int64Type}
