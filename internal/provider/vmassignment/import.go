package vmassignment

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/power"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// ImportState takes a VM's id, `host/name`, or the identity. Read fills in the rest.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	ref := req.ID
	if identity := object.Identity[identityModel](ctx, req.Identity, &resp.Diagnostics); ref == "" && identity != nil {
		ref = identity.VMID.ValueString()
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if at, is := r.importReserved(ctx, ref, nil); is && !fleet.IsVMID(ref) {
		r.imports(ctx, at, resp)
		return
	}
	ref, hosts, cluster, ok := r.importedFrom(ctx, ref, &resp.Diagnostics)
	if !ok {
		return
	}
	if at, is := r.importReserved(ctx, ref, hosts); is {
		r.imports(ctx, at, resp)
		return
	}
	search := fleet.VMSearch{VM: ref, Cluster: cluster}
	view := r.Fleet.Snapshot(ctx, hosts, fleet.ForVM(search))
	at, err := search.In(view)
	if ambiguous, ok := errors.AsType[*fleet.AmbiguousVMError](err); ok {
		resp.Diagnostics.AddError("Several VMs fit the import id", fmt.Sprintf(
			"Found: %v.\nFix: Import it as host/id, with the host that has the VM, such as %s/%s.", words.Capital(err.Error()),
			ambiguous.Found[0].Host, ambiguous.Found[0].VM.ID))
		return
	}
	if err != nil {
		if report.Unreachable(&resp.Diagnostics, r.Fleet, label(ref), view, view.Silent()...) {
			resp.Diagnostics.AddError("VM does not exist", fmt.Sprintf("Found: %v.", words.Capital(err.Error())))
		}
		return
	}
	r.imports(ctx, at, resp)
}

// imports begins a state with what Read goes by.
func (r *Resource) imports(ctx context.Context, at fleet.FoundVM, resp *resource.ImportStateResponse) {
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("vm_id"), at.VM.ID)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("vm"), at.VM.Name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("owner_host"), at.Host)...) // where Read looks first
}

// importedFrom splits an import id into the VM and where it is.
func (r *Resource) importedFrom(
	ctx context.Context, id string, diags *diag.Diagnostics,
) (ref string, hosts []string, cluster string, ok bool) {
	where, name, named := strings.Cut(id, "/")
	switch {
	case !named && !fleet.IsVMID(id), named && (where == "" || name == ""):
		diags.AddError("Invalid import id", fmt.Sprintf(
			"Found: %q.\nAn import id is a VM's id (GUID), host/name, host/id or cluster/name, such as hv01/avd-01.", id))
		return "", nil, "", false
	case !named:
		return id, nil, "", true
	case r.Fleet.Has(where) || r.Fleet.Unknown():
		return name, []string{where}, "", true
	}
	if members, unknown := r.Fleet.ClusterHosts(r.Fleet.Snapshot(ctx, r.Fleet.HostNames()), where); len(members)+len(unknown) == 0 {
		diags.AddError("Unknown host or cluster", scope.UnknownHostOrCluster(ctx, r.Fleet, where))
		return "", nil, "", false
	}
	return name, nil, where, true
}

// readImported completes a state of which only the VM is known: from its claim when
// there is one, else from what the VM has.
func (r *Resource) readImported(ctx context.Context, m *model, v fleet.View, at fleet.FoundVM, diags *diag.Diagnostics) {
	claim, claimed := fleet.RecordOf(v, at)
	if claimed && claim.Owner != r.Fleet.Owner() {
		diags.AddError("VM belongs to another owner", fmt.Sprintf(
			"Found: VM %s on %s is claimed by owner %q, and this provider's owner is %q.\nFix: Destroy the assignment where it is "+
				"declared, or use the same owner.",
			words.Name(at.VM.Name), at.Host, claim.Owner, r.Fleet.Owner()))
		return
	}
	a := fleet.Assigned(at.Host, v.Hosts[at.Host], at.VM)
	if claimed && claim.Want.Assignment != nil {
		a = *claim.Want.Assignment
		m.VM = types.StringValue(a.VM)
		m.Power = power.Encode(ctx, a.Power, r.Fleet.Power(), diags)
	}
	m.Partition, m.Pool, m.Device = types.ObjectNull(partitionType), types.ObjectNull(poolType), types.ObjectNull(deviceType)
	switch {
	case a.Partition != nil:
		m.Partition = object.NestedOf(ctx, partitionType, encodePartition(ctx, *a.Partition, diags), diags)
	case a.Pool != nil:
		count := types.Int64Null()
		if a.Pool.Count != 1 {
			count = types.Int64Value(int64(a.Pool.Count))
		}
		m.Pool = object.NestedOf(ctx, poolType, poolModel{ID: types.StringValue(a.Pool.ID), Count: count}, diags)
	case a.Device != nil:
		ids := object.SetOf(ctx, types.StringType, a.Device.GPUIDs, diags)
		m.Device = object.NestedOf(ctx, deviceType, deviceModel{
			Host: types.StringValue(at.Host), GPUIDs: ids,
			Dismount: scope.Forced(a.Device.Force),
		}, diags)
	default:
		diags.AddError("VM has no GPU", fmt.Sprintf("Found: VM %s on %s has neither a GPU partition adapter nor a GPU.\n"+
			"Fix: Declare the assignment without importing it.",
			words.Name(at.VM.Name), at.Host))
		return
	}
	m.settings(a.Settings)
	m.EffectivePower = power.Applied(power.Decode(m.Power, r.Fleet.Power(), diags), m.Power, diags)
}

func encodePartition(ctx context.Context, p gpu.PartitionWant, diags *diag.Diagnostics) partitionModel {
	configs := types.SetNull(types.StringType)
	if len(p.Configs) > 0 {
		configs = object.SetOf(ctx, types.StringType, p.Configs, diags)
	}
	return partitionModel{
		Configs: configs, Config: object.NullIfEmpty(p.Config), GPUID: object.NullIfEmpty(p.PinnedGPU),
		Type: object.NullIfEmpty(p.Type), Attach: object.NullIfEmpty(string(p.Attach)), VRAMMiB: object.MiBFromBytes(p.VRAM),
		MinVRAMMiB: mib(p.Quotas.VRAM.Min), MaxVRAMMiB: mib(p.Quotas.VRAM.Max), OptimalVRAMMiB: mib(p.Quotas.VRAM.Optimal),
		MinEncode: number(p.Quotas.Encode.Min), MaxEncode: number(p.Quotas.Encode.Max), OptimalEncode: number(p.Quotas.Encode.Optimal),
		MinDecode: number(p.Quotas.Decode.Min), MaxDecode: number(p.Quotas.Decode.Max), OptimalDecode: number(p.Quotas.Decode.Optimal),
		MinCompute: number(p.Quotas.Compute.Min), MaxCompute: number(p.Quotas.Compute.Max), OptimalCompute: number(p.Quotas.Compute.Optimal),
	}
}

func (m *model) settings(s gpu.VMSettings) {
	m.LowMMIO, m.HighMMIO, m.Cache = object.MiBFromBytes(s.LowMemoryMappedIOSpace), object.MiBFromBytes(s.HighMemoryMappedIOSpace),
		types.BoolPointerValue(s.GuestControlledCache)
	m.Stop, m.Offline = types.StringPointerValue((*string)(s.AutomaticStopAction)), types.StringPointerValue((*string)(s.OfflineAction))
}

// unitsValidator accepts whole numbers from 0 to 2^64-1.
type unitsValidator struct{ tfschema.Must }

func (u unitsValidator) ValidateNumber(_ context.Context, req validator.NumberRequest, resp *validator.NumberResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	f := req.ConfigValue.ValueBigFloat()
	if n, exact := f.Uint64(); !f.IsInt() || f.Sign() < 0 || exact != big.Exact {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid number of driver units",
			fmt.Sprintf("Attribute %s is %s, but %s (nearest: %d).", req.Path, f.Text('f', -1), u.Must, n))
	}
}
