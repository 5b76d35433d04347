package partitionconfig

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/document"
	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/scope"
)

type model struct {
	ID               types.String   `tfsdk:"id"`
	Name             types.String   `tfsdk:"name"`
	Hosts            types.Set      `tfsdk:"hosts"`
	Cluster          types.String   `tfsdk:"cluster"`
	Selector         types.Object   `tfsdk:"selector"`
	GPUP             types.Object   `tfsdk:"gpu_p"`
	MIG              types.Object   `tfsdk:"mig"`
	VGPU             types.Object   `tfsdk:"vgpu"`
	MPS              types.Object   `tfsdk:"mps"`
	TimeSlicing      types.Object   `tfsdk:"time_slicing"`
	QuiesceUnits     types.Set      `tfsdk:"quiesce_units"`
	MaxDisruption    types.String   `tfsdk:"max_disruption"`
	Rollout          types.Object   `tfsdk:"rollout"`
	OnDestroy        types.String   `tfsdk:"on_destroy"`
	Timeouts         timeouts.Value `tfsdk:"timeouts"`
	GPUs             types.Map      `tfsdk:"gpus"`
	Daemons          types.Map      `tfsdk:"mps_daemons"`
	PartitionVRAMMiB types.Int64    `tfsdk:"partition_vram_mib"`
	Isolation        types.String   `tfsdk:"isolation"`
	Drift            types.List     `tfsdk:"drift"`
}

type rolloutModel struct {
	MaxUnavailable types.Int64  `tfsdk:"max_unavailable"`
	Drain          types.Bool   `tfsdk:"drain"`
	OnFailure      types.String `tfsdk:"on_failure"`
}

// declared reads what the configuration asks for, once all is known that matters. GPUs are not chosen yet.
func (m *model) declared(ctx context.Context, diags *diag.Diagnostics) gpu.PartitionConfig {
	s, _ := scope.Decode(ctx, m.Hosts, m.Cluster, m.Selector, diags)
	c := gpu.PartitionConfig{
		ID: m.ID.ValueString(), Name: m.Name.ValueString(), Scope: s, GPUs: map[string][]string{},
		MaxDisruption: gpu.Disruption(m.MaxDisruption.ValueString()),
	}
	if ro := object.Decode[rolloutModel](m.Rollout, diags); ro != nil {
		c.Drain = ro.Drain.ValueBool()
	}
	if len(m.QuiesceUnits.Elements()) > 0 { // none is not written into a claim
		c.QuiesceUnits = object.Strings(ctx, m.QuiesceUnits, diags)
	}
	slices.Sort(c.QuiesceUnits)
	c.Kind = m.kind()
	m.layout(ctx, &c, diags)
	c.Restore = m.restores(c.Kind)
	return c
}

// restores tells whether a GPU that leaves gets back what it had. Of how processes share a
// GPU nothing is worth keeping: a daemon without its config would only be in the way.
func (m *model) restores(kind gpu.Kind) bool {
	if m.OnDestroy.IsNull() {
		return kind == gpu.KindMPS || kind == gpu.KindTimeSlicing
	}
	return m.OnDestroy.ValueString() == onDestroyRestore
}

// kind is the one whose block there is, "" for none, as after an import.
func (m *model) kind() gpu.Kind {
	for i, block := range m.blocks() {
		if !block.IsNull() {
			return layoutKinds[i].kind
		}
	}
	return ""
}

// kindIsOpen tells whether a config of a kind may become one of another kind, or may not: of its
// own block and of another one it is not known whether they are there.
func (m *model) kindIsOpen(kind gpu.Kind) bool {
	open, own := 0, false
	for i, block := range m.blocks() {
		if block.IsUnknown() {
			open++
			own = own || layoutKinds[i].kind == kind
		}
	}
	return own && open > 1
}

// blocks are those of the kinds, in the order of layoutKinds.
func (m *model) blocks() []*types.Object {
	return []*types.Object{&m.GPUP, &m.MIG, &m.VGPU, &m.MPS, &m.TimeSlicing}
}

// prior is declared with the GPUs that the state lists.
func prior(ctx context.Context, m *model, diags *diag.Diagnostics) gpu.Want {
	c := m.declared(ctx, diags)
	for host, gpus := range m.gpus(diags) {
		c.GPUs[host] = slices.Sorted(maps.Keys(gpus))
	}
	return gpu.Want{Config: &c}
}

// held are the hosts of which the state has something.
func (m *model) held(diags *diag.Diagnostics) []string {
	return slices.Sorted(maps.Keys(m.gpus(diags)))
}

// hasOtherCount tells whether a GPU has another partition count than the wanted one.
func (m *model) hasOtherCount(want gpu.PartitionConfig, diags *diag.Diagnostics) bool {
	if want.Kind != gpu.KindGPUP {
		return false
	}
	for _, gpus := range m.gpus(diags) {
		for _, g := range gpus {
			if g.PartitionCount.ValueInt64() != int64(want.Count) {
				return true
			}
		}
	}
	return false
}

// roll fills in how a change goes through the hosts.
func (m *model) roll(req *fleet.Request, diags *diag.Diagnostics) {
	if ro := object.Decode[rolloutModel](m.Rollout, diags); ro != nil {
		req.MaxUnavailable = int(ro.MaxUnavailable.ValueInt64())
		req.StopOnFailure = ro.OnFailure.ValueString() == onFailureStop
	}
}

// configID is what names the config: its name, or a digest of what it covers. It
// depends on configuration alone, so that it is known at the first plan.
func configID(c gpu.PartitionConfig) string {
	if c.Name != "" {
		return c.Name
	}
	sum := sha256.Sum256(document.Encode(c.Scope))
	return string(c.Kind) + "-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])[:12])
}

// own tells which claims are those of the config itself: of its id, or of its token
// while it gets another id.
func own(id, token string) func(*gpu.Claim) bool {
	return func(c *gpu.Claim) bool { return c.Is(gpu.ClaimConfig, id) || token != "" && c.Token == token }
}

// chooseGPUs fills in the GPUs that the config covers on the hosts at hand.
func chooseGPUs(c *gpu.PartitionConfig, token string, hosts []string, v fleet.View) {
	c.GPUs = map[string][]string{}
	for _, name := range hosts {
		if h, ok := v.Hosts[name]; ok {
			c.GPUs[name] = fleet.SelectKind(c.Kind, name, h, c.Scope.Selector, own(c.ID, token))
		}
	}
}

// selectsAs reports whether a configuration selects GPUs as the one did that a state is of.
func (m *model) selectsAs(state *model) bool {
	return state != nil && m.kind() == state.kind() && m.Hosts.Equal(state.Hosts) && m.Cluster.Equal(state.Cluster) &&
		m.Selector.Equal(state.Selector)
}

// mended are those differences that an apply mends.
func mended(all []change.Difference) []change.Difference {
	return slices.DeleteFunc(all, func(d change.Difference) bool { return d.Cause == change.CauseGPUMissing })
}
