package partitionconfig

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/instance"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

const importForm = "An import id is a list of hosts with an optional kind and name: `hv01,hv02`, `hv01,hv02:gpu_p`, `hgx01:mig`, `kvm01:vgpu`, `gpu01:mps`, `gpu01:time_slicing` or `vdi@hv01,hv02`. " +
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
	if !slices.Contains([]gpu.Kind{"", gpu.KindGPUP, gpu.KindMIG, gpu.KindVGPU, gpu.KindMPS, gpu.KindTimeSlicing}, gpu.Kind(kind)) || slices.Contains(names, "") || hasName && name == "" {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("Found: %q.\n%s", req.ID, importForm))
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	resp.Diagnostics.Append(keepImportedKind(ctx, resp.Private, kind)...)
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

// importKindKey is where private state keeps the kind of an import id until the read that
// follows.
const importKindKey = "import_kind"

func keepImportedKind(ctx context.Context, private instance.Setter, kind string) diag.Diagnostics {
	if kind == "" {
		return nil
	}
	return private.SetKey(ctx, importKindKey, []byte(strconv.Quote(kind)))
}

// importedKind is the kind of the import id, "" for none.
func importedKind(ctx context.Context, private instance.Getter) gpu.Kind {
	raw, diags := private.GetKey(ctx, importKindKey)
	kind, err := strconv.Unquote(string(raw))
	if diags.HasError() || err != nil {
		return ""
	}
	return gpu.Kind(kind)
}

// readImported completes a state of which only the hosts, and perhaps the name or
// the id, are known: from the config's claim when there is one, else from what the
// hosts have.
func (r *Resource) readImported(ctx context.Context, m *model, kind gpu.Kind, diags *diag.Diagnostics) {
	s, _ := scope.Decode(ctx, m.Hosts, m.Cluster, m.Selector, diags)
	hosts, v, ok := scope.Hosts(ctx, r.fleet, s, diags)
	if !ok {
		return
	}
	for _, n := range hosts {
		if err, silent := v.Errors[n]; silent {
			diags.AddError("Host does not answer", fmt.Sprintf("Host: %s\nFound: %v\nAn import needs an answer from every host.", n, err))
		}
	}
	claims := claimsOn(v, hosts, kind)
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
		m.OnDestroy = types.StringNull()
		if byDefault := m.restores(c.Kind); c.Restore != byDefault {
			m.OnDestroy = types.StringValue(map[bool]string{true: onDestroyRestore, false: onDestroyKeep}[c.Restore])
		}
	} else {
		if !adopt(&c, kind, hosts, v, diags) {
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
	m.setLayout(ctx, c, diags)
}

// adopt takes the layout that the hosts have. Without a kind it is GPU-P or, on Linux, MIG.
// How processes share GPUs is not adopted: hosts do not tell all of it, and a config that is
// created leaves what is as declared.
func adopt(c *gpu.PartitionConfig, kind gpu.Kind, hosts []string, v fleet.View, diags *diag.Diagnostics) bool {
	linux := slices.ContainsFunc(hosts, func(n string) bool { return v.Hosts[n].Platform == gpu.Linux })
	switch {
	case kind == gpu.KindMPS, kind == gpu.KindTimeSlicing:
		diags.AddError("Nothing to import", fmt.Sprintf("Found: the hosts %v have no claim of a partition config of kind `%s`, and the settings of such a config are in its claim only.\n"+
			"Fix: declare the config under its former name and apply it. MPS daemons, compute modes and time slices that already match are not touched.", hosts, kind))
		return false
	case kind == "" && linux:
		kind = gpu.KindMIG
	case kind == "":
		kind = gpu.KindGPUP
	}
	c.Kind = kind
	choose(c, "", hosts, v)
	found := ""
	switch c.Kind {
	case gpu.KindMIG:
		if c.MIG = commonLayout(*c, v); c.MIG == nil {
			found = "is in MIG mode"
		} else {
			c.Scope.Selector = onlyWithLayout(*c, v)
		}
	case gpu.KindVGPU:
		if c.VGPU = commonVGPUs(*c, v); c.VGPU == nil {
			found = "has vGPUs"
		}
	case gpu.KindGPUP:
		if c.Count = commonCount(*c, v); c.Count == 0 {
			found = "can be partitioned"
		}
	case gpu.KindMPS, gpu.KindTimeSlicing:
	}
	if found != "" {
		diags.AddError("Nothing to import", fmt.Sprintf("Found: no GPU of the hosts %v %s and is free of other claims.", hosts, found))
	}
	return found == ""
}

// onlyWithLayout selects the GPUs that have a config's layout on hosts where others have
// not: what is generated from an import must not set those as well. Nil selects all.
func onlyWithLayout(c gpu.PartitionConfig, v fleet.View) *gpu.Selector {
	sel := &gpu.Selector{GPUIDs: map[string][]string{}}
	for host, ids := range c.GPUs {
		var have []string
		for _, id := range ids {
			if g, ok := v.Hosts[host].GPU(id); ok && change.HasLayout(&c, g) {
				have = append(have, id)
			}
		}
		if len(have) > 0 && len(have) < len(ids) {
			sel.GPUIDs[host] = have
		}
	}
	if len(sel.GPUIDs) == 0 {
		return nil
	}
	return sel
}

// claimsOn are the claims of configs of a kind, or of every kind, on some hosts.
func claimsOn(v fleet.View, hosts []string, kind gpu.Kind) map[string]gpu.Claim {
	out := map[string]gpu.Claim{}
	for _, n := range hosts {
		if h, ok := v.Hosts[n]; ok {
			for _, c := range h.Claims {
				if c.Kind == gpu.ClaimConfig && c.Want.Config != nil && (kind == "" || c.Want.Config.Kind == kind) {
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

// commonLayout is what the chosen GPUs that are in MIG mode have: their placements where
// all have the same, else the numbers of instances that most of them have. It is nil when
// none is in MIG mode.
func commonLayout(c gpu.PartitionConfig, v fleet.View) *gpu.MIGLayout {
	layouts, votes := map[string]*gpu.MIGLayout{}, map[string]int{}
	var first []gpu.MIGPlacement
	same, found := true, false
	for _, host := range slices.Sorted(maps.Keys(c.GPUs)) {
		for _, id := range c.GPUs[host] {
			g, ok := v.Hosts[host].GPU(id)
			if !ok || g.MIG == nil || !g.MIG.Enabled {
				continue
			}
			placements := g.MIG.State().Placements
			if !found {
				first, found = placements, true
			}
			same = same && slices.Equal(first, placements)
			l := &gpu.MIGLayout{Profiles: map[string]int{}}
			for _, p := range placements {
				l.Profiles[p.Profile]++
			}
			text := placement.MIGLayoutText(l)
			layouts[text] = l
			votes[text]++
		}
	}
	if same && len(first) > 0 {
		return &gpu.MIGLayout{Placements: first}
	}
	best := ""
	for _, text := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[text] > votes[best] {
			best = text
		}
	}
	return layouts[best]
}

// commonVGPUs is what most of the chosen GPUs with vGPUs have; the others show up as drift.
// It is nil when none has any.
func commonVGPUs(c gpu.PartitionConfig, v fleet.View) *gpu.VGPULayout {
	layouts, votes := map[string]*gpu.VGPULayout{}, map[string]int{}
	for host, ids := range c.GPUs {
		for _, id := range ids {
			g, ok := v.Hosts[host].GPU(id)
			if !ok || g.VGPU == nil || len(g.VGPU.Instances) == 0 {
				continue
			}
			l := &gpu.VGPULayout{Types: gpu.VGPUCounts(g.VGPU.State().Places)}
			text := placement.VGPULayoutText(l)
			if len(l.Types) == 1 {
				for name, n := range l.Types {
					l = &gpu.VGPULayout{Type: name, Count: &n}
				}
			}
			layouts[text] = l
			votes[text]++
		}
	}
	best := ""
	for _, text := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[text] > votes[best] {
			best = text
		}
	}
	return layouts[best]
}
