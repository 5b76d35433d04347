package partitionconfig

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/listing"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// NewList makes the list resource.
func NewList() list.ListResource {
	return listing.Type{
		Name: ResourceType, Claim: gpu.ClaimConfig, Object: "partition configs",
		KindsOf: "The kind of layout", Kinds: words.Each(gpu.Kinds(), func(k gpu.Kind) string { return string(k) }),
		Kind: func(a *fleet.Adoptable) string { return string(a.Want.Config.Kind) }, Describe: describeListed,
	}.New()
}

func describeListed(ctx context.Context, f *fleet.Fleet, v fleet.View, a *fleet.Adoptable, all bool, out *list.ListResult) {
	diags, c := &out.Diagnostics, *a.Want.Config
	var m model
	diags.Append(out.Resource.SetAttribute(ctx, path.Root("id"), c.ID)...)
	diags.Append(out.Resource.Get(ctx, &m)...)
	m.declare(ctx, c, diags)
	is := identityModel{ID: m.ID, GPUIDs: types.ListNull(types.StringType)}
	if a.Claim == nil {
		is.Host, is.Kind = types.StringValue(a.Hosts[0]), types.StringValue(string(c.Kind))
		if len(a.GPUs) > 0 {
			is.GPUIDs = object.ListOf(ctx, types.StringType, a.GPUs, diags)
		}
	}
	diags.Append(out.Identity.Set(ctx, is)...)
	if !all || diags.HasError() {
		return
	}
	c = m.declared(ctx, diags)
	hosts, _ := of(f).look(ctx, c.Scope, nil, diags)
	m.observe(ctx, c, hosts, v, diags)
	diags.Append(out.Resource.Set(ctx, &m)...)
}
