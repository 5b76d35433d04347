package rules

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// holding is a share that is placed on a host, and how it is known: by a claim, or by a
// plan of the run.
type holding struct {
	share *gpu.Share
	claim *gpu.Claim
	plan  *entry
}

// holdings are the shares that are placed on a host and stay there, but for the checked
// plan's own. Of this state they are those that the run has planned; on the host, at
// apply, every claim counts.
func (r *run) holdings(host string, h *gpu.Host) []holding {
	var out []holding
	for i := range h.Claims {
		c := &h.Claims[i]
		if c.Kind == gpu.ClaimShare && c.Want.Share != nil && !r.superseded(c) && (!r.ours(c) || (r.applying || r.everyClaim) && !r.takesOver(host, c)) {
			out = append(out, holding{share: c.Want.Share, claim: c})
		}
	}
	for e := range r.others(sharesOn(host)) {
		if s := e.plan.Want.Share; s != nil && s.Host == host && len(s.Devices) > 0 {
			out = append(out, holding{share: s, plan: e})
		}
	}
	return out
}

// takesOver tells whether the checked plan is of the share that a claim is for: its
// resource was renamed, and finds what it left.
func (r *run) takesOver(host string, c *gpu.Claim) bool {
	s := r.plan.Want.Share
	return s != nil && gpu.SameID(s.Name, c.ID) && (s.Host == host || s.Host == "") && r.ours(c)
}

// made tells whether a share that another plan of the run has no place for is on one of its
// hosts by now. An apply plans a share while others are being made, under tokens that no
// plan of theirs has: the claim then counts, and not the plan as well.
func (r *run) made(s *gpu.Share, hosts []string) bool {
	return slices.ContainsFunc(r.fleet.shareClaims[gpu.FoldID(s.Name)], func(c placed[gpu.Claim]) bool {
		o := c.item.Want.Share
		return o != nil && slices.Contains(hosts, c.host) && c.item.Owner == r.owner && !r.superseded(c.item) && !r.takesOver(c.host, c.item)
	})
}

// sharesPlaced are the shares of holdings, and of the checked plan.
func (r *run) sharesPlaced(host string, h *gpu.Host) []*gpu.Share {
	var out []*gpu.Share
	for _, held := range r.holdings(host, h) {
		out = append(out, held.share)
	}
	if s := r.plan.Want.Share; s != nil && s.Host == host && len(s.Devices) > 0 {
		out = append(out, s)
	}
	return out
}

// sharedHost is a host once the plans of the run are made real, without the shares that
// are not placed yet and without the checked one.
func (r *run) sharedHost(host string, h *gpu.Host) *placement.SharedHost {
	s := r.sharedHostOf(host, h, func(g *gpu.GPU) placement.GPULayout { return r.layoutAfter(host, h, g) })
	for _, held := range r.holdings(host, h) {
		s.Put(held.share)
	}
	return s
}

// sharedHostOf is a host without shares, with layouts of its GPUs.
func (r *run) sharedHostOf(host string, h *gpu.Host, layout func(*gpu.GPU) placement.GPULayout) *placement.SharedHost {
	s := placement.NewSharedHost(host, h)
	for i := range h.Claims {
		switch c := &h.Claims[i]; {
		case r.superseded(c):
		case c.Kind == gpu.ClaimConfig && c.Want.Config != nil:
			s.Configs[gpu.FoldID(c.Want.Config.ID)] = true
		case c.Kind == gpu.ClaimPool && c.Want.Pool != nil && h.Platform == gpu.Linux:
			s.AddPool(c.Want.Pool, c.GPUs)
		}
	}
	for _, w := range r.wants(host) {
		switch {
		case w.Config != nil && w.Config.GPUs[host] != nil:
			s.Configs[gpu.FoldID(w.Config.ID)] = true
		case w.Pool != nil && len(w.Pool.Members[host]) > 0 && h.Platform == gpu.Linux:
			s.AddPool(w.Pool, w.Pool.Members[host])
		}
	}
	for i := range h.GPUs {
		s.Add(&h.GPUs[i], layout(&h.GPUs[i]))
	}
	s.Order()
	return s
}

// wants are what the plans of the run want for GPUs of a host, the checked one included.
func (r *run) wants(host string) []gpu.Want {
	out := []gpu.Want{r.plan.Want}
	for e := range r.others(gpusOn(host)) {
		out = append(out, e.plan.Want)
	}
	return out
}

// layoutAfter is what a GPU is laid out as once the plans of the run are made real.
func (r *run) layoutAfter(host string, h *gpu.Host, g *gpu.GPU) placement.GPULayout {
	for _, w := range r.wants(host) {
		if c := w.Config; c != nil && contains(c.GPUs[host], g.ID) {
			return r.layoutUnder(host, h, g, c)
		}
	}
	for i := range h.Claims {
		c := &h.Claims[i]
		switch {
		case c.Kind != gpu.ClaimConfig || c.Want.Config == nil || !c.Covers(g.ID):
		case !r.superseded(c):
			return placement.CurrentLayout(g, c.Want.Config)
		case r.restores(c):
			return restoredLayout(g, c)
		}
	}
	return placement.CurrentLayout(g, nil)
}

// layoutUnder is what a GPU has under a config. A layout that it cannot have changes
// nothing.
func (r *run) layoutUnder(host string, h *gpu.Host, g *gpu.GPU, c *gpu.PartitionConfig) placement.GPULayout {
	if c.MIG == nil || g.MIG == nil || placement.HasMIGLayout(g, c.MIG) {
		return placement.CurrentLayout(g, c)
	}
	p, err := placement.LayOutMIGConfig(h, g, c, r.sharesPlaced(host, h)...)
	if err != nil {
		return placement.CurrentLayout(g, c)
	}
	return placement.PlacedLayout(g, c, p.Layout())
}

// restores tells whether GPUs that leave the config of a claim are put back to what they
// were.
func (r *run) restores(claim *gpu.Claim) bool {
	p := r.plan
	if claim.Token != p.Token || p.Token == "" {
		e := r.book.plans[claim.Token]
		if e == nil {
			return false
		}
		p = e.plan
	}
	for _, c := range []*gpu.PartitionConfig{p.Want.Config, p.Prior.Config} {
		if c != nil {
			return c.Restore
		}
	}
	return false
}

// restoredLayout is what a GPU has when it is put back to what it was when it joined a
// config.
func restoredLayout(g *gpu.GPU, claim *gpu.Claim) placement.GPULayout {
	switch before := claim.Before.Of(g.ID).Only(claim.Want.Config.Kind).MIG; {
	case before == nil:
	case !before.Enabled:
		return placement.GPULayout{}
	default:
		return placement.PlacedLayout(g, nil, before.Placements)
	}
	return placement.CurrentLayout(g, nil)
}

// poolHosts are the hosts of a pool: as this run plans it, or else as claims tell.
func (r *run) poolHosts(id string) []string {
	var out []string
	for _, p := range r.poolPlans(id) {
		for host, gpus := range p.Members {
			if len(gpus) > 0 {
				out = append(out, host)
			}
		}
	}
	if len(out) == 0 {
		for _, c := range r.fleet.poolClaims[gpu.FoldID(id)] {
			if !r.superseded(c.item) {
				out = append(out, c.host)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// poolPlans are the pools of that id that the run wants, the checked one included.
func (r *run) poolPlans(id string) []*gpu.PoolConfig {
	var out []*gpu.PoolConfig
	if p := r.plan.Want.Pool; p != nil && gpu.SameID(p.ID, id) {
		out = append(out, p)
	}
	for e := range r.others(poolNamed(id)) {
		if p := e.plan.Want.Pool; p != nil && gpu.SameID(p.ID, id) {
			out = append(out, p)
		}
	}
	return out
}
