package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// ImportState takes `host/name` or `cluster/name`, or the identity. Read fills in
// the rest.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	at, name, ok := strings.Cut(req.ID, "/")
	if identity := object.Identity[identityModel](ctx, req.Identity, &resp.Diagnostics); req.ID == "" && identity != nil {
		at, name = identity.Cluster.ValueString()+identity.Host.ValueString(), identity.Name.ValueString()
		ok = identity.Cluster.IsNull() != identity.Host.IsNull()
	}
	if resp.Diagnostics.HasError() {
		return
	}
	if !ok || at == "" || name == "" {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf(
			"Found: %q.\nAn import id is host/name or cluster/name, such as hv01/render; an identity is name with either host or cluster.", req.ID))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), at+"/"+name)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
}

// readImported completes a state of which only the id and the name are known: from
// the pool's claim when there is one, else from the members that the hosts have.
func (r *Resource) readImported(ctx context.Context, m *model, diags *diag.Diagnostics) {
	at, name, _ := strings.Cut(m.ID.ValueString(), "/")
	var names []string
	if r.Fleet.Has(at) {
		names = []string{at}
	} else {
		members, _ := r.Fleet.ClusterHosts(r.Fleet.Snapshot(ctx, r.Fleet.HostNames()), at)
		names = members
	}
	if len(names) == 0 {
		diags.AddError("Unknown host or cluster", scope.UnknownHostOrCluster(ctx, r.Fleet, at))
		return
	}
	v := r.Fleet.Snapshot(ctx, names, fleet.WithClusterPeers)
	if !report.Unreachable(diags, r.Fleet, label(m.ID.ValueString()), v, names...) {
		return
	}
	c, ok := r.claimed(ctx, v, name, diags)
	if diags.HasError() {
		return
	}
	if !ok {
		c = gpu.PoolConfig{ID: m.ID.ValueString(), Name: name, Members: map[string][]string{}}
		for host, h := range v.Hosts {
			if p, has := onHost(h, name); has {
				c.Name = p.Name
				c.Members[host] = p.GPUs
			}
		}
	}
	if len(c.Members) == 0 {
		diags.AddError("Pool does not exist", noSuchPool(v, name))
		return
	}
	m.ID, m.Name = types.StringValue(c.ID), types.StringValue(c.Name)
	m.Hosts, m.Cluster, m.Selector = scope.Encode(ctx, c.Scope, diags)
	m.Quotas, m.Dismount = encodeQuotas(ctx, c.Quotas, diags), scope.Forced(c.Force)
	if c.MountBack {
		m.OnDestroy = types.StringValue(onDestroyMountBack)
	}
	if len(c.Scope.Hosts) == 0 && c.Scope.Cluster == "" {
		m.Members = object.MapOf(ctx, memberType, c.Members, diags)
	}
}

// noSuchPool says that no host has a pool, and which name may have been meant.
func noSuchPool(v fleet.View, name string) string {
	var pools []string
	for _, h := range v.Hosts {
		for i := range h.Pools {
			pools = append(pools, h.Pools[i].Name)
		}
		for c := range h.ClaimsOf(gpu.ClaimPool) {
			pools = append(pools, c.ID)
		}
	}
	slices.Sort(pools)
	return fmt.Sprintf("Found: None of the hosts %s has a pool %q.\nFix: %s", words.Join(slices.Sorted(maps.Keys(v.Hosts))), name,
		words.Meant(name, slices.Compact(pools), "Correct the name. Data source gpu_inventory shows all pools."))
}

// claimed finds the pool as it was declared when it was claimed.
func (r *Resource) claimed(ctx context.Context, v fleet.View, name string, diags *diag.Diagnostics) (gpu.PoolConfig, bool) {
	for host, c := range v.Claims(gpu.ClaimPool, name) {
		if c.Want.Pool == nil {
			continue
		}
		if c.Owner != r.Fleet.Owner() {
			diags.AddError("Pool belongs to another owner", fmt.Sprintf(
				"Found: Pool %q on %s is claimed by owner %q, and this provider's owner is %q.\n"+
					"Fix: Destroy it where it is declared, or use the same owner.",
				name, host, c.Owner, r.Fleet.Owner()))
			return gpu.PoolConfig{}, false
		}
		if len(c.Want.Pool.Scope.Hosts) > 0 || c.Want.Pool.Scope.Cluster != "" {
			return *c.Want.Pool, true
		}
		return r.gathered(ctx, *c, diags), true
	}
	return gpu.PoolConfig{}, false
}

// gathered puts together a pool whose members were declared one by one: the claim on
// a host has that host's members only, and the other hosts may be any.
func (r *Resource) gathered(ctx context.Context, c gpu.Claim, diags *diag.Diagnostics) gpu.PoolConfig {
	all := r.Fleet.Snapshot(ctx, r.Fleet.HostNames())
	report.Unreachable(diags, r.Fleet, label(c.Want.Pool.ID), all)
	out := *c.Want.Pool
	out.Members = map[string][]string{}
	for _, h := range all.Hosts {
		for other := range h.ClaimsOf(gpu.ClaimPool) {
			if other.Token == c.Token && other.Want.Pool != nil {
				maps.Copy(out.Members, other.Want.Pool.Members)
			}
		}
	}
	return out
}
