package pool

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/listing"
)

// NewList makes the list resource.
func NewList() list.ListResource {
	return listing.Type{Name: ResourceType, Claim: gpu.ClaimPool, Object: "pools", Describe: describeListed}.New()
}

func describeListed(ctx context.Context, f *fleet.Fleet, v fleet.View, a *fleet.Adoptable, all bool, out *list.ListResult) {
	diags := &out.Diagnostics
	var m model
	diags.Append(out.Resource.SetAttribute(ctx, path.Root("id"), a.ImportID())...)
	diags.Append(out.Resource.SetAttribute(ctx, path.Root("name"), a.Want.Pool.Name)...)
	diags.Append(out.Resource.Get(ctx, &m)...)
	r := of(f)
	if r.readImported(ctx, &m, diags); diags.HasError() {
		return
	}
	diags.Append(out.Identity.Set(ctx, m.identity(f))...)
	if !all {
		return
	}
	c := m.declared(ctx, diags)
	hosts, _ := r.look(ctx, c, nil, diags)
	m.observe(ctx, c, hosts, v, diags)
	diags.Append(out.Resource.Set(ctx, &m)...)
}
