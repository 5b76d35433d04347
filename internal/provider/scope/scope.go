// Package scope is how resources and data sources name hosts and GPUs: hosts or a
// cluster, and a selector.
package scope

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// SomeNames refuse an empty set, and names that are empty or null.
func SomeNames(empty tfschema.Nonempty) []validator.Set {
	return append([]validator.Set{empty}, NameValidators()...)
}

// HostsOrCluster refuse an empty set of hosts, unless there is a cluster, and names that are empty or null.
func HostsOrCluster() []validator.Set {
	return SomeNames(tfschema.Nonempty{Fix: "Name a host, or a `cluster`.", Unless: []string{"cluster"}})
}

// NameValidators refuse names that are empty or null.
func NameValidators() []validator.Set {
	return []validator.Set{setvalidator.NoNullValues(), setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))}
}

// GPUIDValidator refuses GPU ids that are empty or null in a map of host → set of ids.
func GPUIDValidator() validator.Map {
	return mapvalidator.ValueSetsAre(setvalidator.NoNullValues(), setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1)), Once)
}

// Once refuses a set that names one GPU in two spellings: ids are compared without case.
var Once validator.Set = once{"must name each GPU once"}

type once struct{ tfschema.Must }

func (once) ValidateSet(_ context.Context, req validator.SetRequest, resp *validator.SetResponse) {
	named := map[string]string{}
	for _, element := range req.ConfigValue.Elements() {
		id, ok := element.(types.String)
		if !ok || id.IsNull() || id.IsUnknown() {
			continue
		}
		text := id.ValueString()
		if other, again := named[gpu.FoldID(text)]; again {
			resp.Diagnostics.AddAttributeError(req.Path, "One GPU is named twice", fmt.Sprintf(
				"Found: Attribute %s names %q and %q, which are one GPU: ids are compared without case.\nFix: Write it once.",
				req.Path, min(other, text), max(other, text)))
		}
		named[gpu.FoldID(text)] = text
	}
}

// SelectorType is the type of the selector attribute.
var SelectorType = tfschema.TypesOf(SelectorAttributes())

// What the parts of the selector are, for registry pages.
const (
	ModelsText = "GPU models to take, such as `\"NVIDIA A2\"` or `\"A2\"`. `[]` is refused."
	GPUIDsText = "GPUs to take, by host: on a host that is named here exactly these GPUs are taken, on others the map " +
		"does not narrow anything. A GPU's id is its PCI location path on Hyper-V and its UUID on Linux; data source `gpu_inventory` lists " +
		"them. `[]` of a host is no GPU of it, `{}` is refused."
)

// SelectorAttributes are the attributes inside selector, for a resource.
func SelectorAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"models": tfschema.OptionalSetOf(types.StringType, ModelsText,
			SomeNames(tfschema.Nonempty{Fix: "Leave `models` out, or null, for every model."})...),
		"gpu_ids": tfschema.OptionalMapOf(types.SetType{ElemType: types.StringType}, GPUIDsText, tfschema.Nonempty{
			Fix: "Leave `gpu_ids` out, or null, for every GPU; `[]` of a host is no GPU of it.",
		}, GPUIDValidator()),
	}
}

type selectorModel struct {
	Models types.Set `tfsdk:"models"`
	GPUIDs types.Map `tfsdk:"gpu_ids"`
}

// Decode reads the scope of a configuration. known is false while any part of it is
// unknown.
func Decode(
	ctx context.Context, hosts types.Set, cluster types.String, selector types.Object, diags *diag.Diagnostics,
) (s gpu.Scope, known bool) {
	if !object.Known(hosts, cluster, selector) {
		return gpu.Scope{}, false
	}
	if len(hosts.Elements()) > 0 {
		s.Hosts = object.Strings(ctx, hosts, diags)
	}
	slices.Sort(s.Hosts)
	s.Cluster = cluster.ValueString()
	if m := object.Decode[selectorModel](selector, diags); m != nil {
		s.Selector = &gpu.Selector{Models: object.Strings(ctx, m.Models, diags)}
		slices.Sort(s.Selector.Models)
		s.Selector.GPUIDs = GPUIDs(ctx, m.GPUIDs, diags)
	}
	return s, true
}

// GPUIDs reads a known map of host → set of GPU ids; null and an empty one give nil.
func GPUIDs(ctx context.Context, m types.Map, diags *diag.Diagnostics) map[string][]string {
	if len(m.Elements()) == 0 {
		return nil
	}
	out := map[string][]string{}
	diags.Append(m.ElementsAs(ctx, &out, false)...)
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}

// Encode is Decode's inverse, for import.
func Encode(ctx context.Context, s gpu.Scope, diags *diag.Diagnostics) (hosts types.Set, cluster types.String, selector types.Object) {
	hosts, cluster, selector = types.SetNull(types.StringType), object.NullIfEmpty(s.Cluster), types.ObjectNull(SelectorType)
	if len(s.Hosts) > 0 {
		hosts = object.SetOf(ctx, types.StringType, s.Hosts, diags)
	}
	if s.Selector != nil {
		m := selectorModel{Models: types.SetNull(types.StringType), GPUIDs: types.MapNull(types.SetType{ElemType: types.StringType})}
		if len(s.Selector.Models) > 0 {
			m.Models = object.SetOf(ctx, types.StringType, s.Selector.Models, diags)
		}
		if len(s.Selector.GPUIDs) > 0 {
			m.GPUIDs = object.MapOf(ctx, types.SetType{ElemType: types.StringType}, s.Selector.GPUIDs, diags)
		}
		selector = object.NestedOf(ctx, SelectorType, m, diags)
	}
	return hosts, cluster, selector
}

// Has is where an object is by its state, which a configuration goes on meaning that is as it was when that was written.
type Has struct {
	Cluster string
	Hosts   []string
}

// still are the hosts of a cluster that no host is a node of by now: those that the object has.
func (h Has) still(cluster string) []string {
	if h.Cluster != cluster {
		return nil
	}
	return h.Hosts
}

// UnknownCluster says that no host is a node of the cluster that the configuration
// names.
func UnknownCluster(f *fleet.Fleet, all fleet.View, cluster string, diags *diag.Diagnostics) {
	diags.AddAttributeError(path.Root("cluster"), "Unknown cluster", fmt.Sprintf(
		"Found: None of the provider's hosts (%s) is a node of a cluster called %q.\nFix: %s", words.Join(f.HostNames()), cluster,
		words.Meant(cluster, Clusters(all), "Write the cluster's name as data source gpu_inventory shows it, or name the hosts.")))
}

// Clusters are the clusters that hosts are nodes of.
func Clusters(v fleet.View) []string {
	var names []string
	for _, h := range v.Hosts {
		if name := h.ClusterName(); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// UnknownHost says what is wrong with a name that is none of the provider's hosts.
func UnknownHost(f *fleet.Fleet, name string) string {
	return fmt.Sprintf("Found: %q is not a host of the provider, which knows %s.\nFix: %s", name, words.Some(name, f.HostNames()),
		words.Meant(name, f.HostNames(), "Correct the name, or add the host to the provider's configuration."))
}

// UnknownHostOrCluster says the same of a name that may be a cluster's.
func UnknownHostOrCluster(ctx context.Context, f *fleet.Fleet, name string) string {
	clusters := Clusters(f.Snapshot(ctx, f.HostNames()))
	return fmt.Sprintf("Found: %q is neither a host of the provider, which knows %s, nor a cluster of one.\nFix: %s", name,
		words.Some(name, f.HostNames()), words.Meant(name, slices.Concat(f.HostNames(), clusters), "Correct the name."))
}

// Hosts resolves a scope to hosts of the provider and looks at them and at the
// other hosts of their clusters. A name that the provider does not know is an error
// at the attribute. ok is false when the hosts of a cluster cannot be told because
// some host does not answer and may belong to it.
func Hosts(
	ctx context.Context, f *fleet.Fleet, s gpu.Scope, has Has, diags *diag.Diagnostics,
) (names []string, v fleet.View, ok bool) {
	if s.Cluster != "" {
		v = f.Snapshot(ctx, f.HostNames())
		members, unknown := f.ClusterHosts(v, s.Cluster)
		if len(members) == 0 && len(unknown) == 0 {
			if still := has.still(s.Cluster); len(still) > 0 {
				return still, f.Snapshot(ctx, still, fleet.WithClusterPeers), true
			}
			UnknownCluster(f, v, s.Cluster, diags)
			return nil, v, false
		}
		// Hosts of other clusters are of no concern, whether they answer or not.
		out := fleet.View{Hosts: map[string]*gpu.Host{}, Errors: map[string]error{}}
		for _, n := range members {
			out.Hosts[n] = v.Hosts[n]
		}
		for _, n := range unknown {
			out.Errors[n] = v.Errors[n]
		}
		names = slices.Concat(members, unknown)
		return names, out, within(s.Selector, names, diags)
	}
	if known := Known(f, s.Hosts, path.Root("hosts"), diags); !within(s.Selector, s.Hosts, diags) || !known {
		return nil, fleet.View{}, false
	}
	return s.Hosts, f.Snapshot(ctx, s.Hosts, fleet.WithClusterPeers), true
}

// Known refuses names that the provider does not know, at the attribute that has them.
func Known(f *fleet.Fleet, names []string, at path.Path, diags *diag.Diagnostics) bool {
	for _, n := range names {
		if !f.Has(n) {
			diags.AddAttributeError(at, "Unknown host", UnknownHost(f, n))
		}
	}
	return !diags.HasError()
}

// Stated are the hosts of a scope as a state has it, those that do not answer and may be of its cluster included.
// A cluster that no host is a node of any more is told, and the object stays where it is.
func Stated(ctx context.Context, f *fleet.Fleet, s gpu.Scope, has []string, diags *diag.Diagnostics) []string {
	if s.Cluster == "" {
		return s.Hosts
	}
	members, unknown := f.ClusterHosts(f.Snapshot(ctx, f.HostNames()), s.Cluster)
	if len(members)+len(unknown) == 0 && len(has) > 0 {
		diags.AddAttributeWarning(path.Root("cluster"), "The cluster is not there any more", fmt.Sprintf(
			"Found: None of the provider's hosts (%s) is a node of a cluster called %q. The resource stays on %s.\n"+
				"Fix: Write the name that the cluster has now, as data source gpu_inventory shows it, or name the hosts.",
			words.Join(f.HostNames()), s.Cluster, words.Join(has)))
		return has
	}
	return slices.Concat(members, unknown)
}

// Named are the hosts that a data source names, all of the provider's for null. A name that the
// provider does not know is an error at the attribute.
func Named(ctx context.Context, f *fleet.Fleet, hosts types.Set, diags *diag.Diagnostics) []string {
	if hosts.IsNull() {
		return f.HostNames()
	}
	names := object.Strings(ctx, hosts, diags)
	slices.Sort(names)
	for _, n := range names {
		if !f.Has(n) {
			diags.AddAttributeError(path.Root("hosts"), "Unknown host", UnknownHost(f, n))
		}
	}
	return names
}

// within refuses a selector that names GPUs of a host outside the scope: it would
// select nothing there, silently.
func within(sel *gpu.Selector, hosts []string, diags *diag.Diagnostics) bool {
	if sel == nil {
		return true
	}
	ok := true
	for _, n := range slices.Sorted(maps.Keys(sel.GPUIDs)) {
		if !slices.Contains(hosts, n) {
			ok = false
			diags.AddAttributeError(path.Root("selector"), "Host is not in scope", fmt.Sprintf(
				"Found: selector.gpu_ids names host %q, but the hosts here are %s.\nFix: %s", n, words.Some(n, hosts),
				words.Meant(n, hosts, "Correct the name, or add the host.")))
		}
	}
	return ok
}

// Kind is the one whose block a configuration has, in the order of gpu.Kinds; "" for none, as
// after an import.
func Kind(blocks ...types.Object) gpu.Kind {
	for i, kind := range gpu.Kinds() {
		if !blocks[i].IsNull() {
			return kind
		}
	}
	return ""
}
