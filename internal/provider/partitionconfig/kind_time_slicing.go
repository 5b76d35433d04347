package partitionconfig

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
)

var timeSlicingKind = layoutKind{
	kind: gpu.KindTimeSlicing,
	attribute: layout.TimeSlicing("Time-slicing on Linux hosts: several workloads take turns on each GPU. " +
		"Nothing holds one of them to its part of time or memory, and it is no security boundary. " +
		"The compute mode of the GPUs becomes `default`; it and the time slice are put back when a GPU leaves the config."),
	decode: func(_ context.Context, block types.Object, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
		c.TimeSlicing = layout.DecodeTimeSlicing(block, diags)
	},
	encode: func(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
		if c.Kind != gpu.KindTimeSlicing {
			c.TimeSlicing = nil // MIG has it inside
		}
		return layout.EncodeTimeSlicing(ctx, c.TimeSlicing, diags)
	},
	describe: describeSharing,
	foresee: func(g gpuModel, c gpu.PartitionConfig) gpuModel {
		g.Layout = types.StringValue(gpu.Layout{TimeSlice: c.TimeSlicing.Interval}.Text(c.Kind))
		return g
	},
}
