package pool

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// usageModel is what the shares of a label have of a pool, beside its quota.
type usageModel struct {
	GPUs          *float64 `tfsdk:"gpus"`
	MemoryMiB     *int64   `tfsdk:"memory_mib"`
	Shares        *int64   `tfsdk:"shares"`
	UsedGPUs      float64  `tfsdk:"used_gpus"`
	UsedMemoryMiB int64    `tfsdk:"used_memory_mib"`
	UsedShares    int64    `tfsdk:"used_shares"`
}

// usage tells for each label that has a quota or a share what its shares have of a pool
// on the hosts of a view. Shares without a label go by "".
func usage(v fleet.View, name string) map[string]usageModel {
	used, memory := map[string]usageModel{}, map[string]gpu.Bytes{}
	for _, h := range v.Hosts {
		p, ok := poolClaim(h, name)
		if !ok {
			continue
		}
		for label, q := range p.Quotas {
			u := used[label]
			u.GPUs, u.MemoryMiB, u.Shares = q.GPUs, object.MiBFromBytes(q.Memory).ValueInt64Pointer(),
				object.Int64FromInt(q.Shares).ValueInt64Pointer()
			used[label] = u
		}
		for _, s := range sharesOf(h, p.ID) {
			u := used[s.Label]
			u.UsedShares++
			u.UsedGPUs += placement.DescribeShare(h, s).Fraction
			for _, d := range s.Devices {
				memory[s.Label] += placement.PlacedDevice(h, d).Request(s)
			}
			used[s.Label] = u
		}
	}
	for label, u := range used {
		u.UsedGPUs, u.UsedMemoryMiB = object.Round(u.UsedGPUs), memory[label].MiB()
		used[label] = u
	}
	return used
}

// onHost is a pool as a host has it: Hyper-V has an object of that name, and a Linux host
// the claim alone, of which the GPUs that it still has count.
func onHost(h *gpu.Host, name string) (*gpu.Pool, bool) {
	if h.Platform != gpu.Linux {
		return h.Pool(name)
	}
	c, ok := h.Claim(gpu.ClaimPool, name)
	if !ok {
		return nil, false
	}
	gone := func(id string) bool { _, there := h.GPU(id); return !there }
	return &gpu.Pool{Name: c.ID, GPUs: slices.DeleteFunc(append([]string{}, c.GPUs...), gone)}, true
}

// poolClaim is a pool as a Linux host has it on record.
func poolClaim(h *gpu.Host, name string) (*gpu.PoolConfig, bool) {
	c, ok := h.Claim(gpu.ClaimPool, name)
	if !ok || c.Want.Pool == nil || h.Platform != gpu.Linux {
		return nil, false
	}
	return c.Want.Pool, true
}

// sharesOf are the shares that a host has drawn from a pool.
func sharesOf(h *gpu.Host, pool string) []*gpu.Share {
	var out []*gpu.Share
	for c := range h.ClaimsOf(gpu.ClaimShare) {
		if s := c.Want.Share; s != nil && gpu.SameID(s.Pool, pool) {
			out = append(out, s)
		}
	}
	return out
}

// taken is the part of each GPU that shares of a host have, and who they are.
func taken(h *gpu.Host) (part map[string]float64, names map[string][]string) {
	part, names = map[string]float64{}, map[string][]string{}
	for c := range h.ClaimsOf(gpu.ClaimShare) {
		s := c.Want.Share
		if s == nil {
			continue
		}
		for _, d := range s.Devices {
			one := *s
			one.Devices = []gpu.SharedDevice{d}
			id := gpu.FoldID(d.GPU)
			part[id] += placement.DescribeShare(h, &one).Fraction
			if !slices.Contains(names[id], s.Name) {
				names[id] = append(names[id], s.Name)
			}
		}
	}
	for _, list := range names {
		slices.Sort(list)
	}
	return part, names
}

// free is what is left of a GPU that shares have a part of. With oversubscription they may
// have more than there is.
func free(part float64) float64 { return object.Round(max(0, 1-part)) }
