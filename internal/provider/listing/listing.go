// Package listing is the list resources, by which `terraform query` finds what hosts have.
package listing

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

// Type is a type of resource that can be listed.
type Type struct {
	Name    string        // in configurations
	Object  string        // for people, in the plural
	Claim   gpu.ClaimKind // of its claims
	KindsOf string        // what kind is, for registry pages; "" for a type without
	Kinds   []string
	// Kind is the kind of an object of the type.
	Kind func(*fleet.Adoptable) string
	// Describe fills in the identity of an object, and its attributes where all is true.
	Describe func(ctx context.Context, f *fleet.Fleet, v fleet.View, a *fleet.Adoptable, all bool, out *list.ListResult)
}

// New makes the list resource of a type.
func (t Type) New() list.ListResource { return &lister{Type: t} }

type lister struct {
	Type
	fleet *fleet.Fleet
}

var _ list.ListResourceWithConfigure = (*lister)(nil)

// Metadata implements list.ListResource.
func (l *lister) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = l.Name
}

// Configure implements list.ListResourceWithConfigure.
func (l *lister) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	l.fleet, _ = req.ProviderData.(*fleet.Fleet)
	report.NoHosts(&resp.Diagnostics, l.fleet, false)
}

// ListResourceConfigSchema implements list.ListResource.
func (l *lister) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Lists " + l.Object + " that hosts have and that this state can import: those that nobody has a record of, " +
			"and those of the provider's `owner`. Changes nothing. Requires Terraform 1.14.",
		Attributes: map[string]schema.Attribute{
			"host": tfschema.OptionalText("Lists those of one host only, as the provider names it.", stringvalidator.LengthAtLeast(1),
				stringvalidator.ConflictsWith(path.MatchRoot("cluster"))),
			"cluster":   tfschema.OptionalText("Lists those of the hosts of a failover cluster only.", stringvalidator.LengthAtLeast(1)),
			"unmanaged": tfschema.OptionalFlag("Lists only what no Terraform state has a record of. Default `false`."),
		},
	}
	if l.KindsOf != "" {
		resp.Schema.Attributes["kind"] = tfschema.OptionalText(l.KindsOf+": one of `"+strings.Join(l.Kinds, "`, `")+"`.",
			stringvalidator.OneOf(l.Kinds...))
	}
}

// List implements list.ListResource.
func (l *lister) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	var diags diag.Diagnostics
	var host, cluster, kind types.String
	var unmanaged types.Bool
	diags.Append(req.Config.GetAttribute(ctx, path.Root("host"), &host)...)
	diags.Append(req.Config.GetAttribute(ctx, path.Root("cluster"), &cluster)...)
	diags.Append(req.Config.GetAttribute(ctx, path.Root("unmanaged"), &unmanaged)...)
	if l.KindsOf != "" {
		diags.Append(req.Config.GetAttribute(ctx, path.Root("kind"), &kind)...)
	}
	if l.fleet == nil || l.fleet.Unknown() {
		diags.AddError("Hosts are not known", "Found: The provider's configuration has values that are not known.\n"+
			"Fix: List with values that are.")
	}
	if diags.HasError() {
		stream.Results = list.ListResultsStreamDiagnostics(diags)
		return
	}
	within := gpu.Scope{Hosts: l.fleet.HostNames(), Cluster: cluster.ValueString()}
	if !host.IsNull() {
		within.Hosts = []string{host.ValueString()}
	}
	names, view, ok := scope.Hosts(ctx, l.fleet, within, scope.Has{}, &diags)
	if ok {
		ok = report.Unreachable(&diags, l.fleet, "list of "+l.Object, view, names...)
	}
	if !ok || diags.HasError() {
		stream.Results = list.ListResultsStreamDiagnostics(diags)
		return
	}
	wanted := filter{Type: l.Type, hosts: names, unmanaged: unmanaged.ValueBool(), kind: kind}
	found, left := fleet.Adoptables(view.Hosts, l.fleet.Owner())
	found = slices.DeleteFunc(found, func(a fleet.Adoptable) bool { return !wanted.has(&a) })
	wanted.warnOfLeft(left, &diags)
	if req.Limit > 0 && int64(len(found)) > req.Limit {
		found = found[:req.Limit]
	}
	stream.Results = l.results(ctx, req, view, found, diags)
}

// filter is what a configuration lists of a type.
type filter struct {
	Type
	hosts     []string
	unmanaged bool
	kind      types.String // null for all
}

func (f filter) on(host string) bool { return slices.Contains(f.hosts, host) }

func (f filter) has(a *fleet.Adoptable) bool {
	if a.Kind() != f.Claim || !slices.ContainsFunc(a.Hosts, f.on) {
		return false
	}
	return !(f.unmanaged && a.Claim != nil) && (f.kind.IsNull() || f.Kind(a) == f.kind.ValueString())
}

// warnOfLeft names what no import can take.
func (f filter) warnOfLeft(left []fleet.Left, diags *diag.Diagnostics) {
	text := ""
	for _, x := range left {
		if x.Kind == f.Claim && f.on(x.Host) && (!f.unmanaged || !x.Claimed) {
			text += fmt.Sprintf("\nOn %s, %s: %s.", x.Host, x.Object, x.Why)
		}
	}
	if text != "" {
		diags.AddWarning("Some "+f.Object+" are left out", "Found: No import can take these."+text)
	}
}

func (l *lister) results(
	ctx context.Context, req list.ListRequest, v fleet.View, found []fleet.Adoptable, diags diag.Diagnostics,
) iter.Seq[list.ListResult] {
	return func(push func(list.ListResult) bool) {
		if len(diags) > 0 && !push(list.ListResult{Diagnostics: diags}) {
			return
		}
		for i := range found {
			out := req.NewListResult(ctx)
			out.DisplayName = found[i].String()
			l.Describe(ctx, l.fleet, v, &found[i], req.IncludeResource, &out)
			if !push(out) {
				return
			}
		}
	}
}
