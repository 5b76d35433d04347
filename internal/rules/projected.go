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
	at     fleetAt      // when its claims were looked up
	claims []*gpu.Claim // that others hold for its VMs
	made   []*entry
	host   gpu.Host
	slots  []slot
	// Of the node of a cluster, see crewOf.
	crew    []*traveller
	benches []bench
}

// fleetAt is a fleet between two of its changes.
type fleetAt struct {
	fleet   *Fleet
	changes int
}

func (r *run) fleetNow() fleetAt { return fleetAt{r.fleet, r.fleet.changes} }

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
func (r *run) projected(host string, h *gpu.Host) *gpu.Host { return &r.projection(host, h).host }

func (r *run) projection(host string, h *gpu.Host) *projection {
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
		return r.with(projection{of: h, host: r.withClaims(host, h)}, host, partsOf(others))
	}
	p, more := r.kept(host, h, others)
	if p == nil {
		p = r.with(projection{of: h, at: r.fleetNow(), claims: r.fleet.claimsElsewhere(host, h), host: r.withClaims(host, h)}, host, partsOf(others))
	} else if len(more) > 0 {
		p = r.with(*p, host, partsOf(more))
	}
	p.made = others
	r.book.projected.Store(host, p)
	if parts := slices.DeleteFunc(halves(r.plan), func(part change.Change) bool { return part.Want.Assignment != nil }); len(parts) > 0 {
		p = r.with(*p, host, parts)
	}
	r.memo.projected[host] = p
	return p
}

// kept is the last projection of a host, since most plans come one after the other on the same
// host, and what of a sorted list is not made on it yet. Nil where that cannot be added to it.
func (r *run) kept(host string, h *gpu.Host, others []*entry) (*projection, []*entry) {
	last, _ := r.book.projected.Load(host)
	p, ok := last.(*projection)
	if !ok || p.of != h || p.at != r.fleetNow() && !slices.Equal(p.claims, r.fleet.claimsElsewhere(host, h)) {
		return nil, nil
	}
	var more []*entry
	made := p.made
	for _, e := range others {
		if len(made) > 0 && made[0] == e {
			made = made[1:]
		} else {
			more = append(more, e)
		}
	}
	first := func(e *entry) bool { return order(e.plan) < lastOrder || len(halves(e.plan)) > 1 }
	if len(made) > 0 || slices.ContainsFunc(more, first) {
		return nil, nil
	}
	now := *p
	now.at = r.fleetNow()
	return &now, more
}

// with makes parts of plans on a projection.
func (r *run) with(p projection, host string, parts []change.Change) *projection {
	p.host = r.allMade(p.host, host, parts)
	p.slots = slotsOf(p.of, &p.host)
	if p.of.Cluster != nil {
		all := *r
		all.lenient = false
		p.crew, p.benches = all.crewOf(host, &p)
	}
	return &p
}

// allMade is a host with parts of plans made on it.
func (r *run) allMade(known gpu.Host, host string, parts []change.Change) gpu.Host {
	slices.SortStableFunc(parts, func(a, b change.Change) int { return cmp.Compare(order(a), order(b)) })
	for _, part := range parts {
		known = r.forced(known, host, part)
	}
	return known
}

func partsOf(of []*entry) (parts []change.Change) {
	for _, e := range of {
		parts = append(parts, halves(e.plan)...)
	}
	return parts
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

// forced is a host after a plan. A VM that waits for its next power-off gets its GPU then, and has
// until then what it has now; a node that is drained gets its VMs back.
func (r *run) forced(host gpu.Host, key string, p change.Change) gpu.Host {
	var waits *gpu.VM
	if a := p.Want.Assignment; a != nil && a.Power.NextOff {
		now := *a
		now.Power.NextOff = false
		p.Want.Assignment = &now
		if at, ok := r.locate(a); ok {
			host.VMs = slices.Clone(host.VMs)
			if vm, ok := host.VM(at.vm.ID); ok && vm.State != gpu.VMOff {
				has := *vm
				waits, vm.State = &has, gpu.VMOff
			}
		}
	}
	after, _ := change.After(host, key, r.sent(withoutDrain(p), key))
	if waits != nil {
		after.VMs = slices.Clone(after.VMs)
		if vm, ok := after.VM(waits.ID); ok {
			keepUntilOff(vm, waits)
		}
	}
	return after
}

// keepUntilOff has a VM keep what it had. Of seats it needs no second one.
func keepUntilOff(vm, had *gpu.VM) {
	if len(vm.PartitionAdapters) == 0 {
		vm.PartitionAdapters = had.PartitionAdapters
	}
	vm.Devices = slices.Clone(vm.Devices)
	for _, d := range had.Devices {
		if !slices.ContainsFunc(vm.Devices, func(o gpu.DeviceAssignment) bool { return gpu.SameID(o.ID, d.ID) }) {
			vm.Devices = append(vm.Devices, d)
		}
	}
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
