package partitionconfig

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/miglayout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

type gpuPModel struct {
	PartitionCount types.Int64 `tfsdk:"partition_count"`
}

// gpuModel is one GPU in the attribute gpus.
type gpuModel struct {
	Model            types.String `tfsdk:"model"`
	Address          types.String `tfsdk:"address"`
	Layout           types.String `tfsdk:"layout"`
	PartitionCount   types.Int64  `tfsdk:"partition_count"`
	PartitionVRAMMiB types.Int64  `tfsdk:"partition_vram_mib"`
	Instances        types.List   `tfsdk:"instances"`
}

type instanceModel struct {
	Profile   string  `tfsdk:"profile"`
	Start     int64   `tfsdk:"start"`
	MemoryMiB int64   `tfsdk:"memory_mib"`
	UUID      *string `tfsdk:"uuid"`
}

var (
	gpuPType     = map[string]attr.Type{"partition_count": types.Int64Type}
	instanceType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"profile": types.StringType, "start": types.Int64Type, "memory_mib": types.Int64Type, "uuid": types.StringType,
	}}
	gpuType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"model": types.StringType, "address": types.StringType, "layout": types.StringType,
		"partition_count": types.Int64Type, "partition_vram_mib": types.Int64Type, "instances": types.ListType{ElemType: instanceType},
	}}
	gpusOfHostType = types.MapType{ElemType: gpuType}
)

// isolation of both kinds: partitions and instances have memory of their own.
const isolation = "hardware"

// layout reads the layout that the configuration asks for.
func (m *model) layout(ctx context.Context, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
	if p := object.Decode[gpuPModel](ctx, m.GPUP, diags); p != nil {
		c.Count = int(p.PartitionCount.ValueInt64())
	}
	c.MIG = miglayout.Decode(ctx, m.MIG, diags)
}

// setLayout is layout's inverse, for import.
func (m *model) setLayout(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) {
	m.GPUP, m.MIG = types.ObjectNull(gpuPType), miglayout.Encode(ctx, c.MIG, diags)
	if c.Kind() == gpu.KindGPUP {
		var d diag.Diagnostics
		m.GPUP, d = types.ObjectValueFrom(ctx, gpuPType, gpuPModel{PartitionCount: types.Int64Value(int64(c.Count))})
		diags.Append(d...)
	}
}

// offers tells whether a GPU can have layouts of a kind at all.
func offers(kind gpu.Kind, g *gpu.GPU) bool {
	if kind == gpu.KindMIG {
		return g.MIG != nil
	}
	return g.Partitionable != nil
}

// hasLayout tells whether a GPU has the layout of a config.
func hasLayout(c gpu.PartitionConfig, g *gpu.GPU) bool {
	if c.Kind() == gpu.KindMIG {
		return rules.HasMIGLayout(g, c.MIG)
	}
	return g.Partitionable.Count == c.Count
}

// layoutWords tell what a GPU has and what is declared: "has 2 partitions, declared are 4".
func layoutWords(c gpu.PartitionConfig, g *gpu.GPU) string {
	if c.Kind() == gpu.KindMIG {
		return fmt.Sprintf("has %s, declared is %s", migWords(g), rules.MIGLayoutText(c.MIG))
	}
	return fmt.Sprintf("has %d partitions, declared are %d", g.Partitionable.Count, c.Count)
}

func migWords(g *gpu.GPU) string {
	switch s := g.MIG.State(); {
	case !s.Enabled:
		return "MIG mode off"
	case len(s.Placements) == 0:
		return "MIG mode without instances"
	default:
		return rules.MIGText(s)
	}
}

// describe makes a GPU's entry in the attribute gpus.
func describe(ctx context.Context, kind gpu.Kind, g *gpu.GPU, diags *diag.Diagnostics) gpuModel {
	out := gpuModel{Model: types.StringValue(g.Model), Instances: types.ListNull(instanceType)}
	if g.Address != "" {
		out.Address = types.StringValue(g.Address)
	}
	if kind == gpu.KindGPUP {
		p := g.Partitionable
		out.Layout = types.StringValue(fmt.Sprintf("gpu_p:%d", p.Count))
		out.PartitionCount, out.PartitionVRAMMiB = types.Int64Value(int64(p.Count)), types.Int64Value(p.PartitionVRAM().MiB())
		return out
	}
	out.Layout = types.StringValue("mig:" + rules.MIGText(g.MIG.State()))
	instances := []instanceModel{}
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		x := instanceModel{Profile: in.Profile, Start: int64(in.Start), MemoryMiB: in.Memory.MiB()}
		if len(in.Compute) == 1 { // else no one of them is the whole instance
			x.UUID = &in.Compute[0].UUID
		}
		instances = append(instances, x)
	}
	slices.SortFunc(instances, func(a, b instanceModel) int { return cmp.Compare(a.Start, b.Start) })
	var d diag.Diagnostics
	out.Instances, d = types.ListValueFrom(ctx, instanceType, instances)
	diags.Append(d...)
	return out
}
