// Package partitionconfig is the resource gpu_partition_config: one layout on a
// homogeneous set of GPUs across hosts.
package partitionconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/resourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/duration"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_partition_config"

const (
	onDestroyKeep    = "keep"
	onDestroyRestore = "restore"
	onFailureUndo    = "rollback"
	onFailureStop    = "stop"
	// perHost bounds the work on one host: stopping VMs takes minutes.
	perHost = 30 * time.Minute
)

var (
	_ resource.ResourceWithConfigure        = (*Resource)(nil)
	_ resource.ResourceWithConfigValidators = (*Resource)(nil)
	_ resource.ResourceWithIdentity         = (*Resource)(nil)
	_ resource.ResourceWithImportState      = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan       = (*Resource)(nil)
)

// Resource is gpu_partition_config.
type Resource struct{ fleet *fleet.Fleet }

// New makes the resource.
func New() resource.Resource { return &Resource{} }

// Metadata implements resource.Resource.
func (r *Resource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = ResourceType
}

// Configure implements resource.ResourceWithConfigure.
func (r *Resource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.fleet, _ = req.ProviderData.(*fleet.Fleet) // nil in the validate walk
}

// IdentitySchema implements resource.ResourceWithIdentity.
func (r *Resource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"id": identityschema.StringAttribute{Description: "The config's id: its name, or a digest of what it covers.", RequiredForImport: true},
	}}
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Splits a homogeneous set of GPUs, across one or several hosts, into equal partitions.\n\n" +
			"Every GPU that the selector covers gets the same partition count. Only what differs is touched. " +
			"What the hosts really have is in `gpus`; a difference from what is declared is in `drift` and is put right by the next apply.\n\n" +
			"All partitioned GPUs of a cluster should have the same count ([Microsoft](https://learn.microsoft.com/windows-server/virtualization/hyper-v/gpu-partitioning)), " +
			"so one config usually covers a cluster. A change that fails on one host is undone on all of them.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "`name`, or else a digest of the kind, the hosts or cluster, and the selector. Known at the first plan.",
				Computed:            true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				MarkdownDescription: "Names the config. Changing it makes a new config.",
				Optional:            true, Validators: []validator.String{stringvalidator.LengthBetween(1, 128)},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"hosts": schema.SetAttribute{
				MarkdownDescription: "Hosts, as the provider names them. One of `hosts` and `cluster` is required. A host that joins gets the layout; " +
					"one that leaves is treated as if the config were destroyed there.",
				ElementType: types.StringType, Optional: true, Validators: scope.HostValidators(),
			},
			"cluster": schema.StringAttribute{
				MarkdownDescription: "A failover cluster: all of the provider's hosts that are its nodes.",
				Optional:            true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"selector": schema.SingleNestedAttribute{
				MarkdownDescription: "Narrows the GPUs. Without it every GPU is covered that can be partitioned, is not dismounted, and is not in a pool or " +
					"another claim. A GPU that is inserted later is then drift, with a warning.",
				Optional: true, Attributes: scope.SelectorAttributes(),
			},
			"gpu_p": schema.SingleNestedAttribute{
				MarkdownDescription: "GPU-P: partitions that Hyper-V gives to virtual machines.",
				Optional:            true,
				Attributes: map[string]schema.Attribute{
					"partition_count": schema.Int64Attribute{
						MarkdownDescription: "Partitions per GPU. Only the counts that the GPU's driver offers are valid; data source `gpu_partition_options` lists " +
							"them with the memory that each partition gets.",
						Required: true, Validators: []validator.Int64{int64validator.Between(1, 1024)},
					},
				},
			},
			"max_disruption": schema.StringAttribute{
				MarkdownDescription: "How much a change may disturb what runs: " + disruptionText() + ". Default `none`. The count of a GPU that nobody " +
					"uses changes without disruption; one whose partitions VMs hold needs `vm_restart`, and each of those VMs' own assignment must allow " +
					"the shutdown as well.",
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(disruptionNames()...)},
			},
			"rollout": schema.SingleNestedAttribute{
				MarkdownDescription: "How a change goes through several hosts.",
				Optional:            true,
				Attributes: map[string]schema.Attribute{
					"max_unavailable": schema.Int64Attribute{
						MarkdownDescription: "How many hosts are changed at the same time. Default `1`.",
						Optional:            true, Validators: []validator.Int64{int64validator.AtLeast(1)},
					},
					"drain": schema.BoolAttribute{
						MarkdownDescription: "Default `false`. Before the count of a GPU changes whose partitions VMs hold, pause the cluster node and have the " +
							"cluster move its VMs to other nodes; then resume the node. It is done where every VM in the way is clustered and its partition " +
							"supports live migration; on other nodes VMs are stopped as `max_disruption` and their own assignments allow. VMs stay on the " +
							"nodes that they have moved to.",
						Optional: true,
					},
					"on_failure": schema.StringAttribute{
						MarkdownDescription: "When a host fails: `rollback` (the default) puts the hosts that were changed back as they were; `stop` leaves them " +
							"changed and goes no further.",
						Optional: true, Validators: []validator.String{stringvalidator.OneOf(onFailureUndo, onFailureStop)},
					},
				},
			},
			"on_destroy": schema.StringAttribute{
				MarkdownDescription: "`keep` (the default) leaves the partitions as they are; `restore` puts back the count that each GPU had when it joined, " +
					"and never stops a VM to do so. Destroying uses the value of the last apply.",
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(onDestroyKeep, onDestroyRestore)},
			},
			"timeouts": duration.Timeouts(ctx, timeoutText),
			"gpus": schema.MapAttribute{
				MarkdownDescription: "The GPUs that the config covers, by host and GPU id, each with its `model`, `layout` (such as `gpu_p:4`), " +
					"`partition_count` and `partition_vram_mib` as the host reports them.",
				ElementType: gpusOfHostType, Computed: true,
			},
			"partition_vram_mib": schema.Int64Attribute{
				MarkdownDescription: "Memory of one partition in MiB; null when the GPUs differ.", Computed: true,
			},
			"isolation": schema.StringAttribute{
				MarkdownDescription: "What separates two partitions: `hardware` for GPU-P, whose partitions are SR-IOV functions with memory of their own.",
				Computed:            true,
			},
			"drift": schema.ListAttribute{
				MarkdownDescription: "Where the hosts differ from what is declared, one sentence each. Empty after an apply.",
				ElementType:         types.StringType, Computed: true,
			},
		},
	}
}

const timeoutText = "Time for each host, from when its turn comes, as a duration such as `\"10m\"`. Default `30m`."

func disruptionNames() []string {
	var out []string
	for _, d := range gpu.Disruptions() {
		out = append(out, string(d))
	}
	return out
}

func disruptionText() string { return "`" + strings.Join(disruptionNames(), "` < `") + "`" }

// ConfigValidators implements resource.ResourceWithConfigValidators.
func (r *Resource) ConfigValidators(context.Context) []resource.ConfigValidator {
	return []resource.ConfigValidator{
		resourcevalidator.ExactlyOneOf(path.MatchRoot("hosts"), path.MatchRoot("cluster")),
		resourcevalidator.ExactlyOneOf(path.MatchRoot("gpu_p")),
	}
}

func label(id string) string { return fmt.Sprintf("%s %q", ResourceType, id) }

// ModifyPlan makes the id, decides whether the hosts have to be touched, and proves
// the plan against the hosts and the rest of this run.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.fleet == nil || req.Plan.Raw.IsNull() {
		return // the validate walk, or a destroy: nothing is claimed
	}
	var plan model
	var state *model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	inst := r.fleet.Ledger.Instance(instance.Ledger(ctx, req.Private))
	resp.Diagnostics.Append(instance.SetLedger(ctx, resp.Private, inst)...)

	want, known := plan.declared(ctx, &resp.Diagnostics)
	if known && plan.ID.IsUnknown() {
		id, err := configID(want)
		if err != nil {
			resp.Diagnostics.AddError("Could not name the partition config", err.Error())
			return
		}
		want.ID, plan.ID = id, types.StringValue(id)
	}
	plan.Isolation = types.StringValue(isolation)

	prior := state.prior(ctx, &resp.Diagnostics)
	drift := []string{}
	if state != nil {
		drift = state.drifted(ctx, &resp.Diagnostics)
	}
	unchanged := state != nil && known && len(drift) == 0 &&
		plan.Hosts.Equal(state.Hosts) && plan.Cluster.Equal(state.Cluster) && plan.Selector.Equal(state.Selector) &&
		plan.GPUP.Equal(state.GPUP) && plan.Name.Equal(state.Name)
	if unchanged {
		plan.GPUs, plan.PartitionVRAMMiB, plan.Drift = state.GPUs, state.PartitionVRAMMiB, state.Drift
	} else {
		plan.GPUs, plan.PartitionVRAMMiB, plan.Drift = types.MapUnknown(gpusOfHostType), types.Int64Unknown(), types.ListUnknown(types.StringType)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !known || r.fleet.Unknown() {
		r.fleet.Ledger.Forget(inst) // its checks wait until apply
		return
	}

	p := rules.Plan{Label: label(want.ID), Token: instance.Token(ctx, req.Private), Unchanged: unchanged}
	var view fleet.View
	if unchanged {
		want.GPUs = prior.GPUs
		view = r.fleet.Seen() // a change of policy alone asks nobody
	} else {
		hosts, v, ok := scope.Hosts(ctx, r.fleet, want.Scope, &resp.Diagnostics)
		if !report.Unreachable(&resp.Diagnostics, r.fleet, p.Label, v) || !ok || resp.Diagnostics.HasError() {
			r.fleet.Ledger.Forget(inst)
			return
		}
		if !r.allAnswer(hosts, v, p.Label, &resp.Diagnostics) {
			r.fleet.Ledger.Forget(inst)
			return
		}
		choose(&want, p.Token, hosts, v)
		view = v
		if prior != nil { // hosts that leave matter as well
			view = v.With(r.fleet.Look(ctx, slices.Sorted(maps.Keys(prior.GPUs))))
		}
	}
	if state != nil { // the second call for a replacement does not tell what is replaced
		r.fleet.Ledger.Reshape(want.ID, state.hasOtherCount(ctx, want.Count, &resp.Diagnostics))
	}
	p.Want.Config = &want
	p.Prior.Config = prior
	findings := r.fleet.Ledger.Record(inst, p, func(p rules.Plan) []rules.Finding { return r.fleet.Check(view, p) })
	report.Findings(&resp.Diagnostics, p.Label, findings)
	for _, d := range drift {
		resp.Diagnostics.AddWarning("Partitions differ from the declaration", fmt.Sprintf("%s\n\nFound: %s.\nThis apply puts it right.", p.Label, d))
	}
	if !unchanged && !resp.Diagnostics.HasError() {
		r.forecast(&resp.Diagnostics, view, p)
	}
}

// allAnswer refuses to change a layout while some of its hosts are silent, even when
// their state is kept otherwise: the cluster would end with two layouts.
func (r *Resource) allAnswer(hosts []string, v fleet.View, label string, diags *diag.Diagnostics) bool {
	ok := true
	for _, n := range hosts {
		err, silent := v.Errors[n]
		var notYet *fleet.NotYetKnownError
		if !silent || errors.As(err, &notYet) { // the latter answers at apply, or the apply refuses
			continue
		}
		ok = false
		diags.AddError("Layout cannot change while a host does not answer", fmt.Sprintf(
			"%s\n\nHost: %s\nFound: %v.\nWanted: a layout changes on all of its hosts or on none.\n"+
				"Fix: bring the host back, or take it out of this config.", label, n, err))
	}
	return ok
}

// forecast says, once per config, what the change will do to what runs and how
// large the partitions will be.
func (r *Resource) forecast(diags *diag.Diagnostics, v fleet.View, p rules.Plan) {
	text := r.fleet.Forecast(v, p)
	if text != "" {
		diags.AddWarning("What this change will do", p.Label+"\n\n"+text)
	}
}

// Create implements resource.Resource.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	r.fleet.Applying()
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	timeout, d := plan.Timeouts.Create(ctx, perHost)
	resp.Diagnostics.Append(d...)
	token := instance.NewToken()
	if !r.apply(ctx, "create the partition config", &plan, nil, token, timeout, &resp.Diagnostics) {
		return // nothing stands: no state
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{ID: plan.ID})...)
}

// Update implements resource.Resource.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	r.fleet.Applying()
	var plan, state model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	token := instance.Token(ctx, req.Private)
	if plan.GPUs.IsUnknown() {
		if token == "" { // imported, never claimed
			token = instance.NewToken()
		}
		timeout, d := plan.Timeouts.Update(ctx, perHost)
		resp.Diagnostics.Append(d...)
		if !r.apply(ctx, "change the partition config", &plan, &state, token, timeout, &resp.Diagnostics) {
			return // the framework keeps the prior state, which is what stands
		}
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{ID: plan.ID})...)
}

// apply makes the plan real and fills in its computed attributes. It returns false
// when nothing of the change stands.
func (r *Resource) apply(ctx context.Context, doing string, plan, state *model, token string, timeout time.Duration, diags *diag.Diagnostics) bool {
	want, known := plan.declared(ctx, diags)
	if !known || diags.HasError() {
		diags.AddError("Could not "+doing, "A value is still unknown at apply. This is a bug in the provider; please report it.")
		return false
	}
	hosts, view, ok := scope.Hosts(ctx, r.fleet, want.Scope, diags)
	if !ok {
		report.Unreachable(diags, r.fleet, label(want.ID), view)
		return false
	}
	for _, n := range hosts {
		if err, silent := view.Errors[n]; silent {
			report.Failure(diags, doing, label(want.ID), &fleet.Failure{Label: label(want.ID), Host: n, Err: err})
			return false
		}
	}
	choose(&want, token, hosts, view)
	req := fleet.Request{
		Label: label(want.ID), Token: token, Want: gpu.Want{Config: &want}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}
	if prior := state.prior(ctx, diags); prior != nil {
		prior.Restore = want.Restore // what a host that leaves is to be put back to is the plan's business
		req.Prior.Config = prior
	}
	plan.roll(ctx, &req, diags)
	if diags.HasError() {
		return false
	}
	res, err := r.fleet.Apply(ctx, req)
	if err != nil {
		report.Failure(diags, doing, req.Label, err)
		var failure *fleet.Failure
		if !errors.As(err, &failure) || failure.Clean() {
			return false
		}
		res = &failure.Result
	}
	report.Skipped(diags, req.Label, res.Skipped)
	// What the state knows stays for hosts that have not left yet.
	before := state.gpus(ctx, diags)
	for name := range res.Skipped {
		delete(before, name)
	}
	var d diag.Diagnostics
	plan.GPUs, d = types.MapValueFrom(ctx, gpusOfHostType, before)
	diags.Append(d...)
	plan.observe(ctx, want, hosts, r.fleet.Look(ctx, slices.Concat(hosts, slices.Collect(maps.Keys(before)))), diags)
	return true
}

// Read implements resource.Resource.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	// A version of Terraform that carries no identity wants one whatever comes of the read.
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{ID: state.ID})...)
	if resp.Diagnostics.HasError() || r.fleet.Unknown() {
		return
	}
	if state.GPUP.IsNull() {
		r.readImported(ctx, &state, &resp.Diagnostics)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	c, _ := state.declared(ctx, &resp.Diagnostics)
	hosts, view := r.look(ctx, c.Scope, state.gpus(ctx, &resp.Diagnostics))
	if !report.Unreachable(&resp.Diagnostics, r.fleet, label(c.ID), view) {
		return
	}
	state.warnLost(ctx, c, view, &resp.Diagnostics)
	state.observe(ctx, c, hosts, view, &resp.Diagnostics)
	state.Drift = instance.OtherOwner(ctx, req.Private, r.fleet.Owner(), view.Claims(hosts), state.Drift, &resp.Diagnostics)
	if token := instance.Token(ctx, req.Private); token == "" {
		if cl, ok := claimOf(view, c.ID, r.fleet.Owner()); ok {
			resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, cl.Token)...)
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{ID: state.ID})...)
}

// look takes the hosts of a scope as the state has it, and looks at those that the
// state lists besides: a host that the provider no longer knows is in the view as one
// that does not answer.
func (r *Resource) look(ctx context.Context, s gpu.Scope, listed map[string]map[string]gpuModel) ([]string, fleet.View) {
	hosts := s.Hosts
	if s.Cluster != "" {
		members, unknown := r.fleet.ClusterHosts(r.fleet.LookAll(ctx), s.Cluster)
		hosts = slices.Concat(members, unknown)
	}
	all := slices.Concat(hosts, slices.Collect(maps.Keys(listed)))
	slices.Sort(all)
	return hosts, r.fleet.Look(ctx, slices.Compact(all))
}

// Delete implements resource.Resource.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	r.fleet.Applying()
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	timeout, d := state.Timeouts.Delete(ctx, perHost)
	resp.Diagnostics.Append(d...)
	prior := state.prior(ctx, &resp.Diagnostics)
	token := instance.Token(ctx, req.Private)
	apply := fleet.Request{
		Label: label(prior.ID), Token: token, Adopt: token == "", Prior: gpu.Want{Config: prior}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}
	state.roll(ctx, &apply, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	res, err := r.fleet.Apply(ctx, apply)
	if err != nil {
		report.Failure(&resp.Diagnostics, "destroy the partition config", label(prior.ID), err)
		if prior.Restore {
			resp.Diagnostics.AddWarning("Destroying uses what was applied last", "To destroy without putting the GPUs back, first apply on_destroy = \"keep\".")
		}
		return
	}
	report.Skipped(&resp.Diagnostics, label(prior.ID), res.Skipped)
}

// claimOf finds a config's claim on any host.
func claimOf(v fleet.View, id, owner string) (gpu.Claim, bool) {
	for _, h := range v.Hosts {
		for _, c := range h.Claims {
			if c.Is(gpu.ClaimConfig, id) && c.Owner == owner {
				return c, true
			}
		}
	}
	return gpu.Claim{}, false
}
