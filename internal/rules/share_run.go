package rules

import (
	"cmp"
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
	for c := range h.ClaimsOf(gpu.ClaimShare) {
		if c.Want.Share == nil || r.superseded(c) || r.lenient && c.Owner == r.owner {
			continue
		}
		if !r.ours(c) || (r.applying || r.everyClaim) && !r.takesOver(host, c) {
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
	then := r.laidOut(host, h)
	s := placement.NewSharedHost(host, then, then)
	s.Host = h
	for _, held := range r.holdings(host, h) {
		s.Put(held.share)
	}
	return s
}

// laidOut is a Linux host with the configs and pools of the run made on it, under the shares that
// count.
func (r *run) laidOut(host string, h *gpu.Host) *gpu.Host {
	now := !r.othersBefore && !r.everyClaim && !r.lenient
	if p := r.memo.laidOut[host]; p != nil && now {
		return p
	}
	others := []*entry{{plan: r.plan}}
	for e := range r.others(gpusOn(host)) {
		others = append(others, e)
	}
	others = slices.DeleteFunc(others, func(e *entry) bool {
		w := cmp.Or(e.plan.Want.Config, e.plan.Prior.Config)
		return e.plan.Unchanged || w == nil && e.plan.Want.Pool == nil && e.plan.Prior.Pool == nil
	})
	then := r.allMade(r.underShares(host, h), host, partsOf(others))
	if now {
		r.memo.laidOut[host] = &then
	}
	return &then
}

// underShares is a host with claims for the shares that count. Only instances stay for what is in
// them.
func (r *run) underShares(host string, h *gpu.Host) gpu.Host {
	base := *h
	base.Claims = slices.DeleteFunc(slices.Clone(h.Claims), func(c gpu.Claim) bool { return c.Kind == gpu.ClaimShare })
	for _, s := range r.sharesPlaced(host, h) {
		if slices.ContainsFunc(s.Devices, func(d gpu.SharedDevice) bool { return d.Instance != nil }) {
			base.Claims = append(base.Claims, gpu.Claim{Kind: gpu.ClaimShare, ID: s.Name, Want: gpu.Want{Share: s}})
		}
	}
	return base
}

// wants are what the plans of the run want for GPUs of a host, the checked one included.
func (r *run) wants(host string) []gpu.Want {
	out := []gpu.Want{r.plan.Want}
	for e := range r.others(gpusOn(host)) {
		out = append(out, e.plan.Want)
	}
	return out
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
