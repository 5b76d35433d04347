package agent

import (
	"math"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

const setCount = "set the partition count"

// config plans a partition layout. A GPU whose partitions are held changes its count
// only while the holders are off and without their adapters, so that is one change:
// stop, remove, set, add again, start.
func (p *planner) config() error {
	want, wanted := configOn(p.change.Want.Config, p.change.Host)
	prior, had := configOn(p.change.Prior.Config, p.change.Host)
	shape := want
	if !wanted {
		shape = prior
	}
	id := shape.ID
	claim := findClaim(&p.host, gpu.ClaimConfig, id)
	ours, err := p.owns(gpu.ClaimConfig, id, claim, had, wanted)
	if err != nil || !ours {
		return err
	}
	// The GPUs that the config has on this host. One that it has in the state but not in
	// a claim joins only now: it was imported, or an earlier change did not come this far.
	var covered []string
	before := map[string]int{}
	if claim != nil {
		covered = claim.GPUs
		for g, count := range claim.LayoutBefore {
			before[g] = count
		}
	}
	if !wanted && (claim == nil || p.dropOnly(claim)) {
		if claim != nil {
			p.drop(*claim)
		}
		return nil
	}

	l := layout{planner: p, counts: map[string]int{}, limit: want.MaxDisruption}
	selected := want.GPUs[p.change.Host]
	var others []gpu.Claim
	for _, g := range selected {
		if !p.change.ClaimOnly {
			if err := l.wants(g, want.Count); err != nil {
				return err
			}
		}
		if hasID(covered, g) {
			continue
		}
		count, known, other, err := p.joins(g, id)
		if err != nil {
			return err
		}
		if known {
			before[g] = count
		}
		if other != nil {
			others = appendShrunk(others, *other, g)
		}
	}
	for _, g := range covered {
		if hasID(selected, g) {
			continue
		}
		if shape.Restore && !p.change.ClaimOnly {
			if err := l.restores(g, before); err != nil {
				return err
			}
		}
		for k := range before {
			if gpu.SameID(k, g) {
				delete(before, k)
			}
		}
	}

	var seats []seat
	// An idle node as well: else VMs of the node before would be moved to it meanwhile.
	drain := want.Drain && len(l.order) > 0 && rules.WhyNotDrained(&p.host) == ""
	if drain {
		p.add(Step{Op: OpDrainNode})
	} else if seats, err = l.seats(); err != nil {
		return err
	}
	l.reshape(seats)
	if drain {
		p.add(Step{Op: OpResumeNode})
	}
	for _, c := range others {
		p.put(c)
	}
	if wanted {
		c := p.newClaim(gpu.ClaimConfig, id, claim)
		c.Want.Config, c.GPUs = &want, selected
		if len(before) > 0 {
			c.LayoutBefore = before
		}
		if claim == nil || !sameClaim(*claim, c) {
			p.put(c)
		}
	} else {
		p.drop(*claim)
	}
	for _, s := range seats {
		p.start(s.vm, s.power)
	}
	return nil
}

// configOn is a config's part on one host. A claim keeps no more than that: the
// config of a large fleet would otherwise be repeated in full on each of its hosts.
func configOn(c *gpu.PartitionConfig, host string) (gpu.PartitionConfig, bool) {
	if c == nil {
		return gpu.PartitionConfig{}, false
	}
	part := *c
	gpus, ok := c.GPUs[host]
	part.GPUs = map[string][]string{host: gpus}
	return part, ok
}

// joins tells what count a GPU had before it was in any config of ours, and which
// config it leaves for this one.
func (p *planner) joins(gpuID, config string) (count int, known bool, other *gpu.Claim, err error) {
	for i := range p.host.Claims {
		c := &p.host.Claims[i]
		if c.Kind != gpu.ClaimConfig || gpu.SameID(c.ID, config) || !c.Covers(gpuID) {
			continue
		}
		if c.Owner != p.change.Owner || c.Owner == "" {
			return 0, false, nil, &Error{Kind: NotOwner, Message: "GPU " + gpuID + " on host " + p.host.Name + " is in " +
				describeObject(c.Kind, c.ID) + " of " + describeOwner(c.Owner)}
		}
		count, known = byID(c.LayoutBefore, gpuID)
		return count, known, c, nil
	}
	if g, ok := p.host.GPU(gpuID); ok && g.Partitionable != nil {
		return g.Partitionable.Count, true, nil, nil
	}
	return 0, false, nil, nil
}

// appendShrunk takes a GPU out of a claim, which may have lost others already.
func appendShrunk(claims []gpu.Claim, c gpu.Claim, gpuID string) []gpu.Claim {
	i := slices.IndexFunc(claims, func(o gpu.Claim) bool { return o.Is(c.Kind, c.ID) })
	if i < 0 {
		c.Revision++
		claims, i = append(claims, c), len(claims)
	}
	shrunk := &claims[i]
	shrunk.GPUs = slices.DeleteFunc(slices.Clone(shrunk.GPUs), func(g string) bool { return gpu.SameID(g, gpuID) })
	before := map[string]int{}
	for g, count := range shrunk.LayoutBefore {
		if !gpu.SameID(g, gpuID) {
			before[g] = count
		}
	}
	shrunk.LayoutBefore = before
	return claims
}

// layout is the new counts of a host's GPUs and what stands in their way.
type layout struct {
	*planner
	order  []*gpu.GPU
	counts map[string]int // by folded GPU id
	limit  gpu.Disruption
	held   []*gpu.GPU // those of order that running VMs hold
}

// wants notes the count that a selected GPU shall have.
func (l *layout) wants(gpuID string, count int) error {
	g, ok := l.host.GPU(gpuID)
	switch {
	case !ok:
		return refuse(backend.NotFound, setCount, "GPU "+gpuID, "host %s has no such GPU", l.host.Name)
	case g.Dismounted:
		return refuse(backend.InvalidState, setCount, "GPU "+g.ID, "it is dismounted from the host, for passthrough")
	case g.Partitionable == nil || g.Partitionable.Paravirtual:
		return refuse(backend.NotSupported, setCount, "GPU "+g.ID, "its driver offers no SR-IOV partitions")
	case g.Partitionable.Count == count:
		return nil
	}
	l.order = append(l.order, g)
	l.counts[gpu.FoldID(g.ID)] = count
	if len(holders(g)) > 0 {
		l.held = append(l.held, g)
	}
	return nil
}

// restores notes the count that a GPU had when it joined. That never stops a VM.
func (l *layout) restores(gpuID string, before map[string]int) error {
	count, known := byID(before, gpuID)
	g, ok := l.host.GPU(gpuID)
	if !known || !ok || g.Dismounted || g.Partitionable == nil || g.Partitionable.Count == count {
		return nil
	}
	if h := holders(g); len(h) > 0 {
		return refuse(backend.InUse, "put the partition count back", "GPU "+g.ID,
			"its partitions are held by %s; unassign them first, or keep the layout (on_destroy = \"keep\")", l.vmNames(h))
	}
	l.order = append(l.order, g)
	l.counts[gpu.FoldID(g.ID)] = count
	return nil
}

// seat is a running VM that gives its partition up for the time of the change.
type seat struct {
	vm    *gpu.VM
	power gpu.Power
}

// seats are the VMs that have to be off, each with the permission that its own
// assignment gives.
func (l *layout) seats() ([]seat, error) {
	var out []seat
	for _, g := range l.held {
		if gpu.DisruptVMRestart.Exceeds(l.limit) {
			return nil, refuse(backend.InUse, setCount, "GPU "+g.ID,
				"%s would have to be restarted, but max_disruption allows less", l.vmNames(holders(g)))
		}
		for _, id := range holders(g) {
			if slices.ContainsFunc(out, func(s seat) bool { return gpu.SameID(s.vm.ID, id) }) {
				continue
			}
			vm, ok := l.host.VM(id)
			if !ok {
				return nil, refuse(backend.InUse, setCount, "GPU "+g.ID, "a VM that the host does not list holds a partition: %s", id)
			}
			power, err := l.permission(vm)
			if err != nil {
				return nil, err
			}
			out = append(out, seat{vm: vm, power: power})
		}
	}
	return out, nil
}

// permission is what a VM's own assignment lets a change to its GPU do.
func (l *layout) permission(vm *gpu.VM) (gpu.Power, error) {
	claim := findClaim(&l.host, gpu.ClaimAssignment, vm.ID)
	no := func(format string, args ...any) (gpu.Power, error) {
		return gpu.Power{}, refuse(backend.InUse, "stop the VM", "VM "+vm.Name, format, args...)
	}
	switch {
	case claim == nil || claim.Want.Assignment == nil:
		return no("it holds a partition and no gpu_vm_assignment manages it")
	case claim.Owner != l.change.Owner || claim.Owner == "": // two states without a name cannot be told apart
		return no("its assignment belongs to %s", describeOwner(claim.Owner))
	case !claim.Want.Assignment.Power.AllowShutdown:
		return no("its assignment does not allow a shutdown (power.allow_shutdown)")
	case claim.Want.Assignment.Power.NextOff:
		return no("its assignment waits for the VM's next power-off (power.when)")
	case !vm.Runs():
		return no("it is %s; it has to run or to be off", vm.State)
	}
	return claim.Want.Assignment.Power, nil
}

// reshape plans the new counts, with the seats out of the way.
func (l *layout) reshape(seats []seat) {
	for _, s := range seats {
		l.stop(s.vm, s.power)
		if len(s.vm.PartitionAdapters) > 0 {
			l.add(Step{Op: OpRemoveAdapters, VM: s.vm.ID, Name: s.vm.Name})
		}
	}
	for _, g := range l.order {
		l.add(Step{Op: OpSetPartitionCount, GPU: g.ID, Count: l.counts[gpu.FoldID(g.ID)]})
	}
	for _, s := range seats {
		for _, a := range s.vm.PartitionAdapters {
			a.ID = ""
			if !l.fits(a, l.counts) {
				a.Quotas = gpu.Quotas{}
			}
			l.add(Step{Op: OpAddAdapter, VM: s.vm.ID, Name: s.vm.Name, Adapter: &a})
		}
	}
	l.dropQuotas()
}

// dropQuotas takes quotas that the new layout no longer satisfies from our VMs that
// are off: they would not start with them.
func (l *layout) dropQuotas() {
	for i := range l.host.VMs {
		vm := &l.host.VMs[i]
		claim := findClaim(&l.host, gpu.ClaimAssignment, vm.ID)
		if vm.State != gpu.VMOff || claim == nil || claim.Owner != l.change.Owner {
			continue
		}
		for _, a := range vm.PartitionAdapters {
			if l.fits(a, nil) && !l.fits(a, l.counts) {
				l.add(Step{Op: OpSetQuotas, VM: vm.ID, Name: vm.Name, Adapter: &gpu.PartitionAdapter{ID: a.ID, PinnedGPU: a.PinnedGPU}})
			}
		}
	}
}

// fits tells whether some GPU that the adapter may use has partitions as large as
// its quotas, at the new counts.
func (l *layout) fits(a gpu.PartitionAdapter, counts map[string]int) bool {
	if a.Quotas.Equal(gpu.Quotas{}) {
		return true
	}
	for i := range l.host.GPUs {
		g := &l.host.GPUs[i]
		if g.Partitionable == nil || g.Dismounted || a.PinnedGPU != "" && !gpu.SameID(a.PinnedGPU, g.ID) {
			continue
		}
		count, changes := counts[gpu.FoldID(g.ID)]
		if !changes {
			if counts != nil && g.Partitionable.Free() <= 0 {
				continue // others hold all of it, and keep it
			}
			count = g.Partitionable.Count
		}
		if quotasFit(a.Quotas, g.Partitionable, count) {
			return true
		}
	}
	return false
}

func quotasFit(q gpu.Quotas, part *gpu.Partitionable, count int) bool {
	fit := func(q gpu.Quota, c gpu.Capacity) bool {
		size := c.Min
		if size != math.MaxUint64 && count > 0 { // MaxUint64 is "no limit"
			size = size * uint64(part.Count) / uint64(count) //nolint:gosec // counts are small and positive
		}
		for _, v := range []*uint64{q.Min, q.Max, q.Optimal} {
			if v != nil && *v != math.MaxUint64 && *v > size {
				return false
			}
		}
		return true
	}
	return fit(q.VRAM, part.VRAM) && fit(q.Encode, part.Encode) && fit(q.Decode, part.Decode) && fit(q.Compute, part.Compute)
}
