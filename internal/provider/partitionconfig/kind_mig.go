package partitionconfig

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

var migKind = layoutKind{
	kind:      gpu.KindMIG,
	attribute: layout.MIG("MIG: GPU instances on Linux hosts, each with one compute instance that fills it."),
	decode:    layout.DecodeMIG,
	encode: func(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) types.Object {
		return layout.EncodeMIG(ctx, &c, diags)
	},
	describe: func(ctx context.Context, out *gpuModel, _ gpu.PartitionConfig, _ *gpu.Host, g *gpu.GPU, diags *diag.Diagnostics) {
		out.describeMIG(ctx, g, diags)
	},
}

type instanceModel struct {
	Profile   string  `tfsdk:"profile"`
	Start     int64   `tfsdk:"start"`
	MemoryMiB *int64  `tfsdk:"memory_mib"`
	UUID      *string `tfsdk:"uuid"`
}

var instanceType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"profile": types.StringType, "start": types.Int64Type, "memory_mib": types.Int64Type, "uuid": types.StringType,
}}

func (m *gpuModel) describeMIG(ctx context.Context, g *gpu.GPU, diags *diag.Diagnostics) {
	m.Layout = types.StringValue("mig:" + g.MIG.State().String())
	instances := []instanceModel{}
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		x := instanceModel{Profile: in.Profile, Start: int64(in.Start), MemoryMiB: object.MiBIfKnown(in.Memory)}
		if len(in.Compute) == 1 { // else no one of them is the whole instance
			x.UUID = &in.Compute[0].UUID
		}
		instances = append(instances, x)
	}
	slices.SortFunc(instances, func(a, b instanceModel) int { return cmp.Compare(a.Start, b.Start) })
	m.Instances = object.ListOf(ctx, instanceType, instances, diags)
}
