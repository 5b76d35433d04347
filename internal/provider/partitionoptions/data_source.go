// Package partitionoptions is the data source gpu_partition_options: the partition
// counts that GPUs offer, and the memory that each yields.
package partitionoptions

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// DataSourceType is the data source's name in configurations.
const DataSourceType = "gpu_partition_options"

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// DataSource is gpu_partition_options.
type DataSource struct{ fleet *fleet.Fleet }

// New makes the data source.
func New() datasource.DataSource { return &DataSource{} }

// Metadata implements datasource.DataSource.
func (d *DataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = DataSourceType
}

// Configure implements datasource.DataSourceWithConfigure.
func (d *DataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.fleet, _ = req.ProviderData.(*fleet.Fleet)
}

type model struct {
	Host   types.String `tfsdk:"host"`
	GPUID  types.String `tfsdk:"gpu_id"`
	Common types.List   `tfsdk:"common_partition_counts"`
	GPUs   types.Map    `tfsdk:"gpus"`
}

type gpuModel struct {
	Model          string        `tfsdk:"model"`
	PartitionCount int64         `tfsdk:"partition_count"`
	Options        []optionModel `tfsdk:"options"`
}

type optionModel struct {
	PartitionCount   int64 `tfsdk:"partition_count"`
	PartitionVRAMMiB int64 `tfsdk:"partition_vram_mib"`
	Estimated        bool  `tfsdk:"estimated"`
}

// Schema implements datasource.DataSource.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	number := func(text string) schema.Int64Attribute {
		return schema.Int64Attribute{MarkdownDescription: text, Computed: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The partition counts that the GPUs of a host offer, and the memory that each partition would get.",
		Attributes: map[string]schema.Attribute{
			"host":   schema.StringAttribute{MarkdownDescription: "The host, as the provider names it.", Required: true},
			"gpu_id": schema.StringAttribute{MarkdownDescription: "One GPU. Default: every GPU of the host that can be partitioned.", Optional: true},
			"common_partition_counts": schema.ListAttribute{
				MarkdownDescription: "The counts that all of these GPUs offer.", ElementType: types.Int64Type, Computed: true,
			},
			"gpus": schema.MapNestedAttribute{
				MarkdownDescription: "The GPUs, by id.", Computed: true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"model":           schema.StringAttribute{MarkdownDescription: "The model.", Computed: true},
					"partition_count": number("The count that the GPU has now."),
					"options": schema.ListNestedAttribute{
						MarkdownDescription: "The valid counts, ascending.", Computed: true,
						NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
							"partition_count":    number("The count."),
							"partition_vram_mib": number("Memory of one partition in MiB."),
							"estimated": schema.BoolAttribute{
								MarkdownDescription: "Whether the memory is an estimate. Hyper-V reports it for the present count only; for others the same memory is shared evenly.",
								Computed:            true,
							},
						}},
					},
				}},
			},
		},
	}
}

// Read implements datasource.DataSource.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !report.NotYet(&resp.Diagnostics, d.fleet, DataSourceType, fleet.View{}) {
		return
	}
	name := m.Host.ValueString()
	if !d.fleet.Has(name) {
		resp.Diagnostics.AddAttributeError(path.Root("host"), "Unknown host", (&fleet.UnknownHostError{Host: name, Known: d.fleet.HostNames()}).Error())
		return
	}
	v := d.fleet.Look(ctx, []string{name})
	h, ok := v.Hosts[name]
	if !ok {
		if report.NotYet(&resp.Diagnostics, d.fleet, DataSourceType, v) && report.Unreachable(&resp.Diagnostics, d.fleet, DataSourceType, v) {
			resp.Diagnostics.AddError("Host does not answer", fmt.Sprintf("Host: %s\nThe options of its GPUs are not known without it.", name))
		}
		return
	}
	wanted := m.GPUID.ValueString()
	gpus := map[string]gpuModel{}
	var common []int
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Partitionable == nil || g.Partitionable.Paravirtual || wanted != "" && !gpu.SameID(wanted, g.ID) {
			continue
		}
		counts := slices.Sorted(slices.Values(g.Partitionable.ValidCounts))
		if len(gpus) == 0 {
			common = counts
		} else {
			common = slices.DeleteFunc(common, func(c int) bool { return !slices.Contains(counts, c) })
		}
		gpus[g.ID] = options(g, counts)
	}
	if wanted != "" && len(gpus) == 0 {
		resp.Diagnostics.AddAttributeError(path.Root("gpu_id"), "GPU cannot be partitioned", fmt.Sprintf(
			"Found: host %s has no GPU %q that can be partitioned.\nFix: data source gpu_inventory lists the host's GPUs with their status.", name, wanted))
		return
	}
	diags := &resp.Diagnostics
	set := func(p string, value any) { diags.Append(resp.State.SetAttribute(ctx, path.Root(p), value)...) }
	set("host", m.Host)
	set("gpu_id", m.GPUID)
	set("gpus", gpus)
	set("common_partition_counts", append([]int{}, common...))
}

func options(g *gpu.GPU, counts []int) gpuModel {
	out := gpuModel{Model: g.Model, PartitionCount: int64(g.Partitionable.Count), Options: []optionModel{}}
	for _, c := range counts {
		out.Options = append(out.Options, optionModel{
			PartitionCount: int64(c), PartitionVRAMMiB: g.Partitionable.EstimatedPartitionVRAM(c).MiB(), Estimated: c != g.Partitionable.Count,
		})
	}
	return out
}
