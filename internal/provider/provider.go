// Package provider is the Terraform surface: the provider's configuration, and one
// package per resource and data source.
package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/acts"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/changeforecast"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/functions"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/gpuutilization"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/inventory"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/partitionconfig"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/partitionoptions"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/pool"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/share"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/vmassignment"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Address is the provider's source address in the public registry.
const Address = "registry.terraform.io/gpufleet/gpu"

// Environment variables that configure the provider where its block does not.
const (
	EnvSimulatedFleet    = "GPU_SIMULATED_FLEET"
	EnvInventorySnapshot = "GPU_INVENTORY_SNAPSHOT"
	EnvReadOnly          = "GPU_READ_ONLY"
	EnvPlanReport        = "GPU_PLAN_REPORT"
	EnvSSHUser           = "GPU_SSH_USER"
	EnvSSHPrivateKey     = "GPU_SSH_PRIVATE_KEY"
	EnvSSHPassword       = "GPU_SSH_PASSWORD"
)

const onUnreachableKeep = "keep"

type gpuProvider struct {
	version string
	observe Observer
	now     func() time.Time
	// patience is fleet.Options.Patience.
	patience time.Duration
	fleet    *fleet.Fleet // once configured
	// report is where the plan report goes, "" for nowhere.
	report string
	// stuck ends a process in which a call goes on that Terraform has stopped.
	stuck func()
}

var (
	_ provider.ProviderWithListResources = (*gpuProvider)(nil)
	_ provider.ProviderWithActions       = (*gpuProvider)(nil)
	_ provider.ProviderWithFunctions     = (*gpuProvider)(nil)
)

// Observer hears of each call to a host: the host's name and the method. Tests
// count calls with it.
type Observer func(host, method string)

// Option changes how a provider is made.
type Option func(*gpuProvider)

// WithClock gives the provider a clock to go by in place of the machine's.
func WithClock(now func() time.Time) Option { return func(p *gpuProvider) { p.now = now } }

// WithPatience is how long a change that finds no room waits while nothing else of its
// run is under way, in place of fleet.DefaultPatience, and how long a simulated host tries to
// start a VM that a change stopped, in place of the agent's own.
func WithPatience(d time.Duration) Option { return func(p *gpuProvider) { p.patience = d } }

// newProvider makes the provider. The observer may be nil.
func newProvider(version string, observe Observer, options ...Option) *gpuProvider {
	p := &gpuProvider{version: version, observe: observe, now: time.Now}
	for _, o := range options {
		o(p)
	}
	return p
}

// Framework makes the provider as the framework knows it, for servers of others: muxes and bridges.
func Framework(version string) provider.Provider { return newProvider(version, nil) }

// Close hangs up on all hosts. A plan ends with it, and is reported first.
func (p *gpuProvider) Close() error {
	if p.fleet == nil {
		return nil
	}
	return errors.Join(p.reportPlan(), p.fleet.Close())
}

type model struct {
	Hosts             types.Map    `tfsdk:"hosts"`
	SimulatedFleet    types.String `tfsdk:"simulated_fleet"`
	InventorySnapshot types.String `tfsdk:"inventory_snapshot"`
	MaxSnapshotAge    types.String `tfsdk:"max_snapshot_age"`
	Owner             types.String `tfsdk:"owner"`
	ReadOnly          types.Bool   `tfsdk:"read_only"`
	MaxParallelHosts  types.Int64  `tfsdk:"max_parallel_hosts"`
	OnUnreachable     types.String `tfsdk:"on_unreachable"`
	Rules             types.Map    `tfsdk:"rules"`
	Power             types.Object `tfsdk:"power"`
	MaxVMStops        types.Int64  `tfsdk:"max_concurrent_vm_stops"`
	MaintenanceWindow types.Object `tfsdk:"maintenance_window"`
	PlanReport        types.String `tfsdk:"plan_report"`
}

func (p *gpuProvider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "gpu", p.version
}

func (p *gpuProvider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Manages GPU sharing across a fleet of hosts: partitions, pools, VM assignments, and shares for containers. " +
			"Use one provider block for the whole fleet: resources of one block are checked against each other at plan.",
		Attributes: map[string]schema.Attribute{
			"hosts": schema.MapNestedAttribute{
				MarkdownDescription: "The hosts, by the name that resources use. In a cluster use the nodes' own names. `{}` is refused.",
				Optional:            true, Validators: []validator.Map{tfschema.Nonempty{Fix: "Configure a host, or leave `hosts` out, or null."}},
				NestedObject: schema.NestedAttributeObject{
					Attributes: hostAttributes(),
					Validators: []validator.Object{oneWay{"exactly one of local, simulated, ssh and tls"}},
				},
			},
			"simulated_fleet": tfschema.OptionalText("A fleet file: every host in it, simulated. Also from `"+EnvSimulatedFleet+"`, when neither "+
				"`hosts` nor `inventory_snapshot` is set.", stringvalidator.LengthAtLeast(1), stringvalidator.ConflictsWith(path.MatchRoot("hosts"),
				path.MatchRoot("inventory_snapshot"))),
			"inventory_snapshot": tfschema.OptionalText("A recorded inventory to plan against instead of the hosts themselves: every host in it. "+
				"Nothing can be applied. Also from `"+EnvInventorySnapshot+"`, "+
				"which takes the place of the hosts however they are configured.", stringvalidator.LengthAtLeast(1)),
			"max_snapshot_age": tfschema.OptionalText("How old a recorded inventory may be, such as `24h`: a plan on hosts that were recorded "+
				"earlier, or of which no time is recorded, is refused. "+
				"Default: any age; a plan on a recording says how old it is.", tfschema.PositiveDuration),
			"owner": tfschema.OptionalText("Names this Terraform state on the hosts, in 1 to 128 characters. "+
				"Terraform tells a provider neither the workspace nor an address, so this is the only name that a state has: "+
				"objects of the same owner may be taken over by a renamed or moved resource, objects of another owner are refused. "+
				"Use one name per state.", stringvalidator.LengthBetween(1, 128)),
			"read_only": tfschema.OptionalFlag("Refuses every change to a host. Default `false`. Where it is not set, also from `" +
				EnvReadOnly + "` (`1`, `true`, `0`, `false`)."),
			"max_parallel_hosts": tfschema.OptionalNumber(fmt.Sprintf("How many hosts are asked for their inventory at the same time. Default `%d`.",
				fleet.DefaultMaxParallelHosts), int64validator.AtLeast(1)),
			"on_unreachable": tfschema.OptionalText("When a host does not answer: `error` (the default) fails the resources that need it; "+
				"`keep` warns and keeps their state. "+
				"With `keep`, resources destroyed on such a host are removed from state without contacting it; the host's configuration stays as it "+
				"is. A silent host never counts as empty.",
				stringvalidator.OneOf("error", onUnreachableKeep)),
			"rules": tfschema.OptionalMapOf(types.StringType, "Levels of rules, by rule id: `error`, `warning` or `off`. `{}` is none. "+
				"The [guide on rules](guides/rules.md) lists them and says what no level lifts.",
				mapvalidator.KeysAre(aRule),
				mapvalidator.ValueStringsAre(stringvalidator.OneOf(string(rules.Error), string(rules.Warning), string(rules.Off)))),
			"power":              power.Attribute("These are the defaults for assignments that do not say otherwise, and for their destruction."),
			"maintenance_window": maintenanceWindowAttribute(),
			"plan_report": tfschema.OptionalText("A file for the [plan report](guides/approval.md): what this plan does to hosts, GPUs and VMs, as "+
				"a JSON document that `gpu-agent explain` reads. It is replaced when a plan ends, and an apply leaves it as it is. "+
				"Where it is a directory, each provider configuration writes a file of its own there. Also from `"+EnvPlanReport+"`.",
				stringvalidator.LengthAtLeast(1)),
			"max_concurrent_vm_stops": tfschema.OptionalNumber("How many VMs of one cluster, or of one host that stands alone, this run stops at "+
				"the same time. Default `1`. "+
				"The hosts of a rollout begin their turns within it. Assignments of VMs of one host are applied one after the other.\n\n"+
				"A change of a partition count stops all VMs that hold GPUs of a host together. If they are more, that host has its turn alone.",
				int64validator.AtLeast(1)),
		},
	}
}

// aRule accepts the ids of rules that have a level.
var aRule = tfschema.StringValidator{Must: "must be the id of a rule", Check: func(id string, at path.Path, diags *diag.Diagnostics) {
	ids := ruleIDs()
	if slices.Contains(ids, id) {
		return
	}
	instead := words.Instead(id, ids, "in the guide on rules")
	if len(words.Nearest(id, ids)) == 0 {
		instead = fmt.Sprintf("Ids are such as \"single-partition-per-vm\"; all %d are in the guide on rules.", len(ids))
	}
	diags.AddAttributeError(at, "Unknown rule",
		fmt.Sprintf("Found: rules has a level for %q, which is no rule that has one.\nFix: %s", id, instead))
}}

func ruleIDs() []string {
	var out []string
	for _, r := range rules.All() {
		if !r.Fixed {
			out = append(out, r.ID)
		}
	}
	return out
}

func (p *gpuProvider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var m model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	opt := fleet.Options{
		Owner: m.Owner.ValueString(), KeepUnreachable: m.OnUnreachable.ValueString() == onUnreachableKeep,
		MaxParallelHosts: int(m.MaxParallelHosts.ValueInt64()), MaxConcurrentVMStops: int(m.MaxVMStops.ValueInt64()),
		// What decides about hosts may be the result of another resource.
		Unknown: m.SimulatedFleet.IsUnknown() || m.InventorySnapshot.IsUnknown() || m.MaxSnapshotAge.IsUnknown() || m.Hosts.IsUnknown() ||
			m.Owner.IsUnknown() ||
			m.OnUnreachable.IsUnknown() || !object.Known(m.Power, m.Rules, m.MaintenanceWindow), // and these decide about what the hosts say
		PowerUnknown: !object.Known(m.Power),
		Levels:       rules.Levels{},
		Window:       decodeWindow(m.MaintenanceWindow, path.Root("maintenance_window"), &resp.Diagnostics), Now: p.now, Patience: p.patience,
	}
	if !opt.Unknown {
		levels := map[string]string{}
		resp.Diagnostics.Append(m.Rules.ElementsAs(ctx, &levels, false)...)
		for id, level := range levels {
			opt.Levels[id] = rules.Level(level)
		}
	}
	opt.Power = power.Decode(m.Power, opt.Power, &resp.Diagnostics)
	if readOnly(m, &resp.Diagnostics) {
		opt.ReadOnly = "the provider is read-only (read_only or " + EnvReadOnly + "), so nothing can be changed"
	}
	if !opt.Unknown && !resp.Diagnostics.HasError() {
		p.endpoints(ctx, m, &opt, &resp.Diagnostics)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if err := p.reportPlan(); err != nil { // of a run before, in a process that serves several
		resp.Diagnostics.AddWarning(notReported, err.Error())
	}
	p.report = p.whereToReport(m, &resp.Diagnostics)
	opt.Report = p.report != ""
	p.fleet = fleet.New(opt)
	resp.ResourceData, resp.DataSourceData, resp.ListResourceData, resp.ActionData = p.fleet, p.fleet, p.fleet, p.fleet
}

func readOnly(m model, diags *diag.Diagnostics) bool {
	if !m.ReadOnly.IsNull() {
		return m.ReadOnly.ValueBool()
	}
	text := os.Getenv(EnvReadOnly)
	if text == "" {
		return false
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		diags.AddError("Invalid environment variable", fmt.Sprintf("Found: %s is %q, but must be true or false.", EnvReadOnly, text))
	}
	return v
}

// endpoints works out which hosts there are and how to reach each.
func (p *gpuProvider) endpoints(ctx context.Context, m model, opt *fleet.Options, diags *diag.Diagnostics) {
	snapshot, at := m.InventorySnapshot.ValueString(), path.Root("inventory_snapshot")
	if snapshot == "" {
		snapshot = os.Getenv(EnvInventorySnapshot)
	}
	if snapshot != "" {
		opt.Hosts = p.recordedHosts(snapshot, m.MaxSnapshotAge, at, diags)
		opt.Recorded, opt.ReadOnly = true, fmt.Sprintf("the provider plans against the recorded inventory %s (inventory_snapshot or %s), "+
			"so nothing can be changed", snapshot, EnvInventorySnapshot)
		return
	}
	if !m.Hosts.IsNull() {
		opt.Hosts = p.configuredHosts(ctx, m.Hosts, diags)
		return
	}
	file, at := m.SimulatedFleet.ValueString(), path.Root("simulated_fleet")
	if file == "" {
		file = os.Getenv(EnvSimulatedFleet)
	}
	if file == "" {
		return // functions need no hosts; report.NoHosts tells what does
	}
	opt.Hosts = p.simulatedHosts(file, at, diags)
}

func (p *gpuProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{partitionconfig.New, pool.New, vmassignment.New, share.New}
}

// ListResources implements provider.ProviderWithListResources, for Terraform 1.14 and later.
func (p *gpuProvider) ListResources(context.Context) []func() list.ListResource {
	return []func() list.ListResource{partitionconfig.NewList, pool.NewList, vmassignment.NewList, share.NewList}
}

// Actions implements provider.ProviderWithActions, for Terraform 1.14 and later.
func (p *gpuProvider) Actions(context.Context) []func() action.Action {
	return []func() action.Action{acts.NewApplyPending, acts.NewPower, acts.NewDrain, acts.NewRestart}
}

func (p *gpuProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{inventory.New, partitionoptions.New, changeforecast.New, gpuutilization.New, pool.NewDataSource}
}

func (p *gpuProvider) Functions(context.Context) []func() function.Function {
	return []func() function.Function{
		functions.NewContainerUnit, functions.NewDevicePluginConfig, functions.NewDRAResources, functions.NewFit,
		functions.NewFromDevicePluginConfig, functions.NewFromMIGParted, functions.NewMIGPartedConfig, functions.NewSlurmGres,
	}
}
