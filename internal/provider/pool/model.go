package pool

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/tfschema"
)

type model struct {
	ID        types.String   `tfsdk:"id"`
	Name      types.String   `tfsdk:"name"`
	Members   types.Map      `tfsdk:"members"`
	Hosts     types.Set      `tfsdk:"hosts"`
	Cluster   types.String   `tfsdk:"cluster"`
	Selector  types.Object   `tfsdk:"selector"`
	Dismount  types.Object   `tfsdk:"dismount"`
	Quotas    types.Map      `tfsdk:"quotas"`
	OnDestroy types.String   `tfsdk:"on_destroy"`
	Timeouts  timeouts.Value `tfsdk:"timeouts"`
	GPUs      types.Map      `tfsdk:"gpus"`
	Drift     types.List     `tfsdk:"drift"`
}

type identityModel struct {
	Cluster types.String `tfsdk:"cluster"`
	Host    types.String `tfsdk:"host"`
	Name    types.String `tfsdk:"name"`
}

// hostModel is one host in the attribute gpus.
type hostModel struct {
	GPUs map[string]gpuModel `tfsdk:"gpus"`
}

type gpuModel struct {
	Model   types.String `tfsdk:"model"`
	Address types.String `tfsdk:"address"`
	VRAMMiB types.Int64  `tfsdk:"vram_mib"`
}

var (
	hostType   = types.ObjectType{AttrTypes: tfschema.TypesOf(hostAttributes())}
	memberType = types.SetType{ElemType: types.StringType}
)

// poolID is the cluster, or else the first host, and the name: a function of
// configuration alone, so that it is known at the first plan.
func poolID(s gpu.Scope, members map[string][]string, name string) string {
	if s.Cluster != "" {
		return s.Cluster + "/" + name
	}
	hosts := slices.Concat(s.Hosts, slices.Collect(maps.Keys(members)))
	slices.Sort(hosts)
	if len(hosts) == 0 {
		return name
	}
	return hosts[0] + "/" + name
}

// declared reads what the configuration asks for, once all is known that matters. With members the GPUs are those; otherwise they are not
// chosen yet.
func (m *model) declared(ctx context.Context, diags *diag.Diagnostics) gpu.PoolConfig {
	s, _ := scope.Decode(ctx, m.Hosts, m.Cluster, m.Selector, diags)
	c := gpu.PoolConfig{
		ID: m.ID.ValueString(), Name: m.Name.ValueString(), Scope: s, MountBack: m.OnDestroy.ValueString() == onDestroyMountBack,
		Members: scope.GPUIDs(ctx, m.Members, diags), Quotas: decodeQuotas(ctx, m.Quotas, diags),
	}
	c.Force = scope.ByForce(m.Dismount, diags)
	return c
}

// prior is declared with the GPUs that the state lists.
func prior(ctx context.Context, m *model, diags *diag.Diagnostics) gpu.Want {
	c := m.declared(ctx, diags)
	members := map[string][]string{}
	for host, gpus := range m.gpus(ctx, diags) {
		members[host] = slices.AppendSeq([]string{}, maps.Keys(gpus))
		slices.Sort(members[host])
	}
	for host := range c.Members { // a host whose GPUs are all lost is still a member
		if _, ok := members[host]; !ok {
			members[host] = []string{}
		}
	}
	c.Members = members
	return gpu.Want{Pool: &c}
}

// held are the hosts of which the state has something.
func (m *model) held(ctx context.Context, diags *diag.Diagnostics) []string {
	return slices.Sorted(maps.Keys(m.gpus(ctx, diags)))
}

func (m *model) gpus(ctx context.Context, diags *diag.Diagnostics) map[string]map[string]gpuModel {
	hosts, out := map[string]hostModel{}, map[string]map[string]gpuModel{}
	if m != nil && !m.GPUs.IsNull() && !m.GPUs.IsUnknown() {
		diags.Append(m.GPUs.ElementsAs(ctx, &hosts, false)...)
	}
	for name, host := range hosts {
		out[name] = host.GPUs
	}
	return out
}

// chooseMembers fills in the members of a pool that is declared by hosts or cluster. What it replaces has
// gone by then.
func chooseMembers(c *gpu.PoolConfig, replaced *gpu.PoolConfig, hosts []string, v fleet.View) {
	if c.Members != nil {
		return
	}
	c.Members = map[string][]string{}
	pools := []string{c.Name}
	if replaced != nil {
		pools = append(pools, replaced.Name)
	}
	for _, name := range hosts {
		if h, ok := v.Hosts[name]; ok {
			c.Members[name] = fleet.SelectWhole(name, h, c.Scope.Selector, pools...)
		}
	}
}

// selectsAs reports whether a configuration selects GPUs as the one did that a state is of.
func (m *model) selectsAs(state *model) bool {
	return state != nil && m.Name.Equal(state.Name) && m.Hosts.Equal(state.Hosts) && m.Cluster.Equal(state.Cluster) &&
		m.Selector.Equal(state.Selector) && m.Members.Equal(state.Members)
}

// imported reports whether only the id and the name are known.
func (m *model) imported() bool { return m.Members.IsNull() && m.Hosts.IsNull() && m.Cluster.IsNull() }

// identity splits the id into what Terraform identifies a pool by.
func (m *model) identity(f *fleet.Fleet) identityModel {
	at, name, _ := strings.Cut(m.ID.ValueString(), "/")
	i := identityModel{Cluster: types.StringNull(), Host: types.StringNull(), Name: types.StringValue(name)}
	if m.Cluster.ValueString() == at || !f.Has(at) {
		i.Cluster = types.StringValue(at)
	} else {
		i.Host = types.StringValue(at)
	}
	return i
}
