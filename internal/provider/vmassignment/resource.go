// Package vmassignment is the resource gpu_vm_assignment: one GPU partition, GPUs of
// a pool, or named devices, for one VM.
package vmassignment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/resourcevalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
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
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// ResourceType is the resource's name in configurations.
const ResourceType = "gpu_vm_assignment"

// perVM bounds the work on one VM: its shutdown, the change, its start.
const perVM = 20 * time.Minute

var (
	_ resource.ResourceWithConfigure        = (*Resource)(nil)
	_ resource.ResourceWithConfigValidators = (*Resource)(nil)
	_ resource.ResourceWithIdentity         = (*Resource)(nil)
	_ resource.ResourceWithImportState      = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan       = (*Resource)(nil)
)

// Resource is gpu_vm_assignment.
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
		"vm_id": identityschema.StringAttribute{Description: "The VM's id (GUID).", RequiredForImport: true},
	}}
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Gives a virtual machine one GPU partition, GPUs of a pool, or named GPUs.\n\n" +
			"A GPU is given and taken only while the VM is off: a VM that runs is shut down, if `power` allows it, and started again. " +
			"A VM that does not start with its GPU is put back exactly as it was. When a clustered VM moves to another node, nothing has to change.",
		Attributes: map[string]schema.Attribute{
			"vm": schema.StringAttribute{
				MarkdownDescription: "The VM's name or id (GUID). Refer to a VM resource's *id* if the VM is made in the same run: an id is unknown until the VM exists, " +
					"and its checks then wait for it, while a name that no host has is an error. Changing the reference replaces the assignment only " +
					"when it means another VM.",
				Required: true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"hosts": schema.SetAttribute{
				MarkdownDescription: "Where to look for the VM, when its name is not unique.",
				ElementType:         types.StringType, Optional: true, Validators: scope.HostValidators(),
			},
			"cluster": schema.StringAttribute{
				MarkdownDescription: "The cluster in which to look for the VM, when its name is not unique.",
				Optional:            true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"partition": schema.SingleNestedAttribute{
				MarkdownDescription: "One GPU partition. `partition = {}` takes any. The host chooses the GPU when the VM starts. " +
					"Exactly one of `partition`, `pool` and `device` is required.",
				Optional: true, Attributes: partitionAttributes(),
			},
			"pool": schema.SingleNestedAttribute{
				MarkdownDescription: "Whole GPUs of a pool (DDA). A clustered VM finds the pool of the same name on every node.",
				Optional:            true,
				Attributes: map[string]schema.Attribute{
					"id": schema.StringAttribute{MarkdownDescription: "The `id` of a `gpu_pool`.", Required: true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)}},
					"count": schema.Int64Attribute{
						MarkdownDescription: "How many GPUs of the pool. Default `1`.", Optional: true, Validators: []validator.Int64{int64validator.AtLeast(1)},
					},
				},
			},
			"device": schema.SingleNestedAttribute{
				MarkdownDescription: "Named whole GPUs of one host (plain DDA), for a VM that stays on that host. The GPUs are dismounted from the host if they are not yet, " +
					"and stay dismounted afterwards.",
				Optional: true,
				Attributes: map[string]schema.Attribute{
					"host":    schema.StringAttribute{MarkdownDescription: "The host, as the provider names it.", Required: true},
					"gpu_ids": schema.SetAttribute{MarkdownDescription: "The GPUs' ids.", ElementType: types.StringType, Required: true, Validators: []validator.Set{setvalidator.SizeAtLeast(1)}},
				},
			},
			"power": power.Attribute(),
			"low_memory_mapped_io_space_mib": schema.Int64Attribute{
				MarkdownDescription: "Memory-mapped IO space below 4 GiB in MiB. " + settingText, Optional: true, Validators: []validator.Int64{int64validator.Between(128, 3584)},
			},
			"high_memory_mapped_io_space_mib": schema.Int64Attribute{
				MarkdownDescription: "Memory-mapped IO space above 4 GiB in MiB. " + settingText, Optional: true, Validators: []validator.Int64{int64validator.AtLeast(0)},
			},
			"guest_controlled_cache_types": schema.BoolAttribute{MarkdownDescription: "Whether the guest controls cache types. " + settingText, Optional: true},
			"automatic_stop_action": schema.StringAttribute{
				MarkdownDescription: "What happens to the VM when its host shuts down: `turn_off`, `save` or `shut_down`. " + settingText,
				Optional:            true, Validators: []validator.String{stringvalidator.OneOf("turn_off", "save", "shut_down")},
			},
			"offline_action": schema.StringAttribute{
				MarkdownDescription: "What the cluster does with the VM when its resource goes offline: `turn_off`, `save`, `shut_down` or `force_shutdown`. A VM with a GPU " +
					"cannot be saved, so that `force_shutdown` lets it leave a node that drains. " + settingText,
				Optional: true, Validators: []validator.String{stringvalidator.OneOf("turn_off", "save", "shut_down", "force_shutdown")},
			},
			"timeouts": timeouts.Attributes(ctx, timeouts.Opts{
				Create: true, Update: true, Delete: true,
				CreateDescription: timeoutText, UpdateDescription: timeoutText, DeleteDescription: timeoutText,
			}),
			"vm_id": schema.StringAttribute{
				MarkdownDescription: "The VM's id.", Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"owner_host": schema.StringAttribute{MarkdownDescription: "The host that owns the VM now.", Computed: true},
			"gpu_ids": schema.SetAttribute{
				MarkdownDescription: "The GPUs that the VM holds now. Empty while a VM with a partition is off: the partition is chosen at its start.",
				ElementType:         types.StringType, Computed: true,
			},
			"partition_id":       schema.Int64Attribute{MarkdownDescription: "The number of the partition on its GPU, while the VM runs.", Computed: true},
			"partition_vram_mib": schema.Int64Attribute{MarkdownDescription: "The memory of the partition in MiB, while the VM runs.", Computed: true},
			"pending":            schema.BoolAttribute{MarkdownDescription: "Whether the assignment waits for the VM's next power-off (`power.when = \"next_off\"`).", Computed: true},
			"drift": schema.ListAttribute{
				MarkdownDescription: "Where the VM differs from what is declared, one sentence each. Empty after an apply.",
				ElementType:         types.StringType, Computed: true,
			},
		},
	}
}

const (
	settingText = "Written only when set; what it was before is recorded and put back when the assignment ends."
	timeoutText = "Time for the VM's shutdown, the change and its start, as a duration such as `\"10m\"`. Default `20m`."
)

func partitionAttributes() map[string]schema.Attribute {
	a := map[string]schema.Attribute{
		"config": schema.StringAttribute{
			MarkdownDescription: "The `id` of the `gpu_partition_config` that makes the partitions. It orders the two, and lets the plan prove that there is a partition for the VM.",
			Optional:            true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"vram_mib": schema.Int64Attribute{
			MarkdownDescription: "An assertion: the partition must have this much memory, in MiB.", Optional: true, Validators: []validator.Int64{int64validator.AtLeast(1)},
		},
		"gpu_id": schema.StringAttribute{
			MarkdownDescription: "Binds the VM to a partition of this GPU. Refused for a clustered VM, which could then not fail over.",
			Optional:            true, Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
		},
	}
	for _, share := range []string{"min", "max", "optimal"} {
		a[share+"_partition_vram_mib"] = schema.Int64Attribute{
			MarkdownDescription: fmt.Sprintf("The adapter's %s memory in MiB.", shareWord[share]), Optional: true, Validators: []validator.Int64{int64validator.AtLeast(0)},
		}
		for _, engine := range []string{"encode", "decode", "compute"} {
			a[share+"_partition_"+engine] = schema.NumberAttribute{
				MarkdownDescription: fmt.Sprintf("The adapter's %s %s, in the driver's units; 18446744073709551615 means no limit.", shareWord[share], engine),
				Optional:            true, Validators: []validator.Number{unitsValidator{}},
			}
		}
	}
	return a
}

var shareWord = map[string]string{"min": "minimum", "max": "maximum", "optimal": "optimal"}

// ConfigValidators implements resource.ResourceWithConfigValidators.
func (r *Resource) ConfigValidators(context.Context) []resource.ConfigValidator {
	return []resource.ConfigValidator{
		resourcevalidator.ExactlyOneOf(path.MatchRoot("partition"), path.MatchRoot("pool"), path.MatchRoot("device")),
		resourcevalidator.Conflicting(path.MatchRoot("hosts"), path.MatchRoot("cluster")),
	}
}

func label(vm string) string { return fmt.Sprintf("%s for VM %q", ResourceType, vm) }

// ModifyPlan finds the VM, decides whether it has to be touched, and proves the plan
// against the hosts and the rest of this run.
func (r *Resource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if r.fleet == nil {
		return // the validate walk
	}
	var state *model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if req.Plan.Raw.IsNull() {
		r.planDestroy(ctx, req, state, &resp.Diagnostics)
		return
	}
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	inst := r.fleet.Ledger.Instance(instance.Ledger(ctx, req.Private))
	resp.Diagnostics.Append(instance.SetLedger(ctx, resp.Private, inst)...)

	want, known := plan.declared(ctx, r.fleet.Power(), &resp.Diagnostics)
	prior := state.prior(ctx, r.fleet.Power(), &resp.Diagnostics)
	drifted := []string{}
	if state != nil {
		drifted = state.drifted(ctx, &resp.Diagnostics)
	}
	sameVM := state != nil && plan.VM.Equal(state.VM)
	same := known && sameVM && len(drifted) == 0 && plan.Partition.Equal(state.Partition) && plan.Pool.Equal(state.Pool) && plan.Device.Equal(state.Device) &&
		want.Settings.Differs(prior.Settings).Empty() && prior.Settings.Differs(want.Settings).Empty()
	unchanged := same && !r.configChanges(want)

	switch {
	case unchanged:
		plan.keep(state)
	case state != nil && known && sameVM && onlyLiveSettings(want, *prior, drifted):
		plan.keep(state) // nothing that the VM holds can change
		plan.Drift = types.ListUnknown(types.StringType)
	default:
		plan.forget()
	}
	if !known || r.fleet.Unknown() {
		r.fleet.Ledger.Forget(inst) // its checks wait until apply
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
		return
	}

	p := rules.Plan{Label: label(want.VM), Token: instance.Token(ctx, req.Private), Unchanged: unchanged}
	p.Prior.Assignment = prior
	p.Want.Assignment = &want
	if unchanged {
		want.VMID, want.Host = prior.VMID, prior.Host
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
		view := r.fleet.Seen() // a change of policy alone asks nobody
		if at, err := fleet.FindVM(view, want.VMID); err == nil {
			want.VMName, want.Host = at.VM.Name, at.Host
		}
		report.Findings(&resp.Diagnostics, p.Label, r.fleet.Ledger.Record(inst, p, func(p rules.Plan) []rules.Finding { return r.fleet.Check(view, p) }))
		return
	}

	view, at, ok := r.find(ctx, &plan, want, prior, &resp.Diagnostics)
	if !ok {
		r.fleet.Ledger.Forget(inst)
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
		return
	}
	want.VMID, want.VMName, want.Host = at.VM.ID, at.VM.Name, at.Host
	if state != nil && !gpu.SameID(at.VM.ID, state.VMID.ValueString()) {
		resp.RequiresReplace = append(resp.RequiresReplace, path.Root("vm"))
		plan.VMID = types.StringUnknown()
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	findings := r.fleet.Ledger.Record(inst, p, func(p rules.Plan) []rules.Finding { return r.fleet.Check(view, p) })
	report.Findings(&resp.Diagnostics, p.Label, findings)
	for _, d := range drifted {
		resp.Diagnostics.AddWarning("Assignment differs from the declaration", fmt.Sprintf("%s\n\nFound: %s.\nThis apply puts it right.", p.Label, d))
	}
}

// planDestroy proves that the GPU can be taken from the VM.
func (r *Resource) planDestroy(ctx context.Context, req resource.ModifyPlanRequest, state *model, diags *diag.Diagnostics) {
	if state == nil || r.fleet.Unknown() {
		return
	}
	prior := state.prior(ctx, r.fleet.Power(), diags)
	view, at, err := r.fleet.LookForVM(ctx, prior.VMID, nil, "", r.hint(*prior))
	if err != nil {
		return // the destroy itself says what is wrong, if anything is
	}
	prior.VMName, prior.Host = at.VM.Name, at.Host
	p := rules.Plan{Label: label(prior.VM), Token: instance.Token(ctx, req.Private), Prior: gpu.Want{Assignment: prior}}
	if c, ok := fleet.AssignmentClaim(view, at.VM.ID); ok && p.Token != "" && c.Token != p.Token {
		return // another instance has taken the VM over: nothing will be touched
	}
	report.Findings(diags, p.Label, r.fleet.Check(view, p))
}

// find resolves the VM for a plan that changes something.
func (r *Resource) find(ctx context.Context, plan *model, want gpu.Assignment, prior *gpu.Assignment, diags *diag.Diagnostics) (fleet.View, fleet.FoundVM, bool) {
	hosts, cluster := r.within(ctx, plan, diags)
	if diags.HasError() {
		return fleet.View{}, fleet.FoundVM{}, false
	}
	hint := r.hint(want)
	if prior != nil && prior.Host != "" {
		hint = append(hint, prior.Host)
	}
	view, at, err := r.fleet.LookForVM(ctx, want.VM, hosts, cluster, hint)
	if err != nil {
		r.notFound(diags, want.VM, view, err)
		return view, at, false
	}
	// Rules need the whole cluster of the VM, and to say that a config is unknown all hosts.
	around := r.fleet.Look(ctx, r.fleet.Peers(view, []string{at.Host}))
	maps.Copy(around.Hosts, view.Hosts)
	if want.Partition != nil && want.Partition.Config != "" {
		if _, planned := r.fleet.Ledger.Config(want.Partition.Config); !planned {
			if _, claimed := configClaim(around, want.Partition.Config); !claimed {
				around = r.fleet.LookAll(ctx)
			}
		}
	}
	if want.Device != nil && !r.fleet.Has(want.Device.Host) {
		diags.AddAttributeError(path.Root("device").AtName("host"), "Unknown host", fmt.Sprintf(
			"Found: %q is not a host of the provider, which knows %v.", want.Device.Host, r.fleet.HostNames()))
		return around, at, false
	}
	return around, at, true
}

// within reads where the configuration says to look.
func (r *Resource) within(ctx context.Context, m *model, diags *diag.Diagnostics) (hosts []string, cluster string) {
	s, _ := scope.Decode(ctx, m.Hosts, m.Cluster, types.ObjectNull(scope.SelectorType()), diags)
	for _, n := range s.Hosts {
		if !r.fleet.Has(n) {
			diags.AddAttributeError(path.Root("hosts"), "Unknown host", fmt.Sprintf("Found: %q is not a host of the provider, which knows %v.", n, r.fleet.HostNames()))
		}
	}
	return s.Hosts, s.Cluster
}

func (r *Resource) notFound(diags *diag.Diagnostics, ref string, v fleet.View, err error) {
	var ambiguous *fleet.AmbiguousVMError
	switch {
	case errors.As(err, &ambiguous):
		diags.AddAttributeError(path.Root("vm"), "VM name is not unique", fmt.Sprintf(
			"%s\n\nFound: %v.\nFix: write the VM's id, or say where to look with hosts or cluster.", label(ref), err))
	case v.Complete():
		diags.AddAttributeError(path.Root("vm"), "VM does not exist", fmt.Sprintf(
			"%s\n\nFound: none of the hosts %v has a VM with the name or id %q.\nFix: correct the name. For a VM that is made in the same run, refer to its "+
				"resource's id: it is unknown until the VM exists, and this check then waits for it.", label(ref), slices.Sorted(maps.Keys(v.Hosts)), ref))
	default:
		report.Unreachable(diags, r.fleet, label(ref), v)
	}
}

// hint is where a VM's partition config is: the VM is most likely there.
func (r *Resource) hint(a gpu.Assignment) []string {
	if a.Host != "" {
		return []string{a.Host}
	}
	if a.Partition != nil {
		if c, ok := r.fleet.Ledger.Config(a.Partition.Config); ok && c.Want.Config != nil {
			return slices.Sorted(maps.Keys(c.Want.Config.GPUs))
		}
	}
	return nil
}

// configChanges tells whether this run changes the layout that the VM's partition
// comes from: then the VM gets another partition, though nothing of the assignment
// itself changes.
func (r *Resource) configChanges(a gpu.Assignment) bool {
	if a.Partition == nil || a.Partition.Config == "" {
		return false
	}
	c, ok := r.fleet.Ledger.Config(a.Partition.Config)
	return ok && !c.Unchanged && c.Prior.Config != nil && c.Want.Config != nil && c.Prior.Config.Count != c.Want.Config.Count
}

func configClaim(v fleet.View, id string) (gpu.Claim, bool) {
	for _, h := range v.Hosts {
		for _, c := range h.Claims {
			if c.Is(gpu.ClaimConfig, id) {
				return c, true
			}
		}
	}
	return gpu.Claim{}, false
}

// onlyLiveSettings tells whether all that changes are settings that a running VM
// takes.
func onlyLiveSettings(want, prior gpu.Assignment, drifted []string) bool {
	a, b := want, prior
	a.Settings, b.Settings = gpu.VMSettings{}, gpu.VMSettings{}
	changed := want.Settings.Differs(prior.Settings).Overlay(prior.Settings.Differs(want.Settings))
	return len(drifted) == 0 && samePlace(a, b) && !changed.Empty() && !changed.NeedOff()
}

func samePlace(a, b gpu.Assignment) bool {
	switch {
	case a.Partition != nil && b.Partition != nil:
		x, y := *a.Partition, *b.Partition
		same := x.Config == y.Config && x.PinnedGPU == y.PinnedGPU && x.Quotas.Equal(y.Quotas)
		return same && (x.VRAM == y.VRAM || x.VRAM != nil && y.VRAM != nil && *x.VRAM == *y.VRAM)
	case a.Pool != nil && b.Pool != nil:
		return *a.Pool == *b.Pool
	case a.Device != nil && b.Device != nil:
		return a.Device.Host == b.Device.Host && slices.Equal(a.Device.GPUIDs, b.Device.GPUIDs)
	}
	return false
}

// keep copies the computed attributes of the state.
func (m *model) keep(state *model) {
	m.VMID, m.OwnerHost, m.GPUIDs, m.PartitionID = state.VMID, state.OwnerHost, state.GPUIDs, state.PartitionID
	m.PartitionVRAMMiB, m.Pending, m.Drift = state.PartitionVRAMMiB, state.Pending, state.Drift
}

// forget makes what an apply may change unknown. The VM's id stays as it is planned.
func (m *model) forget() {
	m.OwnerHost, m.GPUIDs, m.PartitionID = types.StringUnknown(), types.SetUnknown(types.StringType), types.Int64Unknown()
	m.PartitionVRAMMiB, m.Pending, m.Drift = types.Int64Unknown(), types.BoolUnknown(), types.ListUnknown(types.StringType)
}

// Create implements resource.Resource.
func (r *Resource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var plan model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	timeout, d := plan.Timeouts.Create(ctx, perVM)
	resp.Diagnostics.Append(d...)
	token := instance.NewToken()
	if !r.apply(ctx, "assign a GPU", &plan, nil, token, timeout, &resp.Diagnostics) {
		return
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{VMID: plan.VMID})...)
}

// Update implements resource.Resource.
func (r *Resource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state model
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	token := instance.Token(ctx, req.Private)
	timeout, d := plan.Timeouts.Update(ctx, perVM)
	resp.Diagnostics.Append(d...)
	if plan.Drift.IsUnknown() {
		if token == "" { // imported, never claimed
			token = instance.NewToken()
		}
		planned := plan
		if !r.apply(ctx, "change the assignment", &plan, &state, token, timeout, &resp.Diagnostics) {
			return
		}
		if !planned.OwnerHost.IsUnknown() {
			// What the VM holds was planned to stay: if it moved meanwhile, the next Read says so.
			drift := plan.Drift
			plan.keep(&planned)
			plan.Drift = drift
		}
	} else {
		r.updatePermission(ctx, &plan, &state, token, timeout, &resp.Diagnostics)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, token)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{VMID: plan.VMID})...)
}

// updatePermission rewrites the claim when what others may do to the VM changes: a
// partition config that has to stop the VM goes by the claim. Other changes of
// policy need no host.
func (r *Resource) updatePermission(ctx context.Context, plan, state *model, token string, timeout time.Duration, diags *diag.Diagnostics) {
	prior := state.prior(ctx, r.fleet.Power(), diags)
	want, _ := plan.declared(ctx, r.fleet.Power(), diags)
	if diags.HasError() || token == "" || power.SamePermission(want.Power, prior.Power) {
		return
	}
	want.VMID, want.Host = prior.VMID, prior.Host
	if _, err := r.fleet.Apply(ctx, fleet.Request{
		Label: label(want.VM), Token: token, Want: gpu.Want{Assignment: &want}, Prior: gpu.Want{Assignment: prior}, ClaimOnly: true, HostTimeout: timeout,
	}); err != nil {
		report.Failure(diags, "record what may be done to the VM", label(want.VM), err)
	}
}

// apply makes the plan real and fills in its computed attributes. It returns false
// when nothing of the change stands.
func (r *Resource) apply(ctx context.Context, doing string, plan, state *model, token string, timeout time.Duration, diags *diag.Diagnostics) bool {
	want, known := plan.declared(ctx, r.fleet.Power(), diags)
	if !known || diags.HasError() {
		diags.AddError("Could not "+doing, "A value is still unknown at apply. This is a bug in the provider; please report it.")
		return false
	}
	prior := state.prior(ctx, r.fleet.Power(), diags)
	_, at, ok := r.find(ctx, plan, want, prior, diags)
	if !ok {
		if !diags.HasError() {
			diags.AddAttributeError(path.Root("vm"), "VM was not found", fmt.Sprintf("%s\n\nFound: the hosts that answer do not have it, and others do not answer.", label(want.VM)))
		}
		return false
	}
	want.VMID, want.VMName, want.Host = at.VM.ID, at.VM.Name, at.Host
	req := fleet.Request{
		Label: label(want.VM), Token: token, Want: gpu.Want{Assignment: &want}, Prior: gpu.Want{Assignment: prior}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	}
	if _, err := r.fleet.Apply(ctx, req); err != nil {
		report.Failure(diags, doing, req.Label, err)
		var failure *fleet.Failure
		if !errors.As(err, &failure) || failure.Clean() {
			return false
		}
	}
	view := r.fleet.Look(ctx, r.fleet.Peers(r.fleet.Look(ctx, []string{at.Host}), []string{at.Host}))
	now, err := fleet.FindVM(view, want.VMID)
	if err != nil {
		diags.AddError("VM disappeared", fmt.Sprintf("%s\n\nFound: %v, right after the change.", req.Label, err))
		now = at
		view.Hosts[at.Host] = &gpu.Host{Name: at.Host}
	}
	plan.observe(ctx, view, now, want, diags)
	return true
}

// Read implements resource.Resource.
func (r *Resource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || r.fleet.Unknown() {
		return
	}
	var hint []string
	if h := state.OwnerHost.ValueString(); h != "" {
		hint = []string{h}
	}
	s, _ := scope.Decode(ctx, state.Hosts, state.Cluster, types.ObjectNull(scope.SelectorType()), &resp.Diagnostics)
	id := state.VMID.ValueString()
	view, at, err := r.fleet.LookForVM(ctx, id, nil, "", append(hint, s.Hosts...))
	if err != nil {
		if view.Complete() {
			resp.State.RemoveResource(ctx) // every host has answered that it does not have the VM
			return
		}
		report.Unreachable(&resp.Diagnostics, r.fleet, label(state.VM.ValueString()), view)
		return
	}
	if state.Partition.IsNull() && state.Pool.IsNull() && state.Device.IsNull() {
		r.readImported(ctx, &state, view, at, &resp.Diagnostics)
		if resp.Diagnostics.HasError() {
			return
		}
	}
	a, _ := state.declared(ctx, r.fleet.Power(), &resp.Diagnostics)
	state.observe(ctx, view, at, a, &resp.Diagnostics)
	if instance.Token(ctx, req.Private) == "" {
		if c, ok := fleet.AssignmentClaim(view, at.VM.ID); ok && c.Owner == r.fleet.Owner() {
			resp.Diagnostics.Append(instance.SetToken(ctx, resp.Private, c.Token)...)
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
	resp.Diagnostics.Append(resp.Identity.Set(ctx, identityModel{VMID: state.VMID})...)
}

// Delete implements resource.Resource.
func (r *Resource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state model
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	timeout, d := state.Timeouts.Delete(ctx, perVM)
	resp.Diagnostics.Append(d...)
	prior := state.prior(ctx, r.fleet.Power(), &resp.Diagnostics)
	token := instance.Token(ctx, req.Private)
	_, err := r.fleet.Apply(ctx, fleet.Request{
		Label: label(prior.VM), Token: token, Adopt: token == "", Prior: gpu.Want{Assignment: prior}, HostTimeout: timeout,
		Progress: func(host, text string) { tflog.Info(ctx, text, map[string]any{"host": host}) },
	})
	if err != nil {
		report.Failure(&resp.Diagnostics, "take the GPU from the VM", label(prior.VM), err)
	}
}
