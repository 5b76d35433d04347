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
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/sharelayout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/vgpulayout"
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
	VGPUs            types.List   `tfsdk:"vgpus"`
}

type instanceModel struct {
	Profile   string  `tfsdk:"profile"`
	Start     int64   `tfsdk:"start"`
	MemoryMiB int64   `tfsdk:"memory_mib"`
	UUID      *string `tfsdk:"uuid"`
}

// vgpuModel is one vGPU. Who holds it is left out: that changes without a change of ours.
type vgpuModel struct {
	Type     string  `tfsdk:"type"`
	Function *int64  `tfsdk:"function"`
	Address  *string `tfsdk:"address"`
	UUID     *string `tfsdk:"uuid"`
}

var (
	gpuPType     = map[string]attr.Type{"partition_count": types.Int64Type}
	instanceType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"profile": types.StringType, "start": types.Int64Type, "memory_mib": types.Int64Type, "uuid": types.StringType,
	}}
	vgpuType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"type": types.StringType, "function": types.Int64Type, "address": types.StringType, "uuid": types.StringType,
	}}
	gpuType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"model": types.StringType, "address": types.StringType, "layout": types.StringType,
		"partition_count": types.Int64Type, "partition_vram_mib": types.Int64Type, "instances": types.ListType{ElemType: instanceType},
		"vgpus": types.ListType{ElemType: vgpuType},
	}}
	gpusOfHostType = types.MapType{ElemType: gpuType}
)

// layout reads the layout that the configuration asks for.
func (m *model) layout(ctx context.Context, c *gpu.PartitionConfig, diags *diag.Diagnostics) {
	if p := object.Decode[gpuPModel](ctx, m.GPUP, diags); p != nil {
		c.Count = int(p.PartitionCount.ValueInt64())
	}
	c.VGPU = vgpulayout.Decode(ctx, m.VGPU, diags)
	c.MPS = sharelayout.DecodeMPS(ctx, m.MPS, diags)
	c.TimeSlicing = sharelayout.DecodeTimeSlicing(ctx, m.TimeSlicing, diags)
	miglayout.Decode(ctx, m.MIG, c, diags)
}

// setLayout is layout's inverse, for import.
func (m *model) setLayout(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) {
	m.GPUP, m.MIG = types.ObjectNull(gpuPType), miglayout.Encode(ctx, &c, diags)
	m.VGPU = vgpulayout.Encode(ctx, c.VGPU, diags)
	if c.Kind == gpu.KindMIG { // it has them inside
		c.MPS, c.TimeSlicing = nil, nil
	}
	m.MPS, m.TimeSlicing = sharelayout.EncodeMPS(ctx, c.MPS, diags), sharelayout.EncodeTimeSlicing(ctx, c.TimeSlicing, diags)
	if c.Kind == gpu.KindGPUP {
		var d diag.Diagnostics
		m.GPUP, d = types.ObjectValueFrom(ctx, gpuPType, gpuPModel{PartitionCount: types.Int64Value(int64(c.Count))})
		diags.Append(d...)
	}
}

// offers tells whether a GPU can have layouts of a kind at all.
func offers(kind gpu.Kind, g *gpu.GPU) bool {
	switch kind {
	case gpu.KindMIG:
		return g.MIG != nil
	case gpu.KindVGPU:
		return g.VGPU != nil
	case gpu.KindMPS, gpu.KindTimeSlicing:
		return g.Vendor == "NVIDIA"
	case gpu.KindGPUP:
	}
	return g.Partitionable != nil
}

// describe makes a GPU's entry in the attribute gpus.
func describe(ctx context.Context, c gpu.PartitionConfig, h *gpu.Host, g *gpu.GPU, diags *diag.Diagnostics) gpuModel {
	out := gpuModel{Model: types.StringValue(g.Model), Instances: types.ListNull(instanceType), VGPUs: types.ListNull(vgpuType)}
	if g.Address != "" {
		out.Address = types.StringValue(g.Address)
	}
	switch c.Kind {
	case gpu.KindGPUP:
		p := g.Partitionable
		out.Layout = types.StringValue(fmt.Sprintf("gpu_p:%d", p.Count))
		out.PartitionCount, out.PartitionVRAMMiB = types.Int64Value(int64(p.Count)), types.Int64Value(p.PartitionVRAM().MiB())
	case gpu.KindMIG:
		out.describeMIG(ctx, g, diags)
	case gpu.KindVGPU:
		out.describeVGPUs(ctx, g.VGPU, diags)
	case gpu.KindMPS, gpu.KindTimeSlicing:
		out.Layout = types.StringValue(sharingText(c, h, g))
	}
	return out
}

func (m *gpuModel) describeMIG(ctx context.Context, g *gpu.GPU, diags *diag.Diagnostics) {
	m.Layout = types.StringValue("mig:" + g.MIG.State().String())
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
	m.Instances, d = types.ListValueFrom(ctx, instanceType, instances)
	diags.Append(d...)
}
