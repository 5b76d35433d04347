// Package pool is the resource gpu_pool and the data source of the same name: a named set
// of GPUs over hosts. VMs of a cluster have its GPUs whole, and on Linux hosts shares are
// drawn from it.
package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
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
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/drift"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/duration"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_pool"

const (
	onDestroyKeep      = "keep"
	onDestroyMountBack = "mount_back"
	// perHost bounds the work on one host.
	perHost = 20 * time.Minute
)

var (
	_ resource.ResourceWithConfigure        = (*Resource)(nil)
	_ resource.ResourceWithConfigValidators = (*Resource)(nil)
	_ resource.ResourceWithIdentity         = (*Resource)(nil)
	_ resource.ResourceWithImportState      = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan       = (*Resource)(nil)
)

// Resource is gpu_pool.
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
		"cluster": identityschema.StringAttribute{Description: "The cluster that the pool was declared for.", OptionalForImport: true},
		"host":    identityschema.StringAttribute{Description: "The first host of the pool, when it was not declared for a cluster.", OptionalForImport: true},
		"name":    identityschema.StringAttribute{Description: "The pool's name.", RequiredForImport: true},
	}}
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Gathers GPUs under one name over hosts.\n\n" +
			"On Hyper-V hosts its GPUs are given whole to virtual machines by Discrete Device Assignment (DDA). " +
			"A clustered VM that draws from a pool finds the pool of the same name on the node that it fails over to. " +
			"The GPUs are dismounted from their hosts. A GPU is either in a pool or partitioned, never both.\n\n" +
			"On Linux hosts `gpu_share` draws from a pool, within its `quotas`. All its GPUs are shared in the same way. The pool is a record on each host: " +
			"nothing is dismounted, and what a GPU is partitioned into is the business of `gpu_partition_config`.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "The cluster, or else the first host, and the name: `azl-vdi/render`. Known at the first plan; `gpu_vm_assignment` and `gpu_share` refer to it.",
				Computed:            true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				MarkdownDescription: "The pool's name on the hosts; not `Primordial`, which is Hyper-V's own. Changing this forces a new resource.",
				Required:            true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
				Validators: []validator.String{stringvalidator.LengthBetween(1, 256), stringvalidator.NoneOfCaseInsensitive("primordial")},
			},
			"members": schema.MapAttribute{
				MarkdownDescription: "The pool's GPUs, by host. One of `members`, `hosts` and `cluster` is required.",
				ElementType:         memberType, Optional: true, Validators: []validator.Map{mapvalidator.SizeAtLeast(1), scope.GPUIDValidator()},
			},
			"hosts": schema.SetAttribute{
				MarkdownDescription: "Hosts, as the provider names them, whose GPUs the `selector` chooses.",
				ElementType:         types.StringType, Optional: true, Validators: scope.HostValidators(),
			},
			"cluster": schema.StringAttribute{
				MarkdownDescription: "A failover cluster: all of the provider's hosts that are its nodes.",
				Optional:            true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"selector": schema.SingleNestedAttribute{
				MarkdownDescription: "Narrows the GPUs of `hosts` or `cluster`. Without it every known GPU is taken that is not partitioned by a config, not in another pool, " +
					"not held by a VM, and not the host's own display; on Linux hosts every NVIDIA GPU that works and is not in another pool.",
				Optional: true, Attributes: scope.SelectorAttributes(),
				Validators: []validator.Object{objectvalidator.ConflictsWith(path.MatchRoot("members"))},
			},
			"dismount": scope.Dismount(" Only for pools on Hyper-V hosts."),
			"quotas":   quotasAttribute(),
			"on_destroy": schema.StringAttribute{
				MarkdownDescription: "What becomes of a GPU that leaves the pool: `keep` (the default) leaves it dismounted, `mount_back` mounts it on its host, whoever dismounted it. " +
					"A destroy deletes the pool in either case, by the value of the last apply, and fails while VMs or shares use the pool. Linux hosts support `keep` only.",
				Optional: true, Validators: []validator.String{stringvalidator.OneOf(onDestroyKeep, onDestroyMountBack)},
			},
			"timeouts": duration.Timeouts(ctx, timeoutText),
			"gpus": schema.MapAttribute{
				MarkdownDescription: "The GPUs in the pool, by host and GPU id:\n" +
					"  - `model` (String)\n" +
					"  - `address` (String) PCI address. Linux only.\n" +
					"  - `vram_mib` (Number) Memory, in MiB.",
				ElementType: gpusOfHostType, Computed: true,
			},
			"drift": drift.Attribute("Where the hosts differ"),
		},
	}
}

const timeoutText = "Time for each host, from when its turn comes, as a duration such as `\"10m\"`. Default `20m`."

// ConfigValidators implements resource.ResourceWithConfigValidators.
func (r *Resource) ConfigValidators(context.Context) []resource.ConfigValidator {
	return []resource.ConfigValidator{
		resourcevalidator.ExactlyOneOf(path.MatchRoot("members"), path.MatchRoot("hosts"), path.MatchRoot("cluster")),
	}
}

func label(id string) string { return fmt.Sprintf("%s %q", ResourceType, id) }

// ModifyPlan makes the id, decides whether the hosts have to be touched, and proves
// the plan against the hosts and the rest of this run.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.fleet == nil {
		return // the validate walk
	}
	var plan model
	var state *model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if req.Plan.Raw.IsNull() {
		r.planDestroy(ctx, req, state.prior(ctx, &resp.Diagnostics), resp)
		return
	}
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	inst := r.fleet.Ledger.Instance(instance.Ledger(ctx, req.Private))
	resp.Diagnostics.Append(instance.SetLedger(ctx, resp.Private, inst)...)

	want, known := plan.declared(ctx, &resp.Diagnostics)
	if known && plan.ID.IsUnknown() {
		want.ID = poolID(want.Scope, want.Members, want.Name)
		plan.ID = types.StringValue(want.ID)
	}
	prior := state.prior(ctx, &resp.Diagnostics)
	switch replaced := r.fleet.Ledger.Prior(inst).Pool; {
	case state == nil:
		r.planDestroy(ctx, req, replaced, resp)
	case !plan.Name.Equal(state.Name):
		r.planDestroy(ctx, req, prior, resp)
	}
	differs := state.drifted(ctx, &resp.Diagnostics)
	unchanged := state != nil && known && len(differs) == 0 && plan.Members.Equal(state.Members) && plan.Hosts.Equal(state.Hosts) &&
		plan.Cluster.Equal(state.Cluster) && plan.Selector.Equal(state.Selector) && plan.Name.Equal(state.Name) &&
		plan.Quotas.Equal(state.Quotas) // the hosts keep them, for the shares of other states
	if unchanged {
		plan.GPUs, plan.Drift = state.GPUs, state.Drift
	} else {
		plan.GPUs, plan.Drift = types.MapUnknown(gpusOfHostType), object.None(drift.Type)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !known || r.fleet.Unknown() {
		r.fleet.Ledger.Forget(inst) // its checks wait until apply
		return
	}

	p := change.Change{Subject: label(want.ID), Token: instance.Token(ctx, req.Private), Unchanged: unchanged}
	p.Adopt = state != nil && p.Token == ""
	var view fleet.View
	if unchanged {
		want.Members = prior.Members
		view = r.fleet.Seen() // a change of policy alone asks nobody
	} else {
		hosts, v, ok := r.hosts(ctx, want, &resp.Diagnostics)
		if !report.Unreachable(&resp.Diagnostics, r.fleet, p.Subject, v, state.held(ctx, &resp.Diagnostics)...) || !ok || resp.Diagnostics.HasError() {
			r.fleet.Ledger.Forget(inst)
			return
		}
		choose(&want, hosts, v)
		view = v
		if prior != nil { // hosts that leave matter as well
			view = v.With(r.fleet.Look(ctx, slices.Sorted(maps.Keys(prior.Members))))
		}
	}
	p.Want.Pool, p.Prior.Pool = &want, prior
	findings, does := r.fleet.Record(inst, view, p)
	report.Findings(&resp.Diagnostics, p.Subject, slices.Concat(findings, r.fleet.Elsewhere(ctx, view, p)))
	report.Drift(&resp.Diagnostics, r.fleet, view, p, "Pool differs", differs)
	if !unchanged {
		report.Disturbs(&resp.Diagnostics, r.fleet, path.Empty(), view, p, does)
	}
}

// planDestroy proves that the pool can be taken from its hosts.
func (r *Resource) planDestroy(ctx context.Context, req resource.ModifyPlanRequest, prior *gpu.PoolConfig, resp *resource.ModifyPlanResponse) {
	if prior == nil || r.fleet.Unknown() {
		return
	}
	names := slices.Sorted(maps.Keys(prior.Members))
	view := r.fleet.Look(ctx, r.fleet.Peers(r.fleet.Look(ctx, names), names))
	report.Destroy(ctx, r.fleet, path.Empty(), view, req, resp, change.Change{Subject: label(prior.ID), Prior: gpu.Want{Pool: prior}})
}

// hosts resolves the hosts that a pool is declared for, and looks at them.
func (r *Resource) hosts(ctx context.Context, c gpu.PoolConfig, diags *diag.Diagnostics) ([]string, fleet.View, bool) {
	if c.Members == nil {
		return scope.Hosts(ctx, r.fleet, c.Scope, diags)
	}
	names := slices.Sorted(maps.Keys(c.Members))
	for _, n := range names {
		if !r.fleet.Has(n) {
			diags.AddAttributeError(path.Root("members"), "Unknown host", fmt.Sprintf(
				"Found: %q is not a host of the provider, which knows %v.\nFix: correct the name, or add the host to the provider's configuration.", n, r.fleet.HostNames()))
		}
	}
	if diags.HasError() {
		return nil, fleet.View{}, false
	}
	v := r.fleet.Look(ctx, r.fleet.Peers(r.fleet.Look(ctx, names), names))
	return names, v, true
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
	if !r.apply(ctx, "create the pool", &plan, nil, change.Change{Token: token}, timeout, &resp.Diagnostics) {
		return
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, plan.identity(r.fleet))...)
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
		imported := token == ""
		if imported {
			token = instance.NewToken()
		}
		timeout, d := plan.Timeouts.Update(ctx, perHost)
		resp.Diagnostics.Append(d...)
		if !r.apply(ctx, "change the pool", &plan, &state, change.Change{Token: token, Adopt: imported}, timeout, &resp.Diagnostics) {
			return
		}
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(keepIdentity(ctx, req.Identity, resp.Identity, plan.identity(r.fleet))...)
}

// apply makes the plan real and fills in its computed attributes. It returns false
// when nothing of the change stands.
func (r *Resource) apply(ctx context.Context, doing string, plan, state *model, ch change.Change, timeout time.Duration, diags *diag.Diagnostics) bool {
	want, known := plan.declared(ctx, diags)
	if !known || diags.HasError() {
		diags.AddError("Could not "+doing, "A value is still unknown at apply. This is a bug in the provider; please report it.")
		return false
	}
	hosts, view, ok := r.hosts(ctx, want, diags)
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
	declared := want
	choose(&want, hosts, view)
	ch.Subject, ch.Want.Pool = label(want.ID), &want
	req := fleet.Request{
		Change: ch, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}
	if prior := state.prior(ctx, diags); prior != nil {
		prior.MountBack = want.MountBack // what becomes of a GPU that leaves is the plan's business
		req.Prior.Pool = prior
	}
	if diags.HasError() {
		return false
	}
	res, err := r.fleet.Apply(ctx, req)
	if err != nil {
		report.Failure(diags, doing, req.Subject, err)
		if !want.Force {
			report.NeedsForce(diags, path.Root("dismount"), req.Subject, err)
		}
		var failure *fleet.Failure
		if !errors.As(err, &failure) || failure.Clean() {
			return false
		}
		res = &failure.Result
	}
	report.Skipped(diags, req.Subject, res.Skipped)
	plan.GPUs = types.MapNull(gpusOfHostType)
	if state != nil {
		plan.GPUs = state.GPUs
	}
	plan.observe(ctx, declared, hosts, r.fleet.Look(ctx, hosts), diags)
	if !diags.HasError() {
		plan.Drift = object.None(drift.Type) // as it was planned: what differs by now, the next Read says
	}
	return true
}

// Read implements resource.Resource.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	r.fleet.Ledger.Met(instance.Token(ctx, req.Private))
	imported := state.Members.IsNull() && state.Hosts.IsNull() && state.Cluster.IsNull()
	if !imported {
		resp.Diagnostics.Append(keepIdentity(ctx, req.Identity, resp.Identity, state.identity(r.fleet))...)
	}
	if r.fleet.Unknown() {
		return
	}
	if imported {
		r.readImported(ctx, &state, &resp.Diagnostics)
		if resp.Diagnostics.HasError() {
			return
		}
		resp.Diagnostics.Append(resp.Identity.Set(ctx, state.identity(r.fleet))...)
	}
	c, _ := state.declared(ctx, &resp.Diagnostics)
	hosts, view := r.look(ctx, c)
	if !report.Unreachable(&resp.Diagnostics, r.fleet, label(c.ID), view, state.held(ctx, &resp.Diagnostics)...) {
		return
	}
	view = view.Except(func(h *gpu.Host) (gpu.Unknown, bool) {
		var members []string
		if claim, ok := h.Claim(gpu.ClaimPool, c.Name); ok {
			members = claim.GPUs
		}
		return h.Concerning("", members, gpu.PartPools)
	})
	if view.Recorded() && !slices.ContainsFunc(hosts, func(n string) bool { _, ok := onHost(view.Hosts[n], c.Name); return ok }) {
		resp.State.RemoveResource(ctx) // every host has answered that it has no such pool
		return
	}
	choose(&c, hosts, view) // and to be on no host to which a run that ended early has given it
	more, view := r.fleet.Begun(ctx, view, gpu.ClaimPool, c.Name, instance.Token(ctx, req.Private))
	state.observe(ctx, c, slices.Concat(hosts, more), view, &resp.Diagnostics)
	records := map[string]*gpu.Claim{}
	for _, n := range hosts {
		if h, answered := view.Hosts[n]; answered {
			records[n], _ = h.Claim(gpu.ClaimPool, c.Name)
		}
	}
	state.Drift = drift.Records(ctx, req.Private, r.fleet.Owner(), records, state.Drift, &resp.Diagnostics)
	if instance.Token(ctx, req.Private) == "" {
		for _, n := range hosts {
			if h, ok := view.Hosts[n]; ok {
				for _, cl := range h.Claims {
					if cl.Is(gpu.ClaimPool, c.Name) && cl.Owner == r.fleet.Owner() {
						resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, cl.Token)...)
					}
				}
			}
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// keepIdentity carries an identity that is known, and sets one where the version of
// Terraform does not: it names where the pool was declared first, and may not change.
func keepIdentity(ctx context.Context, known, next *tfsdk.ResourceIdentity, is identityModel) diag.Diagnostics {
	if known != nil && !known.Raw.IsFullyNull() {
		return nil
	}
	return next.Set(ctx, is)
}

// look takes the hosts of a pool as the state has it: a host that the provider no
// longer knows is in the view as one that does not answer.
func (r *Resource) look(ctx context.Context, c gpu.PoolConfig) ([]string, fleet.View) {
	switch {
	case c.Members != nil:
		hosts := slices.Sorted(maps.Keys(c.Members))
		return hosts, r.fleet.Look(ctx, hosts)
	case c.Scope.Cluster != "":
		members, unknown := r.fleet.ClusterHosts(r.fleet.LookAll(ctx), c.Scope.Cluster)
		hosts := slices.Concat(members, unknown)
		return hosts, r.fleet.Look(ctx, hosts)
	default:
		return c.Scope.Hosts, r.fleet.Look(ctx, c.Scope.Hosts)
	}
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
	res, err := r.fleet.Apply(ctx, fleet.Request{
		Change: change.Change{Subject: label(prior.ID), Token: token, Adopt: token == "", Approved: instance.Approved(ctx, req.Private), Prior: gpu.Want{Pool: prior}}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	})
	if err != nil {
		report.Failure(&resp.Diagnostics, "destroy the pool", label(prior.ID), err)
		return
	}
	report.Skipped(&resp.Diagnostics, label(prior.ID), res.Skipped)
}
