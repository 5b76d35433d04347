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
	foresee: func(g gpuModel, c gpu.PartitionConfig) gpuModel {
		g.Layout, g.Instances = types.StringUnknown(), types.ListUnknown(instanceType)
		if c.MIG.Off || len(c.MIG.Placements) > 0 { // where others go the GPU decides, by those that it has
			at := gpu.MIGState{Enabled: !c.MIG.Off, Placements: c.MIG.Placements}
			g.Layout = types.StringValue(gpu.Layout{MIG: &at}.Text(c.Kind))
		}
		if c.MIG.Off {
			g.Instances = noInstances
		}
		return g
	},
}

type instanceModel struct {
	Profile   string  `tfsdk:"profile"`
	Start     int64   `tfsdk:"start"`
	MemoryMiB *int64  `tfsdk:"memory_mib"`
	UUID      *string `tfsdk:"uuid"`

	Capabilities []int64 `tfsdk:"capabilities"`
}

func (m *gpuModel) describeMIG(ctx context.Context, g *gpu.GPU, diags *diag.Diagnostics) {
	m.Layout = types.StringValue("mig:" + g.MIG.State().String())
	instances := []instanceModel{}
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		x := instanceModel{Profile: in.Profile, Start: int64(in.Start), MemoryMiB: object.MiBIfKnown(in.Memory)}
		if len(in.Compute) == 1 { // else no one of them is the whole instance
			x.UUID = &in.Compute[0].UUID
		}
		for _, minor := range in.Capabilities() {
			x.Capabilities = append(x.Capabilities, int64(minor))
		}
		instances = append(instances, x)
	}
	slices.SortFunc(instances, func(a, b instanceModel) int { return cmp.Compare(a.Start, b.Start) })
	m.Instances = object.ListOf(ctx, instanceType, instances, diags)
}
