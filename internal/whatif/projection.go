package whatif

import (
	"cmp"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Future is the hosts as the run will leave them.
type Future struct{ *Run }

// Future looks at the hosts once all plans of the run are made.
func (r *Run) Future() Future { return Future{r} }

// projection is a host with plans of a run made on it.
type projection struct {
	of     *gpu.Host
	at     fleetAt      // when its claims were looked up
	claims []*gpu.Claim // that others hold for its VMs
	made   []*Entry
	host   gpu.Host
	slots  []Slot
	// demands are of the node of a cluster, and its slots are taken by them, see runningDemands.
	demands []*Demand
}

// fleetAt is a fleet between two of its changes.
type fleetAt struct {
	fleet   *Fleet
	changes int
}

func (r Future) fleetNow() fleetAt { return fleetAt{r.Fleet, r.Fleet.changes} }

// configured is a host once a partition config of the run is made there, if it can be. The
// assignments that refer to it ask one after the other.
func (r Future) configured(host string, h *gpu.Host, made []*Entry) gpu.Host {
	p := projection{of: h, claims: r.Fleet.claimsElsewhere(host, h), made: made}
	last, _ := r.Book.configured.Load(host)
	if was, ok := last.(projection); ok && was.of == h && slices.Equal(was.claims, p.claims) && slices.Equal(was.made, made) {
		return was.host
	}
	p.host = r.withClaims(host, h)
	for _, e := range made {
		p.host, _ = r.after(p.host, host, e.Plan)
	}
	r.Book.configured.Store(host, p)
	return p.host
}

// Projected is a host as the run will leave it: with every plan made there, each as if nothing
// stood in its way. A checked assignment is not made: its room is asked for.
func (r Future) Projected(host string, h *gpu.Host) *gpu.Host { return &r.projection(host, h).host }

func (r Future) projection(host string, h *gpu.Host) *projection {
	if p := r.memo.projected[host]; p != nil && !r.Mode.Past {
		return p
	}
	var others []*Entry
	for e := range r.Others(GPUsOn(host), vmsOn(host)) {
		if !e.Plan.Unchanged {
			others = append(others, e)
		}
	}
	if r.Mode.Past {
		return r.with(projection{of: h, host: r.withClaims(host, h)}, host, partsOf(others))
	}
	p, more := r.resumed(host, h, others)
	if p == nil {
		p = r.with(projection{of: h, at: r.fleetNow(), claims: r.Fleet.claimsElsewhere(host, h), host: r.withClaims(host, h)},
			host, partsOf(others))
	} else if len(more) > 0 {
		p = r.with(*p, host, partsOf(more))
	}
	p.made = others
	r.Book.projected.Store(host, p)
	if parts := slices.DeleteFunc(halves(r.Plan), func(part change.Change) bool { return part.Want.Assignment != nil }); len(parts) > 0 {
		p = r.with(*p, host, parts)
	}
	r.memo.projected[host] = p
	return p
}

// resumed is the last projection of a host, since most plans come one after the other on the same
// host, and what of a sorted list is not made on it yet. Nil where that cannot be added to it.
func (r Future) resumed(host string, h *gpu.Host, others []*Entry) (*projection, []*Entry) {
	last, _ := r.Book.projected.Load(host)
	p, ok := last.(*projection)
	if !ok || p.of != h || p.at != r.fleetNow() && !slices.Equal(p.claims, r.Fleet.claimsElsewhere(host, h)) {
		return nil, nil
	}
	var more []*Entry
	made := p.made
	for _, e := range others {
		if len(made) > 0 && made[0] == e {
			made = made[1:]
		} else {
			more = append(more, e)
		}
	}
	first := func(e *Entry) bool { return order(e.Plan) < lastOrder || len(halves(e.Plan)) > 1 }
	if len(made) > 0 || slices.ContainsFunc(more, first) {
		return nil, nil
	}
	now := *p
	now.at = r.fleetNow()
	return &now, more
}

// With makes parts of plans on a projection.
func (r Future) with(p projection, host string, parts []change.Change) *projection {
	p.host = r.withAllMade(p.host, host, parts)
	p.slots = slotsOf(p.of, &p.host)
	if p.of.Cluster != nil {
		all := *r.Run
		all.Mode.Yielding = false
		p.demands, p.slots = all.Future().runningDemands(host, &p)
	}
	return &p
}

// withAllMade is a host with parts of plans made on it.
func (r Future) withAllMade(known gpu.Host, host string, parts []change.Change) gpu.Host {
	slices.SortStableFunc(parts, func(a, b change.Change) int { return cmp.Compare(order(a), order(b)) })
	for _, part := range parts {
		known = r.MadeAnyway(known, host, part)
	}
	return known
}

func partsOf(of []*Entry) (parts []change.Change) {
	for _, e := range of {
		parts = append(parts, halves(e.Plan)...)
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

// MadeAnyway is a host after a plan. A VM that waits for its next power-off gets its GPU then, and has
// until then what it has now; a node that is drained gets its VMs back.
func (r Future) MadeAnyway(host gpu.Host, key string, p change.Change) gpu.Host {
	var waits *gpu.VM
	if a := p.Want.Assignment; a != nil && a.Power.NextOff {
		now := *a
		now.Power.NextOff = false
		p.Want.Assignment = &now
		if at, ok := r.Locate(a); ok {
			host.VMs = slices.Clone(host.VMs)
			if vm, ok := host.VM(at.VM.ID); ok && vm.State != gpu.VMOff {
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

// keepUntilOff has a VM keep what it had. Of partitions it needs no second one.
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

func (r Future) willHavePool(host string, h *gpu.Host, name string) bool {
	pool, ok := r.Projected(host, h).Pool(name)
	return ok && len(pool.GPUs) > 0
}

// OwnersWithoutPool lists the nodes at hand that may own a clustered VM and will have
// no pool of that name.
func (r Future) OwnersWithoutPool(at Located, pool string) []string {
	if !at.VM.Clustered {
		return nil
	}
	var out []string
	for _, node := range r.Fleet.Cluster(at.Host) {
		h := r.Fleet.byName[node]
		if len(at.VM.PossibleOwners) > 0 && !gpu.HasID(at.VM.PossibleOwners, h.Name) {
			continue
		}
		if !r.willHavePool(node, h, pool) {
			out = append(out, node)
		}
	}
	return out
}

// DeviceHolder is another VM that has the GPU and keeps it in this run.
func (r Future) DeviceHolder(host string, h *gpu.Host, id, own string) *gpu.VM {
	then := r.Projected(host, h)
	for i := range h.VMs {
		vm := &h.VMs[i]
		if after, ok := then.VM(vm.ID); ok && has(vm, id) && has(after, id) && !gpu.SameID(vm.ID, own) && !r.MayYieldVM(host, vm) {
			return vm
		}
	}
	return nil
}

// DeviceRival is another assignment, or a pool, of this run that takes the GPU.
func (r *Run) DeviceRival(a *gpu.Assignment, id string) *Entry {
	return r.Conflict(a.Device.Host, func(w gpu.Want) bool {
		return TakesWhole(w, a.Device.Host, id) && (w.Pool != nil || !r.sameVM(a, w.Assignment))
	})
}

// Pooled is the pool of a host that a GPU is in, and stays in by what the run has planned.
func (r Future) Pooled(host string, h *gpu.Host, id string) *gpu.Pool {
	p := InPool(h, id)
	if p == nil {
		return nil
	}
	for e := range r.Others(GPUsOn(host)) {
		if TakesWhole(gpu.Want{Pool: e.Plan.Prior.Pool}, host, id) {
			return nil // else it would be a rival
		}
	}
	if c, ok := h.Claim(gpu.ClaimPool, p.Name); r.Mode.Yielding && ok && c.Owner == r.Owner && !r.Superseded(c) {
		return nil
	}
	return p
}
