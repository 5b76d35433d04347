package partitionconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/lifecycle"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const importForm = "An import id is a list of hosts with an optional kind and name: `hv01,hv02`, `hv01,hv02:gpu_p`, `hgx01:mig`, " +
	"`kvm01:vgpu`, `gpu01:mps`, `gpu01:time_slicing` or `vdi@hv01,hv02`; of one host it may name GPUs after the kind, such as " +
	"`hgx01:mig@GPU-1,GPU-2`. An identity has the `id` of a config that is claimed, or `host` and, where the host has several " +
	"layouts, `kind` and `gpu_ids`."

type identityModel struct {
	ID     types.String `tfsdk:"id"`
	Host   types.String `tfsdk:"host"`
	Kind   types.String `tfsdk:"kind"`
	GPUIDs types.List   `tfsdk:"gpu_ids"`
}

// identify carries an identity that is known, and otherwise sets one of the id alone: where a
// config was found first may not change in it.
func identify(ctx context.Context, known, next *tfsdk.ResourceIdentity, m *model) diag.Diagnostics {
	var diags diag.Diagnostics
	is := identityModel{GPUIDs: types.ListNull(types.StringType)}
	if known != nil && !known.Raw.IsFullyNull() {
		if diags.Append(known.Get(ctx, &is)...); !is.ID.IsNull() {
			return diags
		}
	}
	is.ID = m.ID
	diags.Append(next.Set(ctx, is)...)
	return diags
}

// imported is what an import names.
type imported struct {
	name, kind  string
	hosts, gpus []string
}

// parseImport reads `[name@]host[,host...][:kind[@gpu,...]]`.
func parseImport(id string) imported {
	list, rest, _ := strings.Cut(id, ":")
	kind, gpus, hasGPUs := strings.Cut(rest, "@")
	name, hosts, hasName := strings.Cut(list, "@")
	if !hasName {
		name, hosts = "", list
	}
	at := imported{name: name, kind: kind, hosts: strings.Split(hosts, ",")}
	if hasGPUs {
		at.gpus = strings.Split(gpus, ",")
	}
	if hasName && name == "" {
		at.hosts = nil
	}
	return at
}

// valid reports whether an import names hosts, and GPUs of one host only.
func (i imported) valid() bool {
	known := slices.Contains(append(gpu.Kinds(), ""), gpu.Kind(i.kind))
	named := len(i.hosts) > 0 && !slices.Contains(i.hosts, "") && !slices.Contains(i.gpus, "")
	return known && named && (len(i.gpus) == 0 || len(i.hosts) == 1)
}

// ImportState takes `[name@]host[,host...][:kind[@gpu,...]]`, or the identity. Read fills in
// the rest.
func (r *Resource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var at imported
	found := fmt.Sprintf("%q", req.ID)
	if identity := object.Identity[identityModel](ctx, req.Identity, &resp.Diagnostics); req.ID == "" && identity != nil {
		if resp.Diagnostics.HasError() || r.claimed(ctx, *identity, resp) {
			return
		}
		at = imported{kind: identity.Kind.ValueString(), hosts: []string{identity.Host.ValueString()}}
		resp.Diagnostics.Append(identity.GPUIDs.ElementsAs(ctx, &at.gpus, false)...)
		found = fmt.Sprintf("host %s, kind %s, gpu_ids %s", identity.Host, identity.Kind, identity.GPUIDs)
	} else {
		at = parseImport(req.ID)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	slices.Sort(at.hosts)
	at.hosts = slices.Compact(at.hosts)
	if !at.valid() {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("Found: %s.\n%s", words.Capital(found), importForm))
		return
	}
	resp.Diagnostics.Append(lifecycle.SetImportedKind(ctx, resp.Private, at.kind)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("hosts"), at.hosts)...)
	if at.name != "" {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), at.name)...)
	}
	if len(at.gpus) > 0 {
		slices.Sort(at.gpus)
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("selector").AtName("gpu_ids").AtMapKey(at.hosts[0]),
			slices.Compact(at.gpus))...)
	}
}

// claimed takes the config that an identity's id names. It returns false when the identity
// says where to look besides and no host has a claim of it.
func (r *Resource) claimed(ctx context.Context, identity identityModel, resp *resource.ImportStateResponse) bool {
	id := identity.ID.ValueString()
	if id == "" {
		return false
	}
	v := r.Fleet.Snapshot(ctx, r.Fleet.HostNames())
	c, ok := claimOf(v, id, r.Fleet.Owner())
	switch {
	case ok && c.Want.Config != nil:
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("id"), id)...)
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("hosts"), slices.Sorted(maps.Keys(c.Want.Config.GPUs)))...)
	case identity.Host.IsNull():
		unheard := ""
		if silent := v.Silent(); len(silent) > 0 {
			unheard = "; no answer came from " + words.Join(silent)
		}
		resp.Diagnostics.AddError("No such partition config", fmt.Sprintf(
			"Found: None of the hosts %s has a claim of owner %q for a partition config %q%s.\n%s",
			words.Join(r.Fleet.HostNames()), r.Fleet.Owner(), id, unheard, words.Meant(id, v.ClaimIDs(gpu.ClaimConfig), importForm)))
	default:
		return false
	}
	return true
}

// readImported completes a state of which only the hosts, and perhaps the name, the GPUs or
// the id, are known: from the config's claim when there is one, else from what the
// hosts have.
func (r *Resource) readImported(ctx context.Context, m *model, kind gpu.Kind, diags *diag.Diagnostics) {
	s, _ := scope.Decode(ctx, m.Hosts, m.Cluster, m.Selector, diags)
	hosts, v, ok := scope.Hosts(ctx, r.Fleet, s, scope.Has{}, diags)
	if !ok {
		return
	}
	for _, n := range hosts {
		if err, silent := v.Errors[n]; silent {
			diags.AddError("Host does not answer", fmt.Sprintf("Host: %s\nFound: %v\nAn import needs an answer from every host.", n,
				words.Capital(err.Error())))
		}
	}
	if diags.HasError() {
		return
	}
	var ids []string
	if s.Selector != nil {
		ids = s.Selector.GPUIDs[hosts[0]]
		if !known(v.Hosts[hosts[0]], hosts[0], ids, diags) {
			return
		}
	}
	c := gpu.PartitionConfig{Name: m.Name.ValueString()}
	claim, ok := choice(claimsOn(v, hosts, kind, ids), cmp.Or(m.ID.ValueString(), m.Name.ValueString()), hosts, ids, diags)
	switch {
	case !ok:
		return
	case claim == nil:
		if ok = adopt(&c, kind, hosts, ids, v, diags); !ok {
			return
		}
	case claim.Owner != r.Fleet.Owner():
		diags.AddError("Partition config belongs to another owner", fmt.Sprintf(
			"Found: Config %q is claimed by owner %q, and this provider's owner is %q.\n"+
				"Fix: Destroy it where it is declared, or use the same owner.",
			claim.ID, claim.Owner, r.Fleet.Owner()))
		return
	default:
		c = *claim.Want.Config
	}
	m.declare(ctx, c, diags)
}

// declare writes what a configuration of the config says.
func (m *model) declare(ctx context.Context, c gpu.PartitionConfig, diags *diag.Diagnostics) {
	if c.ID == "" {
		c.ID = configID(c)
	}
	m.ID, m.Name, m.MaxDisruption, m.OnDestroy = types.StringValue(c.ID), object.NullIfEmpty(c.Name), object.NullIfEmpty(c.MaxDisruption),
		types.StringNull()
	if c.Restore != m.restores(c.Kind) {
		m.OnDestroy = types.StringValue(map[bool]string{true: onDestroyRestore, false: onDestroyKeep}[c.Restore])
	}
	if len(c.QuiesceUnits) > 0 {
		m.QuiesceUnits = object.SetOf(ctx, types.StringType, c.QuiesceUnits, diags)
	}
	if c.Drain {
		m.Rollout = object.NestedOf(ctx, m.Rollout.AttributeTypes(ctx), rolloutModel{Drain: types.BoolValue(true)}, diags)
	}
	m.Hosts, m.Cluster, m.Selector = scope.Encode(ctx, c.Scope, diags)
	m.setLayout(ctx, c, diags)
}

// known refuses GPUs that a host does not have.
func known(h *gpu.Host, name string, ids []string, diags *diag.Diagnostics) bool {
	for _, id := range ids {
		if _, ok := h.GPU(id); !ok {
			has := words.Each(h.GPUs, func(g gpu.GPU) string { return g.ID })
			diags.AddError("Unknown GPU", fmt.Sprintf("Host: %s\nFound: It has no GPU %q; it has %s.\nFix: %s", name, id, words.Some(id, has),
				words.Meant(id, has, "Correct the id, or list what the host has with data source gpu_inventory.")))
		}
	}
	return !diags.HasError()
}

// choice is the claim that an import means among those at hand, nil for none of them. ok is
// false when that cannot be told.
func choice(claims map[string]gpu.Claim, id string, hosts, gpus []string, diags *diag.Diagnostics) (claim *gpu.Claim, ok bool) {
	ids := slices.Sorted(maps.Keys(claims))
	if id == "" && len(ids) == 1 {
		id = ids[0]
	}
	c, found := claims[id]
	switch outside := slices.DeleteFunc(slices.Clone(gpus), c.Covers); {
	case id == "" && len(ids) > 1:
		diags.AddError("Several partition configs cover these hosts", fmt.Sprintf(
			"Found: Claims of the configs %s on the hosts %s.\nFix: Import one of them by GPUs of its own (HOST:KIND@GPU,...), or by its identity "+
				"(import block with identity = { id = ... }).", words.Join(ids), words.Join(hosts)))
		return nil, false
	case !found:
		return nil, true
	case len(outside) > 0:
		diags.AddError("GPUs of two configs", fmt.Sprintf("Found: Config %q covers some of the GPUs %s, and not %s.\n"+
			"Fix: Import the latter by themselves.", c.ID, words.Join(gpus), words.Join(outside)))
		return nil, false
	}
	return &c, true
}

// adopt takes the layout that the hosts have, of some GPUs if any are named.
// How processes share GPUs is not adopted: hosts do not tell all of it, and a config that is
// created leaves what is as declared.
func adopt(c *gpu.PartitionConfig, kind gpu.Kind, hosts, ids []string, v fleet.View, diags *diag.Diagnostics) bool {
	if kind == gpu.KindMPS || kind == gpu.KindTimeSlicing {
		diags.AddError("Nothing to import", fmt.Sprintf("Found: The hosts %s have no claim of a partition config of kind `%s`, and the "+
			"settings of such a config are in its claim only.\n"+
			"Fix: Declare the config under its former name and apply it. MPS daemons, compute modes and time slices that "+
			"already match are not touched.", words.Join(hosts), kind))
		return false
	}
	layouts, left := fleet.LayoutsOn(v.Hosts, hosts, kind)
	if len(ids) > 0 {
		layouts = slices.DeleteFunc(layouts, func(l fleet.Layout) bool {
			return !slices.ContainsFunc(l.GPUs[hosts[0]], func(id string) bool { return contains(ids, id) })
		})
	}
	why := ""
	for _, l := range left {
		why += fmt.Sprintf("\nOn %s, %s: %s.", l.Host, l.Object, l.Why)
	}
	switch {
	case len(layouts) == 0:
		has := map[gpu.Kind]string{
			gpu.KindMIG: "is in MIG mode", gpu.KindVGPU: "has vGPUs", gpu.KindGPUP: "can be partitioned",
			"": "has partitions, MIG mode or vGPUs",
		}[kind]
		diags.AddError("Nothing to import", fmt.Sprintf("Found: No GPU of %s %s and is free of other claims.%s", where(hosts, ids), has, why))
		return false
	case len(layouts) > 1:
		text := ""
		for _, l := range layouts {
			text += fmt.Sprintf("\n%s (%s): %s", l.Text, l.Kind, strings.Join(l.ImportIDs(), " and "))
		}
		diags.AddError("Several layouts to import", fmt.Sprintf("Found: The GPUs of %s have several layouts, and a config has one.\n"+
			"Fix: Import each by itself. Layouts and their import ids:%s", where(hosts, ids), text))
		return false
	}
	name := c.Name
	*c = layouts[0].PartitionConfig
	c.Name, c.GPUs = name, nil
	if len(ids) == 0 {
		return true
	}
	if out := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return contains(layouts[0].GPUs[hosts[0]], id) }); len(out) > 0 {
		diags.AddError("Nothing to import", fmt.Sprintf("Found: Of the GPUs %s, these have no layout that can be imported, or are claimed: %s.%s",
			words.Join(ids), words.Join(out), why))
		return false
	}
	c.Scope.Selector = &gpu.Selector{GPUIDs: map[string][]string{hosts[0]: ids}}
	return true
}

func where(hosts, ids []string) string {
	if len(ids) > 0 {
		return words.Join(ids) + " on " + hosts[0]
	}
	return "the hosts " + words.Join(hosts)
}

func contains(ids []string, id string) bool {
	return slices.ContainsFunc(ids, func(i string) bool { return gpu.SameID(i, id) })
}

// claimsOn are the claims of configs of a kind, or of every kind, on some hosts, that cover one
// of some GPUs, or any.
func claimsOn(v fleet.View, hosts []string, kind gpu.Kind, ids []string) map[string]gpu.Claim {
	out := map[string]gpu.Claim{}
	for _, n := range hosts {
		for c := range v.Hosts[n].ClaimsOf(gpu.ClaimConfig) {
			if c.Want.Config != nil && (kind == "" || c.Want.Config.Kind == kind) && (len(ids) == 0 || slices.ContainsFunc(ids, c.Covers)) {
				out[c.ID] = *c
			}
		}
	}
	return out
}
