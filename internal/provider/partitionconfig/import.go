package partitionconfig

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
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

const importForm = "An import id is a list of hosts with an optional kind and name: `hv01,hv02`, `hv01,hv02:gpu_p` or `vdi@hv01,hv02`. " +
	"A config that is already claimed can also be imported by its identity, the id."

// ImportState takes `[name@]host[,host...][:kind]`, or the identity of a claimed
// config. Read fills in the rest.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	if req.ID == "" {
		var identity identityModel
		resp.Diagnostics.Append(req.Identity.Get(ctx, &identity)...)
		if resp.Diagnostics.HasError() {
			return
		}
		r.importClaimed(ctx, identity.ID.ValueString(), resp)
		return
	}
	list, kind, _ := strings.Cut(req.ID, ":")
	name, hosts, hasName := strings.Cut(list, "@")
	if !hasName {
		name, hosts = "", list
	}
	names := strings.Split(hosts, ",")
	if kind != "" && kind != "gpu_p" || slices.Contains(names, "") || hasName && name == "" {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("Found: %q.\n%s", req.ID, importForm))
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("hosts"), names)...)
	if name != "" {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), name)...)
	}
}

func (r *Resource) importClaimed(ctx context.Context, id string, resp *resource.ImportStateResponse) {
	v := r.fleet.LookAll(ctx)
	c, ok := claimOf(v, id, r.fleet.Owner())
	if !ok || c.Want.Config == nil {
		resp.Diagnostics.AddError("No such partition config", fmt.Sprintf(
			"Found: none of the hosts %v has a claim of owner %q for a partition config %q (no answer from: %v).\n%s",
			r.fleet.HostNames(), r.fleet.Owner(), id, v.Silent(), importForm))
		return
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("hosts"), slices.Sorted(maps.Keys(c.Want.Config.GPUs)))...)
}

// readImported completes a state of which only the hosts, and perhaps the name or
// the id, are known: from the config's claim when there is one, else from what the
// hosts have.
func (r *Resource) readImported(ctx context.Context, m *model, diags *diag.Diagnostics) {
	s, _ := scope.Decode(ctx, m.Hosts, m.Cluster, m.Selector, diags)
	hosts, v, ok := scope.Hosts(ctx, r.fleet, s, diags)
	if !ok {
		return
	}
	for _, n := range hosts {
		if err, silent := v.Errors[n]; silent {
			diags.AddError("Host does not answer", fmt.Sprintf("Host: %s\nFound: %v\nAn import needs an answer of every host.", n, err))
		}
	}
	claims := claimsOn(v, hosts)
	id := m.ID.ValueString()
	if id == "" && m.Name.ValueString() != "" {
		id = m.Name.ValueString()
	}
	ids := slices.Sorted(maps.Keys(claims))
	if id == "" && len(ids) == 1 {
		id = ids[0]
	}
	if id == "" && len(ids) > 1 {
		diags.AddError("Several partition configs cover these hosts", fmt.Sprintf(
			"Found: claims of the configs %v on the hosts %v.\nFix: import one of them by its identity (import block with identity = { id = ... }).", ids, hosts))
	}
	if diags.HasError() {
		return
	}
	c := gpu.PartitionConfig{Name: m.Name.ValueString(), Scope: s}
	if cl, claimed := claims[id]; claimed {
		if cl.Owner != r.fleet.Owner() {
			diags.AddError("Partition config belongs to another owner", fmt.Sprintf(
				"Found: config %q is claimed by owner %q, and this provider's owner is %q.\nFix: destroy it where it is declared, or use the same owner.",
				id, cl.Owner, r.fleet.Owner()))
			return
		}
		c = *cl.Want.Config
	} else {
		choose(&c, "", hosts, v)
		c.Count = commonCount(c, v)
		if c.Count == 0 {
			diags.AddError("Nothing to import", fmt.Sprintf("Found: no GPU of the hosts %v can be partitioned and is free of other claims.", hosts))
			return
		}
		var err error
		if c.ID, err = configID(c); err != nil {
			diags.AddError("Could not name the partition config", err.Error())
			return
		}
	}
	m.ID, m.Name = types.StringValue(c.ID), types.StringNull()
	if c.Name != "" {
		m.Name = types.StringValue(c.Name)
	}
	m.Hosts, m.Cluster, m.Selector = scope.Encode(ctx, c.Scope, diags)
	var d diag.Diagnostics
	m.GPUP, d = types.ObjectValueFrom(ctx, gpuPType, gpuPModel{PartitionCount: types.Int64Value(int64(c.Count))})
	diags.Append(d...)
}

func claimsOn(v fleet.View, hosts []string) map[string]gpu.Claim {
	out := map[string]gpu.Claim{}
	for _, n := range hosts {
		if h, ok := v.Hosts[n]; ok {
			for _, c := range h.Claims {
				if c.Kind == gpu.ClaimConfig && c.Want.Config != nil {
					out[c.ID] = c
				}
			}
		}
	}
	return out
}

// commonCount is the partition count that most of the chosen GPUs have; where they
// differ, the others show up as drift.
func commonCount(c gpu.PartitionConfig, v fleet.View) int {
	votes := map[int]int{}
	for host, ids := range c.GPUs {
		for _, id := range ids {
			if g, ok := v.Hosts[host].GPU(id); ok && g.Partitionable != nil {
				votes[g.Partitionable.Count]++
			}
		}
	}
	best := 0
	for _, n := range slices.Sorted(maps.Keys(votes)) {
		if best == 0 || votes[n] > votes[best] {
			best = n
		}
	}
	return best
}
