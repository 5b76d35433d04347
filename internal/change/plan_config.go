package change

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const setCount = "set the partition count"

// configChange is what a change does to a config on this host, whatever its kind.
type configChange struct {
	id     string
	want   gpu.PartitionConfig // empty when the config leaves the host
	wanted bool
	// shape is what is wanted, or what the config was when it leaves.
	shape gpu.PartitionConfig
	claim *gpu.Claim
	// before and given are those of the claim that the change leaves.
	before, given gpu.Layouts
	// shrunk are the claims of the configs of ours that GPUs leave for this one.
	shrunk []gpu.Claim
	// blind are GPUs that cannot be read and stay as they are.
	blind []string
}

// layouts is what a kind of config does to the GPUs of a host.
type layouts interface {
	// wants notes what a selected GPU shall have.
	wants(id string)
	// restores notes what a GPU that leaves had when it joined. Nothing that runs makes way.
	restores(id string)
	// steps plans what leads there, and the claims.
	steps()
}

// config plans a partition config of any kind.
func (p *planner) config() error {
	want, wanted := configOn(p.change.Want.Config, p.key)
	prior, had := configOn(p.change.Prior.Config, p.key)
	c := &configChange{want: want, wanted: wanted, shape: want}
	if !wanted {
		c.shape = prior
	}
	c.id = c.shape.ID
	c.claim = findClaim(&p.host, gpu.ClaimConfig, c.id)
	ours, err := p.owns(gpu.ClaimConfig, c.id, c.claim, had, wanted)
	if err != nil || !ours {
		return err
	}
	if !wanted && (c.claim == nil || p.dropOnly(c.claim)) {
		if c.claim != nil {
			p.drop(*c.claim)
		}
		return nil
	}
	if err := p.leaveBlind(c); err != nil {
		return err
	}
	if c.claim != nil {
		c.before, c.given = c.claim.Before, c.claim.Given
	}
	var l layouts
	switch c.shape.Kind {
	case gpu.KindMIG:
		l = &migChange{planner: p, config: c, limit: c.shape.MaxDisruption, watchers: c.shape.QuiesceUnits}
	case gpu.KindVGPU:
		l = &vgpuChange{planner: p, config: c, watchers: c.shape.QuiesceUnits}
	case gpu.KindMPS, gpu.KindTimeSlicing:
		l = &sharingChange{planner: p, config: c, limit: c.shape.MaxDisruption}
	case gpu.KindGPUP:
		l = &countChange{planner: p, config: c, counts: map[string]int{}, limit: c.want.MaxDisruption}
	}
	for _, id := range p.selected(c) {
		if p.touches(c, id) {
			l.wants(id)
		}
		if !c.covers(id) {
			p.joins(c, id)
		}
	}
	for _, id := range p.leaving(c) {
		if c.shape.Restore && !p.change.ClaimOnly {
			l.restores(id)
		}
		c.before, c.given = c.before.Without(id), c.given.Without(id)
	}
	l.steps()
	if c.shape.Kind == gpu.KindGPUP || p.change.ClaimOnly {
		return nil
	}
	p.leaveSharing(c)
	if len(p.refused) == 0 {
		p.underShares(c)
	}
	return nil
}

// selected are the GPUs that the config shall have on this host.
func (p *planner) selected(c *configChange) []string { return c.want.GPUs[p.key] }

// covers tells whether a GPU is in the config already. One that it has in the state but
// not in a claim joins only now: it was imported, or an earlier change did not come this
// far.
func (c *configChange) covers(gpuID string) bool { return c.claim != nil && c.claim.Covers(gpuID) }

// leaving are the GPUs that are no longer selected.
func (p *planner) leaving(c *configChange) []string {
	if c.claim == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.claim.GPUs), func(g string) bool { return hasID(p.selected(c), g) })
}

// record plans the claims that the change leaves.
func (p *planner) record(c *configChange) {
	for _, s := range c.shrunk {
		p.put(s)
	}
	if !c.wanted {
		p.drop(*c.claim)
		return
	}
	claim := p.newClaim(gpu.ClaimConfig, c.id, c.claim)
	claim.Want.Config, claim.GPUs = &c.want, p.selected(c)
	claim.Before, claim.Given = c.before, c.given
	if c.claim == nil || !sameClaim(*c.claim, claim) {
		p.put(claim)
	}
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

// joins notes what a GPU had before it was in any config of ours, and what one has that joins
// without being touched.
func (p *planner) joins(c *configChange, id string) {
	var now gpu.Layout
	if g, ok := p.host.GPU(id); ok {
		now = g.Layout()
	}
	if given := now.Only(c.shape.Kind); p.change.ClaimOnly && (given.MIG == nil || given.MIG.Enabled) {
		c.given = c.given.With(id, given)
	}
	before := now
	if other := p.leavesFor(c, id); other != nil {
		before = other.Before.Of(id) // what the other config made of it is not what it was
	}
	c.before = c.before.With(id, before)
}

// leavesFor tells which config of ours a GPU leaves for this one, nil for none, and takes it
// out of that one's claim.
func (p *planner) leavesFor(c *configChange, gpuID string) *gpu.Claim {
	for i := range p.host.Claims {
		other := &p.host.Claims[i]
		if other.Kind != gpu.ClaimConfig || gpu.SameID(other.ID, c.id) || !other.Covers(gpuID) {
			continue
		}
		if other.Owner != p.change.Owner || other.Owner == "" {
			p.refuse(&Refusal{Code: NotOwner, GPU: gpuID, Found: "GPU " + gpuID + " on host " + p.host.Name + " is in " +
				DescribeObject(other.Kind, other.ID) + " of " + describeOwner(other.Owner)})
		}
		c.shrunk = appendShrunk(c.shrunk, *other, gpuID)
		return other
	}
	return nil
}

// appendShrunk takes a GPU out of a claim, which may have lost others already.
func appendShrunk(claims []gpu.Claim, c gpu.Claim, gpuID string) []gpu.Claim {
	i := slices.IndexFunc(claims, func(o gpu.Claim) bool { return o.Is(c.Kind, c.ID) })
	if i < 0 {
		c.Revision++
		claims, i = append(claims, c), len(claims)
	}
	s := &claims[i]
	s.GPUs = slices.DeleteFunc(slices.Clone(s.GPUs), func(g string) bool { return gpu.SameID(g, gpuID) })
	s.Before, s.Given = s.Before.Without(gpuID), s.Given.Without(gpuID)
	return claims
}

// countChange is a layout of kind GPU-P: the new counts of a host's GPUs and what stands in
// their way. A GPU whose partitions are held changes its count only while the holders are off
// and without their adapters, so that is one change: stop, remove, set, add again, start.
type countChange struct {
	*planner
	config *configChange
	order  []*gpu.GPU
	counts map[string]int // by folded GPU id
	limit  gpu.Disruption
	held   []*gpu.GPU // those of order that running VMs hold
}

func (l *countChange) wants(id string) {
	count := l.config.want.Count
	l.config.given = l.config.given.With(id, gpu.Layout{Partitions: count})
	g, ok := l.host.GPU(id)
	switch {
	case !ok:
		l.refuse(refuseGPU(NotFound, setCount, id, "host %s has no such GPU", l.host.Name))
	case g.Dismounted:
		l.refuse(refuseGPU(InvalidState, setCount, g.ID, "it is dismounted from the host, for passthrough"))
	case g.Partitionable == nil || g.Partitionable.Paravirtual:
		l.refuse(refuseGPU(NotSupported, setCount, g.ID, "its driver offers no SR-IOV partitions"))
	case g.Partitionable.Count == count:
	default:
		l.sets(g, count)
		if len(holders(g)) > 0 {
			l.held = append(l.held, g)
		}
	}
}

func (l *countChange) sets(g *gpu.GPU, count int) {
	l.order = append(l.order, g)
	l.counts[gpu.FoldID(g.ID)] = count
}

func (l *countChange) restores(id string) {
	before := l.config.before.Of(id).Partitions
	g, ok := l.host.GPU(id)
	if before == 0 || !ok || g.Dismounted || g.Partitionable == nil || g.Partitionable.Count == before {
		return
	}
	l.sets(g, before)
	if h := holders(g); len(h) > 0 {
		l.refuse(refuseGPU(InUse, "restore the partition count", g.ID, "its partitions are held by %s", l.vmNames(h)).
			of(PartitionInUse).by(l.vmTexts(h)...).or("unassign them first").leaving(fmt.Sprintf("%d partitions", before)))
	}
}

func (l *countChange) steps() {
	var seats []seat
	// An idle node as well: else VMs of the node before would be moved to it meanwhile.
	drain := l.config.want.Drain && len(l.order) > 0 && WhyNotDrained(&l.host) == ""
	if drain {
		l.add(Step{Op: OpDrainNode})
	} else {
		seats = l.seats()
	}
	l.reshape(seats)
	if drain && l.host.NodeState() == gpu.NodeUp { // else somebody else has paused it
		l.add(Step{Op: OpResumeNode})
	}
	l.record(l.config)
	for _, s := range slices.Backward(seats) {
		l.start(s.vm, s.power)
	}
}

// seat is a running VM that gives its partition up for the time of the change.
type seat struct {
	vm    *gpu.VM
	power gpu.Power
}

// seats are the VMs that have to be off, each with the permission that its own assignment
// gives. VMs that are pinned to a GPU are stopped last, so that they are started first, also
// when the change is undone: another one could take the partition that they need.
func (l *countChange) seats() (out []seat) {
	for _, g := range l.held {
		if gpu.DisruptVMRestart.Exceeds(l.limit) {
			l.refuse(refuseGPU(InUse, setCount, g.ID,
				"%s would have to be restarted, but max_disruption does not allow it", l.vmNames(holders(g))).
				or("allow it with max_disruption = %q, or shut them down first", gpu.DisruptVMRestart).of(PartitionInUse).needs(gpu.DisruptVMRestart))
		}
		for _, id := range holders(g) {
			if slices.ContainsFunc(out, func(s seat) bool { return gpu.SameID(s.vm.ID, id) }) {
				continue
			}
			vm, ok := l.host.VM(id)
			if !ok {
				vm = &gpu.VM{ID: id, Name: id}
				l.keepsOn(vm, "the host does not list it")
				out = append(out, seat{vm: vm})
				continue
			}
			out = append(out, seat{vm: vm, power: l.permission(vm)})
		}
	}
	pinned := func(s seat) int {
		if slices.ContainsFunc(s.vm.PartitionAdapters, func(a gpu.PartitionAdapter) bool { return a.PinnedGPU != "" }) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b seat) int { return pinned(a) - pinned(b) })
	return out
}

// keepsOn refuses to stop a VM.
func (l *countChange) keepsOn(vm *gpu.VM, why string) {
	r := refuse(InUse, "stop the VM", "VM "+vm.Name, "%s", why).
		or("set power.allow_shutdown = true in the gpu_vm_assignment of the VM and apply that first, or shut the VM down yourself").of(PartitionInUse)
	r.VM = vm.ID
	l.refuse(r)
}

// Hold is why a VM may not be stopped for a change of a GPU that it holds.
type Hold string

// Holds.
const (
	Unmanaged  Hold = "unmanaged"   // no assignment manages it
	OtherState Hold = "other_state" // its assignment belongs to another state
	NotAllowed Hold = "not_allowed" // its assignment does not allow a shutdown
	WaitsForIt Hold = "waits"       // its assignment waits for its next power-off
	NotRunning Hold = "not_running" // it neither runs nor is off
)

// MayStop tells what the claim for a VM that holds a partition lets a change of its GPU
// do, or why the VM may not be stopped; the claim may be nil. Owner is the name of the
// state that asks: two states without a name cannot be told apart.
func MayStop(vm *gpu.VM, claim *gpu.Claim, owner string) (gpu.Power, Hold) {
	switch {
	case claim == nil || claim.Want.Assignment == nil:
		return gpu.Power{}, Unmanaged
	case claim.Owner != owner || owner == "":
		return gpu.Power{}, OtherState
	case !claim.Want.Assignment.Power.AllowShutdown:
		return gpu.Power{}, NotAllowed
	case claim.Want.Assignment.Power.NextOff:
		return gpu.Power{}, WaitsForIt
	case !vm.Runs():
		return gpu.Power{}, NotRunning
	}
	return claim.Want.Assignment.Power, ""
}

// permission is what a VM's own assignment lets a change to its GPU do; with a refusal
// nothing.
func (l *countChange) permission(vm *gpu.VM) gpu.Power {
	claim := findClaim(&l.host, gpu.ClaimAssignment, vm.ID)
	power, hold := MayStop(vm, claim, l.change.Owner)
	switch hold {
	case Unmanaged:
		l.keepsOn(vm, "no gpu_vm_assignment manages it")
	case OtherState:
		if l.change.Owner == "" {
			l.keepsOn(vm, "its assignment belongs to "+describeOwner(claim.Owner)+", and this state has no owner name to recognise it by")
		} else {
			l.keepsOn(vm, "its assignment belongs to "+describeOwner(claim.Owner))
		}
	case NotAllowed:
		l.keepsOn(vm, "its assignment does not allow a shutdown: `power.allow_shutdown` is `false`")
	case WaitsForIt:
		l.keepsOn(vm, "its assignment waits for its next power-off (`power.when`)")
	case NotRunning:
		l.keepsOn(vm, "it is "+stateText(vm.State)+", and has to run or to be off")
	}
	return power
}

// reshape plans the new counts, with the seats out of the way.
func (l *countChange) reshape(seats []seat) {
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
			a.ID, a.PinnedGPU = "", l.pin(s.vm, a)
			if !l.fits(a, l.counts) {
				a.Quotas = gpu.Quotas{}
			}
			l.add(Step{Op: OpAddAdapter, VM: s.vm.ID, Name: s.vm.Name, Adapter: &a})
		}
	}
	l.dropQuotas()
}

// pin is the GPU that an adapter is pinned to when it is made again: one of the config that
// the VM's assignment names, where that is needed by then.
func (l *countChange) pin(vm *gpu.VM, a gpu.PartitionAdapter) string {
	claim := findClaim(&l.host, gpu.ClaimAssignment, vm.ID)
	if claim == nil || claim.Want.Assignment == nil {
		return a.PinnedGPU
	}
	after := l.host
	for _, s := range l.planner.steps {
		after = Project(after, s)
	}
	for _, c := range l.config.shrunk {
		after.Claims = PutClaim(after.Claims, c)
	}
	after.Claims = PutClaim(after.Claims, gpu.Claim{Kind: gpu.ClaimConfig, ID: l.config.id, GPUs: l.selected(l.config)})
	b := bound(&after, vm, claim.Want.Assignment.Partition)
	if b == nil || a.PinnedGPU != "" && b.has(a.PinnedGPU) {
		return a.PinnedGPU
	}
	return b.pin()
}

// dropQuotas takes quotas that the new layout no longer satisfies from our VMs that
// are off: they would not start with them. A VM that is pinned to another GPU keeps its own.
func (l *countChange) dropQuotas() {
	for i := range l.host.VMs {
		vm := &l.host.VMs[i]
		claim := findClaim(&l.host, gpu.ClaimAssignment, vm.ID)
		if vm.State != gpu.VMOff || claim == nil || claim.Owner != l.change.Owner {
			continue
		}
		for _, a := range vm.PartitionAdapters {
			affected := slices.ContainsFunc(l.order, func(g *gpu.GPU) bool { return a.PinnedGPU == "" || gpu.SameID(a.PinnedGPU, g.ID) })
			if affected && l.fits(a, nil) && !l.fits(a, l.counts) {
				l.add(Step{Op: OpSetQuotas, VM: vm.ID, Name: vm.Name, Adapter: &gpu.PartitionAdapter{ID: a.ID, PinnedGPU: a.PinnedGPU}})
			}
		}
	}
}

// fits tells whether some GPU that the adapter may use has partitions as large as
// its quotas, at the new counts.
func (l *countChange) fits(a gpu.PartitionAdapter, counts map[string]int) bool {
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
