package fleet

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// SelectKind lists the GPUs of a host that a partition config of a kind covers: the ids
// that the selector names, or else every GPU of the selected models that can have such a
// layout, that the host has not given away, and that nobody else's claim holds. mine tells
// which claims do not stand in the way.
func SelectKind(kind gpu.Kind, name string, h *gpu.Host, sel *gpu.Selector, mine func(*gpu.Claim) bool) []string {
	if ids, named := named(sel, name); named {
		return ids
	}
	return choose(h, sel, mine, func(g *gpu.GPU) bool {
		if g.Dismounted || taken(h, g.ID, mine) {
			return false
		}
		if !change.BesidePools(kind) {
			return change.Passes(kind, g) == "" && whatif.InPool(h, g.ID) == nil
		}
		// One that came into MIG mode while it is mine stays, so that the difference is seen.
		shared := func(c *gpu.Claim) bool { return mine(c) && c.Want.Config != nil && c.Want.Config.MIG == nil }
		return h.Platform == change.PlatformOf(kind) && change.Offers(kind, g) && (change.Passes(kind, g) == "" || held(h, g.ID, shared))
	})
}

// nvidia is the vendor whose driver has MPS and time slices.
const nvidia = "NVIDIA"

// SelectWhole lists the GPUs of a host that a pool takes: the ids that the selector
// names, or else every GPU of the selected models that no config, pool or VM of
// others holds, that works and that is not the host's own display. On a Linux host shares
// are drawn from a pool, so that only other pools are in the way. A member stays one, also where
// the pool comes in the place of one of another name: pools has its name and that one's.
func SelectWhole(name string, h *gpu.Host, sel *gpu.Selector, pools ...string) []string {
	if ids, named := named(sel, name); named {
		return ids
	}
	mine := func(c *gpu.Claim) bool { return c.Kind == gpu.ClaimPool && gpu.HasID(pools, c.ID) }
	if h.Platform == gpu.Linux {
		others := func(c *gpu.Claim) bool { return c.Kind == gpu.ClaimPool && !mine(c) }
		return choose(h, sel, mine, func(g *gpu.GPU) bool {
			return g.Vendor == nvidia && !g.Dismounted && (g.Problem == "" || held(h, g.ID, mine)) && !held(h, g.ID, others)
		})
	}
	return choose(h, sel, mine, func(g *gpu.GPU) bool {
		if p := whatif.InPool(h, g.ID); p != nil {
			return gpu.HasID(pools, p.Name)
		}
		_, known := catalog.ByPCI(g.PCI)
		busy := g.Partitionable != nil && len(g.Partitionable.Partitions) > 0
		whole := g.Status == gpu.ReadyForDDA || g.Status == gpu.Partitioned
		return known && whole && !busy && !g.HostDisplay && g.Problem == "" && !taken(h, g.ID, mine)
	})
}

func named(sel *gpu.Selector, host string) ([]string, bool) {
	if sel == nil {
		return nil, false
	}
	ids, ok := sel.GPUIDs[host]
	return ids, ok
}

// choose lists the GPUs that fit. What one that cannot be read lacks says nothing: those that
// are mine are listed, even where the host does not, and no others join.
func choose(h *gpu.Host, sel *gpu.Selector, mine func(*gpu.Claim) bool, fits func(*gpu.GPU) bool) []string {
	out := []string{}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		_, unknown := h.UnknownGPU(g.ID)
		if !unknown && fits(g) && modelSelected(sel, g) || unknown && held(h, g.ID, mine) {
			out = append(out, g.ID)
		}
	}
	for i := range h.Claims {
		for _, id := range h.Claims[i].GPUs {
			_, listed := h.GPU(id)
			if _, unknown := h.UnknownGPU(id); unknown && !listed && mine(&h.Claims[i]) {
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return out
}

// modelSelected compares models as people write them: "A2" and "NVIDIA A2" are the
// same.
func modelSelected(sel *gpu.Selector, g *gpu.GPU) bool {
	if sel == nil || len(sel.Models) == 0 {
		return true
	}
	for _, want := range sel.Models {
		if gpu.SameID(want, g.Model) || gpu.SameID(g.Vendor+" "+want, g.Model) {
			return true
		}
		m, ok := catalog.ByName(want)
		if have, known := catalog.Of(g.PCI, g.Model); ok && known && have.Name == m.Name {
			return true
		}
	}
	return false
}

// taken tells whether a claim for GPUs that is not mine covers a GPU. Shares are of GPUs
// that a config may have, and so are pools on Linux hosts.
func taken(h *gpu.Host, id string, mine func(*gpu.Claim) bool) bool {
	return held(h, id, func(c *gpu.Claim) bool {
		takes := c.Kind == gpu.ClaimConfig || c.Kind == gpu.ClaimPool && h.Platform != gpu.Linux
		return takes && !mine(c)
	})
}

// held tells whether one of some claims covers a GPU.
func held(h *gpu.Host, id string, some func(*gpu.Claim) bool) bool {
	for i := range h.Claims {
		if c := &h.Claims[i]; c.Covers(id) && some(c) {
			return true
		}
	}
	return false
}
