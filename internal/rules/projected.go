package rules

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// projection is a host with plans of a run made on it.
type projection struct {
	of     *gpu.Host
	claims []*gpu.Claim // that others hold for its VMs
	made   []*entry
	host   gpu.Host
}

// configured is a host once a partition config of the run is made there, if it can be. The
// assignments that refer to it ask one after the other.
func (r *run) configured(host string, h *gpu.Host, e *entry) gpu.Host {
	p := projection{of: h, claims: r.fleet.claimsElsewhere(host, h), made: []*entry{e}}
	last, _ := r.book.configured.Load(host)
	if was, ok := last.(projection); ok && was.of == h && slices.Equal(was.claims, p.claims) && was.made[0] == e {
		return was.host
	}
	p.host, _ = r.after(r.withClaims(host, h), host, e.plan)
	r.book.configured.Store(host, p)
	return p.host
}

// projected is a host as the run will leave it: with every plan made there, each as if nothing
// stood in its way. A checked assignment is not made: its room is asked for.
func (r *run) projected(host string, h *gpu.Host) *gpu.Host {
	if p := r.memo.projected[host]; p != nil && !r.othersBefore {
		return p
	}
	var others []*entry
	for e := range r.others(gpusOn(host), vmsOn(host)) {
		if !e.plan.Unchanged {
			others = append(others, e)
		}
	}
	if r.othersBefore {
		return &r.with(projection{host: r.withClaims(host, h)}, host, others).host
	}
	p := r.kept(host, h, &others)
	if len(others) > 0 {
		p = *r.with(p, host, others)
		r.book.projected.Store(host, p)
	}
	for _, part := range halves(r.plan) {
		if part.Want.Assignment == nil {
			p.host = r.forced(p.host, host, part)
		}
	}
	r.memo.projected[host] = &p.host
	return &p.host
}

// kept is the last projection of a host, since most plans come one after the other on the same
// host, and takes what is made on it from a list. What cannot be added to it begins anew.
func (r *run) kept(host string, h *gpu.Host, others *[]*entry) projection {
	claims := r.fleet.claimsElsewhere(host, h)
	last, _ := r.book.projected.Load(host)
	p, ok := last.(projection)
	if ok && p.of == h && slices.Equal(p.claims, claims) {
		made := func(e *entry) bool { return slices.Contains(p.made, e) }
		more := slices.DeleteFunc(slices.Clone(*others), made)
		first := func(e *entry) bool { return order(e.plan) < lastOrder || len(halves(e.plan)) > 1 }
		if len(*others)-len(more) == len(p.made) && !slices.ContainsFunc(more, first) {
			*others = more
			return p
		}
	}
	return projection{of: h, claims: claims, host: r.withClaims(host, h)}
}

// with adds plans to a projection.
func (r *run) with(p projection, host string, more []*entry) *projection {
	var parts []change.Change
	for _, e := range more {
		parts = append(parts, halves(e.plan)...)
	}
	slices.SortStableFunc(parts, func(a, b change.Change) int { return cmp.Compare(order(a), order(b)) })
	for _, part := range parts {
		p.host = r.forced(p.host, host, part)
	}
	p.made = slices.Concat(p.made, more)
	return &p
}

// order is when a plan is projected: what ends before what is made, and GPUs before VMs.
func order(p change.Change) int {
	switch {
	case p.Want.Empty():
		return 0
	case p.Want.Config != nil:
		return 1
	case p.Want.Pool != nil:
		return 2
	}
	return lastOrder
}

const lastOrder = 3

// forced is a host after a plan. A VM that waits for its next power-off gets its GPU then, and a
// node that is drained gets its VMs back.
func (r *run) forced(host gpu.Host, key string, p change.Change) gpu.Host {
	if a := p.Want.Assignment; a != nil && a.Power.NextOff {
		now := *a
		now.Power.NextOff = false
		p.Want.Assignment = &now
		if at, ok := r.locate(a); ok {
			host.VMs = slices.Clone(host.VMs)
			if vm, ok := host.VM(at.vm.ID); ok {
				vm.State = gpu.VMOff
			}
		}
	}
	after, _ := change.After(host, key, r.sent(withoutDrain(p), key))
	return after
}

// withoutDrain is a plan without a drain: nodes get their VMs back.
func withoutDrain(p change.Change) change.Change {
	if c := p.Want.Config; c != nil && c.Drain {
		stays := *c
		stays.Drain = false
		p.Want.Config = &stays
	}
	return p
}
