package share

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
	return listing.Type{Name: ResourceType, Claim: gpu.ClaimShare, Object: "shares", Describe: describeListed}.New()
}

func describeListed(ctx context.Context, f *fleet.Fleet, v fleet.View, a *fleet.Adoptable, all bool, out *list.ListResult) {
	diags, host := &out.Diagnostics, a.Hosts[0]
	is := identityModel{Host: types.StringValue(host), Name: types.StringValue(a.Want.Share.Name)}
	diags.Append(out.Identity.Set(ctx, is)...)
	if !all {
		return
	}
	var m model
	diags.Append(out.Resource.SetAttribute(ctx, path.Root("host"), is.Host)...)
	diags.Append(out.Resource.SetAttribute(ctx, path.Root("name"), is.Name)...)
	diags.Append(out.Resource.Get(ctx, &m)...)
	if !of(f).readImported(ctx, &m, a.Claim, diags) {
		return
	}
	m.observe(ctx, host, v.Hosts[host], *prior(ctx, &m, diags).Share, diags)
	diags.Append(out.Resource.Set(ctx, &m)...)
}
