package pool

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/datasourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

var (
	_ datasource.DataSourceWithConfigure        = (*DataSource)(nil)
	_ datasource.DataSourceWithConfigValidators = (*DataSource)(nil)
)

// DataSource is the data source gpu_pool: what a pool has, and what is free in it.
type DataSource struct{ lifecycle.DataSource }

// NewDataSource makes the data source.
func NewDataSource() datasource.DataSource {
	return &DataSource{lifecycle.DataSource{Type: ResourceType}}
}

type poolModel struct {
	Name      types.String            `tfsdk:"name"`
	Host      types.String            `tfsdk:"host"`
	Cluster   types.String            `tfsdk:"cluster"`
	ID        types.String            `tfsdk:"id"`
	GPUs      map[string]membersModel `tfsdk:"gpus"`
	Available map[string]int64        `tfsdk:"available"`
	Quotas    map[string]usageModel   `tfsdk:"quotas"`
}

type membersModel struct {
	GPUs map[string]memberModel `tfsdk:"gpus"`
}

type memberModel struct {
	Model  string   `tfsdk:"model"`
	VM     *string  `tfsdk:"vm"`
	Status string   `tfsdk:"status"`
	Shares []string `tfsdk:"shares"`
	Free   *float64 `tfsdk:"free"`
}

// Schema implements datasource.DataSource.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A pool of GPUs as the hosts have it now, and what is free in it.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				MarkdownDescription: "The pool's name on the hosts.", Required: true,
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"host": tfschema.OptionalText("A host of the pool; the other nodes of its cluster, and the other hosts of a pool on Linux hosts, "+
				"are looked at as well. One of `host` and `cluster` is required.",
				stringvalidator.LengthAtLeast(1)),
			"cluster": tfschema.OptionalText("The cluster of the pool.", stringvalidator.LengthAtLeast(1)),
			"id":      tfschema.ComputedText("The host or cluster and the name; `gpu_vm_assignment` and `gpu_share` can refer to it."),
			"gpus": tfschema.ComputedMap("The GPUs in the pool, by host.", tfschema.Attributes{
				"gpus": tfschema.ComputedMap("The host's GPUs in the pool, by GPU id.", tfschema.Attributes{
					"model":  tfschema.ComputedText("Model, as the driver names it."),
					"status": tfschema.ComputedText("Such as `ready_for_dda` or `assigned`."),
					"vm":     tfschema.ComputedText("The VM that holds it; null for none."),
					"shares": tfschema.ComputedListOf(types.StringType, "The shares that use it. Linux only."),
					"free":   tfschema.ComputedDecimal("The part of it that no share has. Linux only."),
				}),
			}),
			"available": tfschema.ComputedMapOf(types.Int64Type, "Number of GPUs that no VM and no share uses, by host."),
			"quotas": tfschema.ComputedMap("By label, the quota and what the label's shares have of the pool now. "+
				"Shares without a label are under `\"\"`. Empty on Hyper-V hosts.", tfschema.Attributes{
				"gpus":            tfschema.ComputedDecimal("The quota in whole GPUs; null for no limit."),
				"memory_mib":      tfschema.ComputedNumber("The quota of memory in MiB; null for no limit."),
				"shares":          tfschema.ComputedNumber("The quota of shares; null for no limit."),
				"used_gpus":       tfschema.ComputedDecimal("What the shares count for, in whole GPUs."),
				"used_memory_mib": tfschema.ComputedNumber("The memory that is kept for the shares, in MiB."),
				"used_shares":     tfschema.ComputedNumber("How many shares there are."),
			}),
		},
	}
}

// ConfigValidators implements datasource.DataSourceWithConfigValidators.
func (d *DataSource) ConfigValidators(context.Context) []datasource.ConfigValidator {
	return []datasource.ConfigValidator{datasourcevalidator.ExactlyOneOf(path.MatchRoot("host"), path.MatchRoot("cluster"))}
}

// Read implements datasource.DataSource.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m poolModel
	diags := &resp.Diagnostics
	diags.Append(req.Config.Get(ctx, &m)...)
	if diags.HasError() {
		return
	}
	if !report.NotYet(diags, d.Fleet, ResourceType, fleet.View{}) {
		return
	}
	id, view, ok := d.look(ctx, &m, diags)
	if !ok {
		return
	}
	name := m.Name.ValueString()
	m.describe(view)
	if len(m.GPUs) == 0 {
		diags.AddAttributeError(path.Root("name"), "Pool does not exist", noSuchPool(view, name))
		return
	}
	m.ID, m.Quotas = types.StringValue(id), usage(view, name)
	diags.Append(resp.State.Set(ctx, &m)...)
}

// look looks at the hosts of the pool. Those of a pool on Linux hosts, which are no cluster, its claim tells.
func (d *DataSource) look(ctx context.Context, m *poolModel, diags *diag.Diagnostics) (id string, view fleet.View, ok bool) {
	within := gpu.Scope{Cluster: m.Cluster.ValueString()}
	at := within.Cluster
	if !m.Host.IsNull() {
		at = m.Host.ValueString()
		within.Hosts = []string{at}
		if !d.Fleet.Has(at) {
			diags.AddAttributeError(path.Root("host"), "Unknown host", scope.UnknownHost(d.Fleet, at))
			return "", view, false
		}
	}
	_, view, ok = scope.Hosts(ctx, d.Fleet, within, scope.Has{}, diags)
	id = at + "/" + m.Name.ValueString()
	if !report.NotYet(diags, d.Fleet, label(id), view) || !report.Unreachable(diags, d.Fleet, label(id), view) || !ok {
		return id, view, false
	}
	if host, answered := view.Hosts[at]; answered {
		if pool, linux := poolClaim(host, m.Name.ValueString()); linux {
			id, view = pool.ID, d.Fleet.Snapshot(ctx, d.Fleet.PoolHosts(ctx, pool.ID))
			ok = report.Unreachable(diags, d.Fleet, label(id), view)
		}
	}
	return id, view, ok
}

// describe fills in the GPUs of the pool on each host. A host whose GPUs are all held is listed with none that is available.
func (m *poolModel) describe(v fleet.View) {
	m.GPUs, m.Available = map[string]membersModel{}, map[string]int64{}
	for name, host := range v.Hosts {
		pool, exists := onHost(host, m.Name.ValueString())
		if !exists {
			continue
		}
		m.GPUs[name], m.Available[name] = membersModel{map[string]memberModel{}}, 0
		takenPart, shares := taken(host)
		for _, id := range pool.GPUs {
			member := memberModel{VM: holder(host, id)}
			if g, known := host.GPU(id); known {
				member.Model, member.Status = g.Model, string(g.Status)
			}
			if host.Platform == gpu.Linux {
				member.Shares = append([]string{}, shares[gpu.FoldID(id)]...)
				member.Free = new(free(takenPart[gpu.FoldID(id)]))
			}
			m.GPUs[name].GPUs[id] = member
			if member.VM == nil && len(member.Shares) == 0 {
				m.Available[name]++
			}
		}
	}
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
