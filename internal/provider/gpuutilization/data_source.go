// Package gpuutilization is the data source gpu_utilization: how busy GPUs are, how much
// of them is given out, and what could be given out otherwise.
package gpuutilization

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/connect"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// DataSourceType is the data source's name in configurations.
const DataSourceType = "gpu_utilization"

// EnvToken has a token for the Prometheus server where the configuration has none.
const EnvToken = "GPU_PROMETHEUS_TOKEN"

// EnvServer names the server that the token of EnvToken is for. A configuration, such as a pull request's, can then have
// it sent to no other.
const EnvServer = "GPU_PROMETHEUS_URL"

// Bounds and defaults.
const (
	minWindow, defaultWindow, maxWindow       = 100 * time.Millisecond, 2 * time.Second, agent.MaxWindow
	minLookback, defaultLookback, maxLookback = 2 * time.Hour, 168 * time.Hour, 8760 * time.Hour
)

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// DataSource is gpu_utilization.
type DataSource struct{ lifecycle.DataSource }

// New makes the data source.
func New() datasource.DataSource { return &DataSource{lifecycle.DataSource{Type: DataSourceType}} }

// Schema implements datasource.DataSource.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = describe()
}

// Read implements datasource.DataSource.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	diags := &resp.Diagnostics
	var m model
	diags.Append(req.Config.Get(ctx, &m)...)
	if diags.HasError() || !report.NotYet(diags, d.Fleet, DataSourceType, fleet.View{}) {
		return
	}
	server := decodePrometheus(ctx, m.Prometheus, diags)
	v := d.look(ctx, m.Hosts, diags)
	if diags.HasError() {
		return
	}
	wanted := object.Strings(ctx, m.GPUIDs, diags)
	hosts := d.choose(v, !m.Hosts.IsNull(), wanted, diags)
	if diags.HasError() {
		return
	}
	window := defaultWindow
	if !m.Window.IsNull() {
		window, _ = time.ParseDuration(m.Window.ValueString()) // it is valid
	}
	measured := d.Fleet.Utilization(ctx, hosts, window)
	silent := d.failures(measured, diags)
	if diags.HasError() {
		return
	}
	m.Prometheus, m.Utilization, m.Advice, m.Silent = server.stored(), map[string]hostModel{}, []hostAdviceModel{}, []string{}
	read := readings(v, measured, wanted)
	record := server.record(ctx, read, time.Now(), diags)
	if diags.HasError() {
		return
	}
	for _, r := range read {
		m.add(r, record)
	}
	m.Totals = new(total(read))
	m.Silent = append(m.Silent, slices.Sorted(slices.Values(slices.Concat(v.Silent(), silent)))...)
	diags.Append(resp.State.Set(ctx, &m)...)
}

// look takes the inventories of the hosts, which say what is given out.
func (d *DataSource) look(ctx context.Context, hosts types.Set, diags *diag.Diagnostics) fleet.View {
	names := scope.Named(ctx, d.Fleet, hosts, diags)
	if diags.HasError() {
		return fleet.View{}
	}
	v := d.Fleet.Snapshot(ctx, names)
	if report.NotYet(diags, d.Fleet, DataSourceType, v) {
		report.Unreachable(diags, d.Fleet, DataSourceType, v)
	}
	return v
}

// choose are the hosts to measure: those with Linux that have one of the wanted GPUs.
func (d *DataSource) choose(v fleet.View, named bool, wanted []string, diags *diag.Diagnostics) []string {
	var out, others []string
	missing := slices.Clone(wanted)
	for _, name := range slices.Sorted(maps.Keys(v.Hosts)) {
		h := v.Hosts[name]
		if h.Platform != gpu.Linux {
			others = append(others, name)
			continue
		}
		has := len(wanted) == 0
		missing = slices.DeleteFunc(missing, func(id string) bool {
			_, ok := h.GPU(id)
			has = has || ok
			return ok
		})
		if has {
			out = append(out, name)
		}
	}
	switch text := fmt.Sprintf("Hosts: %s\nFound: These are Hyper-V hosts. Windows does not report GPU utilization to the agent; "+
		"NVIDIA's driver on Linux does.", strings.Join(others, ", ")); {
	case len(others) == 0:
	case named:
		diags.AddAttributeError(path.Root("hosts"), "Hosts cannot be measured", text+"\nFix: Leave them out of hosts.")
	case len(wanted) == 0 && d.Fleet.Once("not measured: "+strings.Join(others, ", ")):
		diags.AddWarning("Hosts were not measured", text+"\nFix: Name the Linux hosts in hosts.")
	}
	// A host that does not answer may have it.
	if len(missing) > 0 && v.Complete() {
		diags.AddAttributeError(path.Root("gpu_ids"), "Unknown GPU", fmt.Sprintf(
			"Found: None of the hosts %s has a GPU %s.\nFix: Data source gpu_inventory lists the hosts' GPUs with their ids.",
			strings.Join(slices.Sorted(maps.Keys(v.Hosts)), ", "), strings.Join(missing, ", ")))
	}
	return out
}

// failures reports hosts that were not measured, and returns those that the provider may
// go on without.
func (d *DataSource) failures(m fleet.Measurements, diags *diag.Diagnostics) []string {
	var recorded []string
	away := fleet.View{Errors: map[string]error{}}
	for _, name := range slices.Sorted(maps.Keys(m.Errors)) {
		switch err := m.Errors[name]; {
		case errors.Is(err, fleet.ErrRecorded):
			recorded = append(recorded, name)
		case unreachable(err):
			away.Errors[name] = err
		default:
			diags.AddError("Host cannot be measured", fmt.Sprintf("%s\n\nHost: %s\n%s", DataSourceType, name, report.Explain(err)))
		}
	}
	if len(recorded) > 0 {
		diags.AddError("A recorded inventory cannot be measured", fmt.Sprintf(
			"%s\n\nHosts: %s\nFound: %v.\nFix: Read the data source with a provider that reaches the hosts, without inventory_snapshot.",
			DataSourceType, strings.Join(recorded, ", "), words.Capital(fleet.ErrRecorded.Error())))
	}
	report.Unreachable(diags, d.Fleet, DataSourceType, away)
	return away.Silent()
}

// unreachable tells whether a host did not answer, as opposed to answering that it cannot.
func unreachable(err error) bool {
	if _, ok := errors.AsType[*connect.Error](err); ok {
		return true
	}
	ae, ok := errors.AsType[*agent.Error](err)
	return ok && ae.Code == agent.Unavailable
}
