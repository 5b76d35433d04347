package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/datasourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

var (
	_ datasource.DataSourceWithConfigure        = (*DataSource)(nil)
	_ datasource.DataSourceWithConfigValidators = (*DataSource)(nil)
)

// DataSource is the data source gpu_pool: what a pool has, and what is free in it.
type DataSource struct{ fleet *fleet.Fleet }

// NewDataSource makes the data source.
func NewDataSource() datasource.DataSource { return &DataSource{} }

// Metadata implements datasource.DataSource.
func (d *DataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = ResourceType
}

// Configure implements datasource.DataSourceWithConfigure.
func (d *DataSource) Configure(_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.fleet, _ = req.ProviderData.(*fleet.Fleet)
}

type memberModel struct {
	Model  string  `tfsdk:"model"`
	VM     *string `tfsdk:"vm"`
	Status string  `tfsdk:"status"`
}

// Schema implements datasource.DataSource.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A pool of whole GPUs as the hosts have it now, and how many of its GPUs are free.",
		Attributes: map[string]schema.Attribute{
			"name":    schema.StringAttribute{MarkdownDescription: "The pool's name on the hosts.", Required: true},
			"host":    schema.StringAttribute{MarkdownDescription: "A host of the pool; the other nodes of its cluster are looked at as well. One of `host` and `cluster` is required.", Optional: true},
			"cluster": schema.StringAttribute{MarkdownDescription: "The cluster of the pool.", Optional: true},
			"id":      schema.StringAttribute{MarkdownDescription: "The host or cluster and the name; `gpu_vm_assignment` can refer to it.", Computed: true},
			"gpus": schema.MapAttribute{
				MarkdownDescription: "The GPUs in the pool, by host and GPU id, each with its `model`, `status` and the `vm` that holds it (null for none).",
				Computed:            true,
				ElementType: types.MapType{ElemType: types.ObjectType{AttrTypes: map[string]attr.Type{
					"model": types.StringType, "vm": types.StringType, "status": types.StringType,
				}}},
			},
			"available": schema.MapAttribute{MarkdownDescription: "How many GPUs no VM holds, by host.", ElementType: types.Int64Type, Computed: true},
		},
	}
}

// ConfigValidators implements datasource.DataSourceWithConfigValidators.
func (d *DataSource) ConfigValidators(context.Context) []datasource.ConfigValidator {
	return []datasource.ConfigValidator{datasourcevalidator.ExactlyOneOf(path.MatchRoot("host"), path.MatchRoot("cluster"))}
}

// Read implements datasource.DataSource.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var name, host, cluster types.String
	diags := &resp.Diagnostics
	diags.Append(req.Config.GetAttribute(ctx, path.Root("name"), &name)...)
	diags.Append(req.Config.GetAttribute(ctx, path.Root("host"), &host)...)
	diags.Append(req.Config.GetAttribute(ctx, path.Root("cluster"), &cluster)...)
	if diags.HasError() {
		return
	}
	if !report.NotYet(diags, d.fleet, ResourceType, fleet.View{}) {
		return
	}
	s := gpu.Scope{Cluster: cluster.ValueString()}
	at := s.Cluster
	if !host.IsNull() {
		s.Hosts, at = []string{host.ValueString()}, host.ValueString()
		if !d.fleet.Has(at) {
			diags.AddAttributeError(path.Root("host"), "Unknown host", (&fleet.UnknownHostError{Host: at, Known: d.fleet.HostNames()}).Error())
			return
		}
	}
	_, v, ok := scope.Hosts(ctx, d.fleet, s, diags)
	id := at + "/" + name.ValueString()
	if !report.NotYet(diags, d.fleet, label(id), v) || !report.Unreachable(diags, d.fleet, label(id), v) || !ok {
		return
	}
	gpus, available := map[string]map[string]memberModel{}, map[string]int64{}
	for _, n := range slices.Sorted(maps.Keys(v.Hosts)) {
		h := v.Hosts[n]
		p, has := h.Pool(name.ValueString())
		if !has {
			continue
		}
		gpus[n] = map[string]memberModel{}
		for _, g := range p.GPUs {
			m := memberModel{VM: holder(h, g)}
			if dev, known := h.GPU(g); known {
				m.Model, m.Status = dev.Model, string(dev.Status)
			}
			if m.VM == nil {
				available[n]++
			} else {
				available[n] += 0 // a host whose GPUs are all held is listed with none
			}
			gpus[n][g] = m
		}
	}
	if len(gpus) == 0 {
		diags.AddAttributeError(path.Root("name"), "Pool does not exist", fmt.Sprintf("Found: none of the hosts %v has a pool %q.", slices.Sorted(maps.Keys(v.Hosts)), name.ValueString()))
		return
	}
	set := func(p string, value any) { diags.Append(resp.State.SetAttribute(ctx, path.Root(p), value)...) }
	set("name", name)
	set("host", host)
	set("cluster", cluster)
	set("id", id)
	set("gpus", gpus)
	set("available", available)
}

// holder is the VM that has a GPU of a pool now, by name.
func holder(h *gpu.Host, id string) *string {
	for i := range h.VMs {
		for _, dev := range h.VMs[i].Devices {
			if gpu.SameID(dev.GPU, id) {
				return &h.VMs[i].Name
			}
		}
	}
	return nil
}
