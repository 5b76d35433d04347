// Package changeforecast is the data source gpu_change_forecast: what a layout would
// do to the hosts and to what runs there, as known values that a policy can judge.
package changeforecast

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/datasourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/layout"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// DataSourceType is the data source's name in configurations.
const DataSourceType = "gpu_change_forecast"

var (
	_ datasource.DataSourceWithConfigure        = (*DataSource)(nil)
	_ datasource.DataSourceWithConfigValidators = (*DataSource)(nil)
)

// DataSource is gpu_change_forecast.
type DataSource struct{ lifecycle.DataSource }

// New makes the data source.
func New() datasource.DataSource { return &DataSource{lifecycle.DataSource{Type: DataSourceType}} }

type model struct {
	Hosts      types.Set    `tfsdk:"hosts"`
	Cluster    types.String `tfsdk:"cluster"`
	Selector   types.Object `tfsdk:"selector"`
	GPUP       types.Object `tfsdk:"gpu_p"`
	MIG        types.Object `tfsdk:"mig"`
	VGPU       types.Object `tfsdk:"vgpu"`
	MPS        types.Object `tfsdk:"mps"`
	Slicing    types.Object `tfsdk:"time_slicing"`
	Disruption types.String `tfsdk:"disruption"`
	Feasible   types.Bool   `tfsdk:"feasible"`
	GPUs       []gpuModel   `tfsdk:"gpus"`
	VMs        []vmModel    `tfsdk:"stops_vms"`

	Assignments []assignmentModel `tfsdk:"assignments"`
	Effects     []effectModel     `tfsdk:"vms"`
	Resets      []resetModel      `tfsdk:"resets_gpus"`
	Seats       []seatsModel      `tfsdk:"seats"`

	Violations []violationModel `tfsdk:"violations"`
}

type gpuPModel struct {
	PartitionCount types.Int64 `tfsdk:"partition_count"`
}

type gpuModel struct {
	Host             string     `tfsdk:"host"`
	GPUID            string     `tfsdk:"gpu_id"`
	Model            string     `tfsdk:"model"`
	From             *int64     `tfsdk:"from_partition_count"`
	To               *int64     `tfsdk:"to_partition_count"`
	PartitionVRAMMiB *int64     `tfsdk:"partition_vram_mib"`
	Holders          []string   `tfsdk:"holders"`
	MIG              *migModel  `tfsdk:"mig"`
	VGPU             *vgpuModel `tfsdk:"vgpu"`

	Sharing *sharingModel `tfsdk:"sharing"`
}

type vgpuModel struct {
	From          string         `tfsdk:"from_layout"`
	To            string         `tfsdk:"to_layout"`
	Functions     *string        `tfsdk:"switches_functions"`
	Heterogeneous *string        `tfsdk:"switches_heterogeneous"`
	Keeps         []layout.Place `tfsdk:"keeps"`
	Removes       []layout.Place `tfsdk:"removes"`
	Creates       []layout.Place `tfsdk:"creates"`
}

type migModel struct {
	From    string             `tfsdk:"from_layout"`
	To      string             `tfsdk:"to_layout"`
	Mode    *string            `tfsdk:"switches_mode"`
	Resets  bool               `tfsdk:"resets_gpu"`
	Keeps   []layout.Placement `tfsdk:"keeps"`
	Removes []layout.Placement `tfsdk:"removes"`
	Creates []layout.Placement `tfsdk:"creates"`
}

type vmModel struct {
	Host    string `tfsdk:"host"`
	VM      string `tfsdk:"vm"`
	VMID    string `tfsdk:"vm_id"`
	Allowed bool   `tfsdk:"allowed"`
	Reason  string `tfsdk:"reason"`
}

type violationModel struct {
	Rule   string `tfsdk:"rule"`
	Level  string `tfsdk:"level"`
	Host   string `tfsdk:"host"`
	GPUID  string `tfsdk:"gpu_id"`
	VM     string `tfsdk:"vm"`
	Found  string `tfsdk:"found"`
	Wanted string `tfsdk:"wanted"`
	Fix    string `tfsdk:"fix"`
}

// Schema implements datasource.DataSource.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "What a layout, and the assignments of VMs to it, would do to the hosts and to what runs there, without doing it. " +
			"The values are known in the plan, for preconditions, `check` blocks and policy engines.",
		Attributes: map[string]schema.Attribute{
			"hosts": tfschema.OptionalSetOf(types.StringType, "Hosts, as the provider names them. One of `hosts` and `cluster` is required. "+
				"`[]` beside `cluster` is none.", scope.HostsOrCluster()...),
			"cluster": tfschema.OptionalText("A failover cluster: all of the provider's hosts that are its nodes.",
				stringvalidator.LengthAtLeast(1)),
			"selector": tfschema.OptionalObject("Narrows the GPUs, as in `gpu_partition_config`.", scope.SelectorAttributes()),
			"gpu_p": tfschema.OptionalObject("The wanted GPU-P layout. One of `gpu_p`, `mig`, `vgpu`, `mps` and "+
				"`time_slicing` is required.", tfschema.Attributes{
				"partition_count": schema.Int64Attribute{
					MarkdownDescription: "Partitions per GPU.", Required: true,
					Validators: []validator.Int64{int64validator.AtLeast(1)},
				},
			}),
			"mig":          layout.MIG("The wanted MIG layout, as in `gpu_partition_config`."),
			"vgpu":         layout.VGPU("The wanted layout of vGPUs, as in `gpu_partition_config`."),
			"mps":          layout.MPS("The wanted MPS, as in `gpu_partition_config`."),
			"time_slicing": layout.TimeSlicing("The wanted time-slicing, as in `gpu_partition_config`."),
			"assignments":  assignmentsAttribute(),
			"vms":          effectsAttribute(),
			"resets_gpus":  resetsAttribute(),
			"seats":        seatsAttribute(),
			"disruption":   tfschema.ComputedText("The class of the whole change: `none`, `process_restart`, `vm_restart` or `gpu_reset`."),
			"feasible": tfschema.ComputedFlag("Whether no rule forbids the change, given that `max_disruption` allows its class, and every VM " +
				"that it stops may be stopped."),
			"gpus": tfschema.ComputedList("The GPUs whose layout would change.", tfschema.Attributes{
				"host": tfschema.ComputedText("The host."), "gpu_id": tfschema.ComputedText("The GPU's id."),
				"model":                tfschema.ComputedText("The model."),
				"from_partition_count": tfschema.ComputedNumber("The count now; null for other kinds."),
				"to_partition_count":   tfschema.ComputedNumber("The wanted count; null for other kinds."),
				"partition_vram_mib": tfschema.ComputedNumber("The memory that a partition is expected to have, in MiB; null for other kinds, " +
					"and where the host does not tell it."),
				"holders": tfschema.ComputedListOf(types.StringType, "Running VMs that hold partitions of the GPU, or processes and VMs "+
					"that keep its modes from being switched, or clients that end with an MPS daemon."),
				"mig": tfschema.ComputedObject("The change of MIG; null for other kinds.", tfschema.Attributes{
					"from_layout": tfschema.ComputedText("The layout now, such as `1g.10gb@0+3g.40gb@4`; `none` for MIG mode without instances, " +
						"`off` without MIG mode."),
					"to_layout":     tfschema.ComputedText("The layout that the GPU would get."),
					"switches_mode": tfschema.ComputedText("`on` or `off` when MIG mode is switched, else null."),
					"resets_gpu":    tfschema.ComputedFlag("Whether that resets the GPU."),
					"keeps":         placements("The instances that stay."),
					"removes":       placements("The instances that go."),
					"creates":       placements("The instances that come."),
				}),
				"vgpu": tfschema.ComputedObject("The change of vGPUs; null for other kinds.", tfschema.Attributes{
					"from_layout":            tfschema.ComputedText("The vGPUs now, such as `vgpu:2xL40S-12Q`; `vgpu:none` without any."),
					"to_layout":              tfschema.ComputedText("The vGPUs that the GPU would get."),
					"switches_functions":     tfschema.ComputedText("`on` or `off` when the virtual functions are switched, else null."),
					"switches_heterogeneous": tfschema.ComputedText("`on` or `off` when the mode of different frame buffer sizes is switched, else null."),
					"keeps":                  places("The vGPUs that stay."),
					"removes":                places("The vGPUs that go."),
					"creates":                places("The vGPUs that come."),
				}),
				"sharing": sharingAttribute(),
			}),
			"stops_vms": tfschema.ComputedList("The running VMs that would be shut down and started again.", tfschema.Attributes{
				"host": tfschema.ComputedText("The VM's owner host."), "vm": tfschema.ComputedText("The VM's name."),
				"vm_id":   tfschema.ComputedText("The VM's id."),
				"allowed": tfschema.ComputedFlag("Whether the VM's own assignment allows its shutdown."),
				"reason":  tfschema.ComputedText("Why it does not."),
			}),
			"violations": tfschema.ComputedList("What the rules find, errors first.", tfschema.Attributes{
				"rule": tfschema.ComputedText("The rule's id."), "level": tfschema.ComputedText("`error` or `warning`."),
				"host": tfschema.ComputedText("The host."), "gpu_id": tfschema.ComputedText("The GPU's id."),
				"vm":    tfschema.ComputedText("The VM's name."),
				"found": tfschema.ComputedText("What was found."), "wanted": tfschema.ComputedText("What is wanted."),
				"fix": tfschema.ComputedText("What to do."),
			}),
		},
	}
}

// ConfigValidators implements datasource.DataSourceWithConfigValidators.
func (d *DataSource) ConfigValidators(context.Context) []datasource.ConfigValidator {
	return []datasource.ConfigValidator{
		tfschema.ExactlyOne{"hosts", "cluster"},
		datasourcevalidator.ExactlyOneOf(
			path.MatchRoot("gpu_p"), path.MatchRoot("mig"), path.MatchRoot("vgpu"), path.MatchRoot("mps"), path.MatchRoot("time_slicing"),
		),
	}
}

// Read implements datasource.DataSource.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m model
	diags := &resp.Diagnostics
	diags.Append(req.Config.Get(ctx, &m)...)
	if diags.HasError() {
		return
	}
	s, _ := scope.Decode(ctx, m.Hosts, m.Cluster, m.Selector, diags)
	want := gpu.PartitionConfig{
		ID: DataSourceType, Scope: s, GPUs: map[string][]string{}, MaxDisruption: gpu.DisruptGPUReset,
		VGPU: layout.DecodeVGPU(ctx, m.VGPU, diags),
		MPS:  layout.DecodeMPS(m.MPS, diags), TimeSlicing: layout.DecodeTimeSlicing(m.Slicing, diags),
	}
	want.Kind = scope.Kind(m.GPUP, m.MIG, m.VGPU, m.MPS, m.Slicing)
	layout.DecodeMIG(ctx, m.MIG, &want, diags)
	if p := object.Decode[gpuPModel](m.GPUP, diags); p != nil {
		want.Count = int(p.PartitionCount.ValueInt64())
	}
	if diags.HasError() {
		return
	}
	if !report.NotYet(diags, d.Fleet, DataSourceType, fleet.View{}) {
		return
	}
	hosts, v, ok := scope.Hosts(ctx, d.Fleet, s, scope.Has{}, diags)
	if !report.NotYet(diags, d.Fleet, DataSourceType, v) || !report.Unreachable(diags, d.Fleet, DataSourceType, v) || !ok {
		return
	}
	for _, n := range hosts {
		if h, answered := v.Hosts[n]; answered {
			want.GPUs[n] = d.Fleet.SelectForForecast(want.Kind, n, h, s.Selector)
		}
	}
	m.forecast(d, v, change.Change{Subject: DataSourceType, Want: gpu.Want{Config: &want}})
	diags.Append(resp.State.Set(ctx, &m)...)
}

// forecast fills in what a change does to the hosts of a view.
func (m *model) forecast(d *DataSource, v fleet.View, p change.Change) {
	run := d.foresee(v, p, m.Assignments)
	m.GPUs, m.VMs, m.Violations, m.Effects, m.Resets, m.Seats = []gpuModel{}, []vmModel{}, []violationModel{}, run.vms, run.resets, run.seats
	for _, f := range d.Fleet.Forecasts(v, p) {
		for _, g := range f.GPUs {
			m.GPUs = append(m.GPUs, describe(f.Host, g))
		}
		for _, s := range f.Stops {
			vm := vmModel{Host: f.Host, VM: s.Name, VMID: s.VM, Allowed: true}
			if why := f.KeptOn(s.VM); why != nil {
				vm.Allowed, vm.Reason = false, why.Found()
			}
			m.VMs = append(m.VMs, vm)
		}
	}
	feasible := run.allowed
	for _, f := range d.Fleet.CheckAlone(v, p) {
		feasible = feasible && f.Level != rules.Error
		m.Violations = append(m.Violations, violationModel{
			Rule: f.Rule, Level: string(f.Level), Host: f.Host, GPUID: f.GPU, VM: f.VM, Found: f.Found, Wanted: f.Wanted, Fix: f.Fix,
		})
	}
	m.Disruption, m.Feasible = types.StringValue(string(run.class)), types.BoolValue(feasible)
}

func describe(host string, g change.GPUEffect) gpuModel {
	out := gpuModel{Host: host, GPUID: g.GPU, Model: g.Model, Holders: append([]string{}, g.InTheWay...)}
	if p := g.Partitions; p != nil {
		out.From, out.To, out.PartitionVRAMMiB, out.Holders = new(int64(p.From)), new(int64(p.To)),
			object.MiBIfKnown(p.VRAM),
			append([]string{}, p.Holders...)
	}
	if m := g.MIG; m != nil {
		out.MIG = &migModel{
			From: m.From.String(), To: m.To.String(), Resets: m.Resets,
			Keeps: layout.Placements(m.Keeps), Removes: layout.Placements(m.Removes), Creates: layout.Placements(m.Creates),
		}
		if m.ChangesMode() {
			out.MIG.Mode = switched(!m.To.Enabled, m.To.Enabled)
		}
	}
	if c := g.VGPU; c != nil {
		out.VGPU = &vgpuModel{
			From: c.From.String(), To: c.To.String(),
			Functions: switched(c.From.FunctionsOn, c.To.FunctionsOn), Heterogeneous: switched(c.From.Heterogeneous, c.To.Heterogeneous),
			Keeps: layout.Places(c.Keeps), Removes: layout.Places(c.Removes), Creates: layout.Places(c.Creates),
		}
	}
	if c := g.Sharing; c != nil {
		out.Holders = append(out.Holders, c.Ends()...)
		out.Sharing = describeSharing(c)
	}
	return out
}

// switched is "on" or "off" for a mode that changes, else nil.
func switched(from, to bool) *string {
	if from == to {
		return nil
	}
	return new(map[bool]string{true: "on", false: "off"}[to])
}

func places(text string) schema.Attribute {
	return tfschema.ComputedList(text, tfschema.Attributes{
		"type":     tfschema.ComputedText("The vGPU's type."),
		"function": tfschema.ComputedNumber("The index of its virtual function; null for a vGPU on the GPU itself."),
	})
}

func placements(text string) schema.Attribute {
	return tfschema.ComputedList(text, tfschema.Attributes{
		"profile": tfschema.ComputedText(layout.ProfileText),
		"start":   tfschema.ComputedNumber(layout.StartText),
	})
}
