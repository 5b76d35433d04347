package vmassignment

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/listing"
)

// NewList makes the list resource.
func NewList() list.ListResource {
	return listing.Type{
		Name: ResourceType, Claim: gpu.ClaimAssignment, Object: "VM assignments", KindsOf: "What the VM has",
		Kinds: []string{"partition", "pool", "device"},
		Kind: func(a *fleet.Adoptable) string {
			switch w := a.Want.Assignment; {
			case w.Partition != nil:
				return "partition"
			case w.Pool != nil:
				return "pool"
			default:
				return "device"
			}
		},
		Describe: describeListed,
	}.New()
}

func describeListed(ctx context.Context, f *fleet.Fleet, v fleet.View, a *fleet.Adoptable, all bool, out *list.ListResult) {
	diags, id := &out.Diagnostics, a.Want.Assignment.VMID
	diags.Append(out.Identity.Set(ctx, identityModel{VMID: types.StringValue(id)})...)
	if !all {
		return
	}
	at, err := fleet.FindVM(v, id)
	if a.Want.Assignment.Reserves() {
		at, err = fleet.FindAssigned(v, a.Want.Assignment)
	}
	if err != nil {
		diags.AddError("VM does not exist", "Found: "+err.Error()+".")
		return
	}
	var m model
	diags.Append(out.Resource.SetAttribute(ctx, path.Root("vm_id"), at.VM.ID)...)
	diags.Append(out.Resource.SetAttribute(ctx, path.Root("vm"), at.VM.Name)...)
	diags.Append(out.Resource.Get(ctx, &m)...)
	if of(f).readImported(ctx, &m, v, at, diags); diags.HasError() {
		return
	}
	want := m.declared(ctx, f.Power(), diags)
	m.observe(ctx, v, at, want, diags)
	diags.Append(out.Resource.Set(ctx, &m)...)
}
