// Package pool is the resource gpu_pool and the data source of the same name: a named set
// of GPUs over hosts. VMs of a cluster have its GPUs whole, and on Linux hosts shares are
// drawn from it.
package pool

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
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

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_pool"

const (
	onDestroyKeep      = "keep"
	onDestroyMountBack = "mount_back"
	// perHost bounds the work on one host.
	perHost = 20 * time.Minute
)

var _ lifecycle.Managed = (*Resource)(nil)

// Resource is gpu_pool.
type Resource struct{ lifecycle.Shell[model] }

// New makes the resource.
func New() resource.Resource { return of(nil) }

func of(f *fleet.Fleet) *Resource {
	r := &Resource{}
	r.Fleet, r.Of = f, lifecycle.Parts[model]{
		Type: ResourceType, Creating: "create the pool", Changing: "change the pool", Destroying: "destroy the pool", Differs: "Pool differs",
		Limit: perHost, DisturbsAt: path.Empty(), Policy: []string{"dismount", "on_destroy", "timeouts"},
		Timeouts: func(m *model) timeouts.Value { return m.Timeouts },
		Drift:    func(m *model) *types.List { return &m.Drift },
		Label:    func(w gpu.Want) string { return label(w.Pool.ID) },
		Prior:    prior, Identify: r.identify,
		Planner: lifecycle.Planner[model]{
			Declare: r.declare, Compute: r.compute, Wait: r.wait, Hold: r.hold, Choose: r.choose,
			Around: func(ctx context.Context, _ *planning, prior gpu.Want) fleet.View {
				return r.Fleet.Snapshot(ctx, slices.Sorted(maps.Keys(prior.Pool.Members)), fleet.WithClusterPeers)
			},
		},
		Touches: func(c *lifecycle.Call[model]) bool { return c.Plan.GPUs.IsUnknown() },
		Apply:   r.apply, Read: r.read,
		Destroy: func(ctx context.Context, c *lifecycle.Call[model]) { r.Carry(ctx, c) },
	}
	return r
}

type planning = lifecycle.Planning[model]

// IdentitySchema implements resource.ResourceWithIdentity.
func (r *Resource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"cluster": identityschema.StringAttribute{Description: "The cluster that the pool was declared for.", OptionalForImport: true},
		"host": identityschema.StringAttribute{
			Description:       "The first host of the pool, when it was not declared for a cluster.",
			OptionalForImport: true,
		},
		"name": identityschema.StringAttribute{Description: "The pool's name.", RequiredForImport: true},
	}}
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Gathers GPUs under one name over hosts.\n\n" +
			"On Hyper-V hosts its GPUs are given whole to virtual machines by Discrete Device Assignment (DDA). " +
			"A clustered VM that draws from a pool finds the pool of the same name on the node that it fails over to. " +
			"The GPUs are dismounted from their hosts. A GPU is either in a pool or partitioned, never both.\n\n" +
			"On Linux hosts `gpu_share` draws from a pool, within its `quotas`. All its GPUs are shared in the same way. " +
			"The pool is a record on each host: nothing is dismounted, and what a GPU is partitioned into is the business of " +
			"`gpu_partition_config`.",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				MarkdownDescription: "The cluster, or else the first host, and the name: `azl-vdi/render`. Known at the first plan; " +
					"`gpu_vm_assignment` and `gpu_share` refer to it.",
				Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"name": schema.StringAttribute{
				MarkdownDescription: "The pool's name on the hosts; not `Primordial`, which is Hyper-V's own. Changing this forces a new resource.",
				Required:            true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
				Validators: []validator.String{stringvalidator.LengthBetween(1, 256), stringvalidator.NoneOfCaseInsensitive("primordial")},
			},
			"members": tfschema.OptionalMapOf(memberType, "The pool's GPUs, by host. One of `members`, `hosts` and `cluster` is required. "+
				"`{}` beside `hosts` or `cluster` is none.", tfschema.Nonempty{
				Fix: "Name a host and its GPUs, or `hosts` or a `cluster`.", Unless: []string{"hosts", "cluster"},
			}, scope.GPUIDValidator()),
			"hosts": tfschema.OptionalSetOf(types.StringType, "Hosts, as the provider names them, whose GPUs the `selector` chooses. "+
				"`[]` beside `members` or `cluster` is none.", scope.SomeNames(tfschema.Nonempty{
				Fix: "Name a host, or `members` or a `cluster`.", Unless: []string{"members", "cluster"},
			})...),
			"cluster": tfschema.OptionalText("A failover cluster: all of the provider's hosts that are its nodes.",
				stringvalidator.LengthAtLeast(1)),
			"selector": schema.SingleNestedAttribute{
				MarkdownDescription: "Narrows the GPUs of `hosts` or `cluster`. Without it every known GPU is taken that is not partitioned by a " +
					"config, not in another pool, not held by a VM, and not the host's own display; on Linux hosts every NVIDIA GPU that works and " +
					"is not in another pool.",
				Optional: true, Attributes: scope.SelectorAttributes(),
				Validators: []validator.Object{tfschema.WhileFilled{
					Object: objectvalidator.ConflictsWith(path.MatchRoot("members")), Beside: "members",
				}},
			},
			"dismount": scope.Dismount(" Only for pools on Hyper-V hosts."),
			"quotas":   quotasAttribute(),
			"on_destroy": tfschema.OptionalText("What becomes of a GPU that leaves the pool: `keep` (the default) leaves it dismounted, "+
				"`mount_back` mounts it on its host, whoever dismounted it. "+
				"A destroy deletes the pool in either case, by the value of the last apply, and fails while VMs or shares use the pool. "+
				"Linux hosts support `keep` only.",
				stringvalidator.OneOf(onDestroyKeep, onDestroyMountBack)),
			"timeouts": tfschema.Timeouts(ctx, timeoutText),
			"gpus":     tfschema.ComputedMap("The GPUs in the pool, by host.", hostAttributes()),
			"drift":    report.DriftAttribute("Where the hosts differ"),
		},
	}
}

func hostAttributes() tfschema.Attributes {
	return tfschema.Attributes{"gpus": tfschema.ComputedMap("The host's GPUs in the pool, by GPU id.", tfschema.Attributes{
		"model":    tfschema.ComputedText("Model, as the driver names it."),
		"address":  tfschema.ComputedText("PCI address. Linux only."),
		"vram_mib": tfschema.ComputedNumber("Memory, in MiB."),
	})}
}

const timeoutText = "Time for each host, from when its turn comes, as a duration such as `\"10m\"`. Default `20m`."

// ConfigValidators implements resource.ResourceWithConfigValidators.
func (r *Resource) ConfigValidators(context.Context) []resource.ConfigValidator {
	return []resource.ConfigValidator{
		tfschema.ExactlyOne{"members", "hosts", "cluster"},
	}
}

func label(id string) string { return fmt.Sprintf("%s %q", ResourceType, id) }

// declare makes the id, and plans the destroy of a pool that is replaced by one of its name.
func (r *Resource) declare(ctx context.Context, p *planning) bool {
	want, plan, state := gpu.PoolConfig{}, p.Plan, p.State
	if p.Known {
		want = plan.declared(ctx, &p.Resp.Diagnostics)
		if plan.ID.IsUnknown() || state != nil && !plan.Name.Equal(state.Name) {
			want.ID = poolID(want.Scope, want.Members, want.Name)
			plan.ID = types.StringValue(want.ID)
		}
	}
	p.Want = gpu.Want{Pool: &want}
	if replaced := r.Fleet.Ledger.Prior(p.Instance); state == nil && replaced.Pool != nil && gpu.SameID(replaced.Pool.ID, want.ID) {
		r.PlanDestroy(ctx, p, replaced)
	}
	return !p.Resp.Diagnostics.HasError()
}

func (r *Resource) compute(_ context.Context, p *planning) {
	p.Plan.GPUs, p.Plan.Drift = types.MapUnknown(hostType), report.NoDrift()
	if p.Unchanged {
		p.Plan.GPUs, p.Plan.Drift = p.State.GPUs, p.State.Drift
	}
}

func (r *Resource) wait(ctx context.Context, p *planning) {
	if p.State != nil && !p.Plan.Name.Equal(p.State.Name) {
		r.PlanDestroy(ctx, p, p.Prior)
	}
	r.Fleet.Ledger.Forget(p.Instance)
}

func (r *Resource) hold(_ context.Context, p *planning, _ fleet.View) {
	p.Want.Pool.Members = p.Prior.Pool.Members
}

// choose takes the pool's GPUs from its hosts. The hosts that leave the pool matter as well.
func (r *Resource) choose(ctx context.Context, p *planning, planned *change.Change) (fleet.View, bool) {
	want, prior, diags := p.Want.Pool, p.Prior.Pool, &p.Resp.Diagnostics
	hosts, view, ok := r.hosts(ctx, *want, p.Prior, diags)
	if !report.Unreachable(diags, r.Fleet, planned.Subject, view, p.State.held(ctx, diags)...) || !ok || diags.HasError() {
		return view, false
	}
	chooseMembers(want, cmp.Or(prior, r.Fleet.Ledger.Prior(p.Instance).Pool), hosts, view)
	if prior == nil {
		return view, true
	}
	if !gpu.SameID(prior.ID, want.ID) {
		p.Leaves = &p.Prior
	}
	view = view.With(r.Fleet.Snapshot(ctx, slices.Sorted(maps.Keys(prior.Members))))
	if p.Plan.selectsAs(p.State) {
		p.LeftOut = r.Fleet.LeaveOut(view, *planned)
	}
	return view, true
}

// hosts resolves the hosts that a pool is declared for, and looks at them.
func (r *Resource) hosts(
	ctx context.Context, c gpu.PoolConfig, prior gpu.Want, diags *diag.Diagnostics,
) ([]string, fleet.View, bool) {
	if c.Members == nil {
		has := scope.Has{}
		if was := prior.Pool; was != nil {
			has = scope.Has{Cluster: was.Scope.Cluster, Hosts: slices.Sorted(maps.Keys(was.Members))}
		}
		return scope.Hosts(ctx, r.Fleet, c.Scope, has, diags)
	}
	names := slices.Sorted(maps.Keys(c.Members))
	if !scope.Known(r.Fleet, names, path.Root("members"), diags) {
		return nil, fleet.View{}, false
	}
	return names, r.Fleet.Snapshot(ctx, names, fleet.WithClusterPeers), true
}

// apply makes the plan real and fills in its computed attributes. It returns false
// when nothing of the change is there.
func (r *Resource) apply(ctx context.Context, c *lifecycle.Call[model]) bool {
	want := c.Plan.declared(ctx, c.Diags)
	if c.Diags.HasError() {
		return false
	}
	c.Subject, c.Want.Pool = label(want.ID), &want
	hosts, view, ok := r.hosts(ctx, want, c.Prior, c.Diags)
	if !r.Answer(c, hosts, view, ok) {
		return false
	}
	declared := want
	chooseMembers(&want, c.Prior.Pool, hosts, view)
	if c.Prior.Pool != nil {
		c.Prior.Pool.MountBack = want.MountBack // what becomes of a GPU that leaves is the plan's business
		if c.Plan.selectsAs(c.State) {
			r.Fleet.LeaveOut(view, c.Change)
		}
	}
	_, done := r.Carry(ctx, c)
	if !want.Force {
		report.NeedsForce(c.Diags, path.Root("dismount"), c.Subject, c.Err)
	}
	if !done {
		return false
	}
	c.Plan.GPUs = types.MapNull(hostType)
	if c.State != nil {
		c.Plan.GPUs = c.State.GPUs
	}
	c.Plan.observe(ctx, declared, hosts, r.Fleet.Snapshot(ctx, hosts), c.Diags)
	return true
}

// read completes an import, and writes what the hosts have.
func (r *Resource) read(
	ctx context.Context, state *model, req resource.ReadRequest, resp *resource.ReadResponse,
) (claim *gpu.Claim, records map[string]*gpu.Claim, ok bool) {
	if state.imported() {
		r.readImported(ctx, state, &resp.Diagnostics)
		if resp.Diagnostics.HasError() {
			return nil, nil, false
		}
	}
	c := state.declared(ctx, &resp.Diagnostics)
	hosts, view := r.look(ctx, c, state.held(ctx, &resp.Diagnostics), &resp.Diagnostics)
	if !report.Unreachable(&resp.Diagnostics, r.Fleet, label(c.ID), view, state.held(ctx, &resp.Diagnostics)...) {
		return nil, nil, false
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
		return nil, nil, false
	}
	chooseMembers(&c, nil, hosts, view) // and to be on no host to which a run that ended early has given it
	more, view := r.Fleet.Begun(ctx, view, gpu.ClaimPool, c.Name, lifecycle.Token(ctx, req.Private))
	state.observe(ctx, c, slices.Concat(hosts, more), view, &resp.Diagnostics)
	records = map[string]*gpu.Claim{}
	for _, n := range hosts {
		if h, answered := view.Hosts[n]; answered {
			if records[n], ok = h.Claim(gpu.ClaimPool, c.Name); ok && records[n].Owner == r.Fleet.Owner() {
				claim = records[n]
			}
		}
	}
	return claim, records, true
}

// identify names where the pool was declared first, once an import is complete.
func (r *Resource) identify(ctx context.Context, known, next *tfsdk.ResourceIdentity, m *model) diag.Diagnostics {
	if m.imported() {
		return nil
	}
	return lifecycle.Identify(ctx, known, next, m.identity(r.Fleet))
}

// look takes the hosts of a pool as the state has it: a host that the provider no
// longer knows is in the view as one that does not answer.
func (r *Resource) look(
	ctx context.Context, c gpu.PoolConfig, has []string, diags *diag.Diagnostics,
) ([]string, fleet.View) {
	hosts := slices.Sorted(maps.Keys(c.Members))
	if c.Members == nil {
		hosts = scope.Stated(ctx, r.Fleet, c.Scope, has, diags)
	}
	return hosts, r.Fleet.Snapshot(ctx, hosts)
}
