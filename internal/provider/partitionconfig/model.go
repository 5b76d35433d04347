package partitionconfig

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

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
	MaxDisruption    types.String   `tfsdk:"max_disruption"`
	Rollout          types.Object   `tfsdk:"rollout"`
	OnDestroy        types.String   `tfsdk:"on_destroy"`
	Timeouts         timeouts.Value `tfsdk:"timeouts"`
	GPUs             types.Map      `tfsdk:"gpus"`
	PartitionVRAMMiB types.Int64    `tfsdk:"partition_vram_mib"`
	Isolation        types.String   `tfsdk:"isolation"`
	Drift            types.List     `tfsdk:"drift"`
}

type identityModel struct {
	ID types.String `tfsdk:"id"`
}

type gpuPModel struct {
	PartitionCount types.Int64 `tfsdk:"partition_count"`
}

type rolloutModel struct {
	MaxUnavailable types.Int64  `tfsdk:"max_unavailable"`
	Drain          types.Bool   `tfsdk:"drain"`
	OnFailure      types.String `tfsdk:"on_failure"`
}

type gpuModel struct {
	Model            types.String `tfsdk:"model"`
	Layout           types.String `tfsdk:"layout"`
	PartitionCount   types.Int64  `tfsdk:"partition_count"`
	PartitionVRAMMiB types.Int64  `tfsdk:"partition_vram_mib"`
}

var (
	gpuPType = map[string]attr.Type{"partition_count": types.Int64Type}
	gpuType  = types.ObjectType{AttrTypes: map[string]attr.Type{
		"model": types.StringType, "layout": types.StringType,
		"partition_count": types.Int64Type, "partition_vram_mib": types.Int64Type,
	}}
	gpusOfHostType = types.MapType{ElemType: gpuType}
)

// isolation of GPU-P: partitions are SR-IOV virtual functions with memory of their own.
const isolation = "hardware"

// declared reads what the configuration asks for. known is false while any part is
// unknown. GPUs are not chosen yet.
func (m *model) declared(ctx context.Context, diags *diag.Diagnostics) (c gpu.PartitionConfig, known bool) {
	s, known := scope.Decode(ctx, m.Hosts, m.Cluster, m.Selector, diags)
	if !known || !object.Known(ctx, m.GPUP, m.Name) {
		return gpu.PartitionConfig{}, false
	}
	c = gpu.PartitionConfig{
		ID: m.ID.ValueString(), Name: m.Name.ValueString(), Scope: s, GPUs: map[string][]string{},
		MaxDisruption: gpu.Disruption(m.MaxDisruption.ValueString()), Restore: m.OnDestroy.ValueString() == onDestroyRestore,
	}
	if ro := object.Decode[rolloutModel](ctx, m.Rollout, diags); ro != nil {
		c.Drain = ro.Drain.ValueBool()
	}
	if p := object.Decode[gpuPModel](ctx, m.GPUP, diags); p != nil {
		c.Count = int(p.PartitionCount.ValueInt64())
	}
	return c, true
}

// prior is declared with the GPUs that the state lists.
func (m *model) prior(ctx context.Context, diags *diag.Diagnostics) *gpu.PartitionConfig {
	if m == nil {
		return nil
	}
	c, _ := m.declared(ctx, diags)
	for host, gpus := range m.gpus(ctx, diags) {
		c.GPUs[host] = slices.Sorted(maps.Keys(gpus))
	}
	return &c
}

func (m *model) gpus(ctx context.Context, diags *diag.Diagnostics) map[string]map[string]gpuModel {
	out := map[string]map[string]gpuModel{}
	if m != nil && !m.GPUs.IsNull() && !m.GPUs.IsUnknown() {
		diags.Append(m.GPUs.ElementsAs(ctx, &out, false)...)
	}
	return out
}

// hasOtherCount tells whether a GPU has another count than the wanted one.
func (m *model) hasOtherCount(ctx context.Context, want int, diags *diag.Diagnostics) bool {
	for _, gpus := range m.gpus(ctx, diags) {
		for _, g := range gpus {
			if g.PartitionCount.ValueInt64() != int64(want) {
				return true
			}
		}
	}
	return false
}

// roll fills in how a change goes through the hosts.
func (m *model) roll(ctx context.Context, req *fleet.Request, diags *diag.Diagnostics) {
	if ro := object.Decode[rolloutModel](ctx, m.Rollout, diags); ro != nil {
		req.MaxUnavailable = int(ro.MaxUnavailable.ValueInt64())
		req.StopOnFailure = ro.OnFailure.ValueString() == onFailureStop
	}
}

// configID is what names the config: its name, or a digest of what it covers. It
// depends on configuration alone, so that it is known at the first plan.
func configID(c gpu.PartitionConfig) (string, error) {
	if c.Name != "" {
		return c.Name, nil
	}
	raw, err := json.Marshal(c.Scope)
	if err != nil {
		return "", fmt.Errorf("cannot make an id: %w", err)
	}
	sum := sha256.Sum256(raw)
	return "gpu_p-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])[:12]), nil
}

// own tells which claims are those of the config itself: of its id, or of its token
// while it gets another id.
func own(id, token string) func(*gpu.Claim) bool {
	return func(c *gpu.Claim) bool { return c.Is(gpu.ClaimConfig, id) || token != "" && c.Token == token }
}

// choose fills in the GPUs that the config covers on the hosts at hand.
func choose(c *gpu.PartitionConfig, token string, hosts []string, v fleet.View) {
	c.GPUs = map[string][]string{}
	for _, name := range hosts {
		if h, ok := v.Hosts[name]; ok {
			c.GPUs[name] = fleet.SelectPartitionable(name, h, c.Scope.Selector, own(c.ID, token))
		}
	}
}

// observe writes what the hosts have into the computed attributes. Hosts that did
// not answer keep what the model had, and so do hosts that the config has left
// without being told.
func (m *model) observe(ctx context.Context, c gpu.PartitionConfig, hosts []string, v fleet.View, diags *diag.Diagnostics) {
	before := m.gpus(ctx, diags)
	all := map[string]map[string]gpuModel{}
	var drift []string
	for _, name := range hosts {
		h, answered := v.Hosts[name]
		if !answered {
			if b, ok := before[name]; ok {
				all[name] = b
			}
			continue
		}
		var found []string
		all[name], found = observeHost(c, name, h)
		drift = append(drift, found...)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		h, answered := v.Hosts[name]
		if slices.Contains(hosts, name) || answered && claimOn(h, c.ID) == nil {
			continue
		}
		all[name] = before[name]
		drift = append(drift, fmt.Sprintf("host %s: it is not one of the config's hosts any more, but has not been given up yet", name))
	}

	sizes := map[int64]bool{}
	for _, gpus := range all {
		for _, g := range gpus {
			sizes[g.PartitionVRAMMiB.ValueInt64()] = true
		}
	}
	m.PartitionVRAMMiB = types.Int64Null()
	if len(sizes) == 1 {
		for size := range sizes {
			m.PartitionVRAMMiB = types.Int64Value(size)
		}
	}
	var d diag.Diagnostics
	m.GPUs, d = types.MapValueFrom(ctx, gpusOfHostType, all)
	diags.Append(d...)
	m.Isolation = types.StringValue(isolation)
	m.Drift, d = types.ListValueFrom(ctx, types.StringType, append([]string{}, drift...))
	diags.Append(d...)
}

// observeHost tells what a host has of the config, and where that differs from what
// is declared.
func observeHost(c gpu.PartitionConfig, name string, h *gpu.Host) (gpus map[string]gpuModel, drift []string) {
	gpus = map[string]gpuModel{}
	claim := claimOn(h, c.ID)
	for _, id := range fleet.SelectPartitionable(name, h, c.Scope.Selector, own(c.ID, "")) {
		g, ok := h.GPU(id)
		if !ok || g.Partitionable == nil {
			continue // lost
		}
		p := g.Partitionable
		if claim != nil && !claim.Covers(id) {
			// It joins with the next apply, and until then the rules see it as new.
			drift = append(drift, fmt.Sprintf("host %s, GPU %s (%s): is new and not in the config yet; it has %d partitions, declared are %d",
				name, id, g.Model, p.Count, c.Count))
			continue
		}
		gpus[id] = gpuModel{
			Model: types.StringValue(g.Model), Layout: types.StringValue(fmt.Sprintf("gpu_p:%d", p.Count)),
			PartitionCount: types.Int64Value(int64(p.Count)), PartitionVRAMMiB: types.Int64Value(p.PartitionVRAM().MiB()),
		}
		if p.Count != c.Count {
			drift = append(drift, fmt.Sprintf("host %s, GPU %s (%s): has %d partitions, declared are %d", name, id, g.Model, p.Count, c.Count))
		}
	}
	if claim != nil && claim.Incomplete {
		drift = append(drift, fmt.Sprintf("host %s: an earlier change of this config did not succeed on every host", name))
	}
	return gpus, drift
}

// claimOn is a config's claim on a host.
func claimOn(h *gpu.Host, id string) *gpu.Claim {
	for i := range h.Claims {
		if c := &h.Claims[i]; c.Is(gpu.ClaimConfig, id) {
			return c
		}
	}
	return nil
}

// warnLost tells of GPUs that the model lists and that their hosts no longer offer.
// There is nothing to apply, so that is no drift.
func (m *model) warnLost(ctx context.Context, c gpu.PartitionConfig, v fleet.View, diags *diag.Diagnostics) {
	before := m.gpus(ctx, diags)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		h, answered := v.Hosts[name]
		if !answered {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(before[name])) {
			if g, ok := h.GPU(id); ok && g.Partitionable != nil {
				continue
			}
			diags.AddWarning("GPU is lost", fmt.Sprintf("%s\n\nHost: %s\nFound: it no longer offers GPU %s (%s) for partitioning.\n"+
				"The config goes on without it. When the GPU comes back it is partitioned again.", label(c.ID), name, id, before[name][id].Model.ValueString()))
		}
	}
}

// drifted are the sentences that the last Read left.
func (m *model) drifted(ctx context.Context, diags *diag.Diagnostics) []string {
	if m.Drift.IsUnknown() {
		return nil
	}
	return object.Strings(ctx, m.Drift, diags)
}
