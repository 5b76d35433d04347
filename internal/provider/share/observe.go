package share

import (
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/report"
)

// observe writes what the host has into the computed attributes. s is the share as it is
// declared, with the place that is known of it; where its claim says better, the claim
// counts.
func (m *model) observe(ctx context.Context, host string, h *gpu.Host, s gpu.Share, diags *diag.Diagnostics) {
	claim, claimed := h.Claim(gpu.ClaimShare, s.Name)
	if claimed && claim.Want.Share != nil && len(claim.Want.Share.Devices) > 0 {
		s.Devices = claim.Want.Share.Devices
	}
	if unknown(h, &s) && !m.Devices.IsNull() && !m.Devices.IsUnknown() {
		return // what the state has is the best that anybody knows
	}
	facts := placement.DescribeShare(h, &s)
	m.Host, m.CDIDevice = types.StringValue(host), types.StringValue(gpu.CDIDevice(s.Name))
	if !lost(h, &s) || m.Mode.IsNull() || m.Mode.IsUnknown() { // of a GPU that is gone nobody knows how it was shared
		m.Mode, m.Isolation = types.StringValue(string(facts.Mode)), types.StringValue(string(facts.Isolation))
		m.Enforcement = types.StringValue(string(facts.Enforcement))
		m.Fraction = types.Float64Value(object.Round(facts.Fraction))
	}
	m.observeDevices(ctx, h, s.Devices, diags)

	handed, _ := h.HandedShare(s.Name)
	if handed != nil || m.Environment.IsNull() || m.Environment.IsUnknown() {
		env := map[string]string{}
		if handed != nil {
			maps.Copy(env, handed.Environment)
		}
		m.Environment = object.MapOf(ctx, types.StringType, env, diags)
	}
	differs := change.ShareDifferences(h, &s, claim)
	for i := range differs {
		differs[i].Object = "host " + host + ", share " + s.Name
	}
	m.Drift = report.EncodeDrift(ctx, differs, diags)
}

// lost tells whether the host no longer has a GPU of a share.
func lost(h *gpu.Host, s *gpu.Share) bool {
	return slices.ContainsFunc(s.Devices, func(d gpu.SharedDevice) bool { _, has := h.GPU(d.GPU); return !has })
}

// unknown tells whether the host could not read what a share is.
func unknown(h *gpu.Host, s *gpu.Share) bool {
	_, is := h.UnknownPart(gpu.PartShares)
	for _, d := range s.Devices {
		_, dark := h.UnknownGPU(d.GPU)
		is = is || dark
	}
	return is
}

// observeDevices lists where the share is. GPUs that the user named keep their spelling.
func (m *model) observeDevices(ctx context.Context, h *gpu.Host, devices []gpu.SharedDevice, diags *diag.Diagnostics) {
	list, ids := []deviceModel{}, []string{}
	for _, dev := range devices {
		entry := deviceModel{GPUID: types.StringValue(dev.GPU), UUID: types.StringNull()}
		if id, ok := h.UUID(dev); ok {
			entry.UUID = types.StringValue(id)
		}
		if dev.Instance != nil {
			entry.MIGProfile, entry.MIGStart = types.StringValue(dev.Instance.Profile), types.Int64Value(int64(dev.Instance.Start))
		}
		list, ids = append(list, entry), append(ids, dev.GPU)
	}
	m.Devices = object.ListOf(ctx, deviceType, list, diags)
	if !m.GPUIDs.IsNull() && !m.GPUIDs.IsUnknown() && sameGPUs(object.Strings(ctx, m.GPUIDs, diags), ids) {
		return
	}
	slices.Sort(ids)
	m.GPUIDs = object.SetOf(ctx, types.StringType, slices.Compact(ids), diags)
}

// sameGPUs compares two lists of ids as sets.
func sameGPUs(a, b []string) bool {
	within := func(list, other []string) bool {
		return !slices.ContainsFunc(list, func(id string) bool {
			return !slices.ContainsFunc(other, func(o string) bool { return gpu.SameID(o, id) })
		})
	}
	return within(a, b) && within(b, a)
}
