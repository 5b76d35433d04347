package change

import (
	"cmp"
	"fmt"
	"maps"
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
	// shrunk are the claims of the configs of ours that GPUs leave for this one.
	shrunk []gpu.Claim
	// blind are GPUs that cannot be read and stay as they are.
	blind []string
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
	switch c.shape.Kind() {
	case gpu.KindMIG:
		err = p.migLayout(c)
	case gpu.KindVGPU:
		err = p.vgpuLayout(c)
	case gpu.KindMPS, gpu.KindTimeSlicing:
		err = p.sharedLayout(c)
	case gpu.KindGPUP:
		return p.partitionCounts(c)
	}
	if err != nil {
		return err
	}
	if err := p.leaveSharing(c); err != nil {
		return err
	}
	return p.underShares(c)
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

// record plans the claims that the change leaves. keep adds to the config's own what its
// kind has to remember.
func (p *planner) record(c *configChange, keep func(*gpu.Claim)) {
	for _, s := range c.shrunk {
		p.put(s)
	}
	if !c.wanted {
		p.drop(*c.claim)
		return
	}
	claim := p.newClaim(gpu.ClaimConfig, c.id, c.claim)
	claim.Want.Config, claim.GPUs = &c.want, p.selected(c)
	keep(&claim)
	if c.claim == nil || !sameClaim(*c.claim, claim) {
		p.put(claim)
	}
}

// partitionCounts plans a layout of kind GPU-P. A GPU whose partitions are held changes
// its count only while the holders are off and without their adapters, so that is one
// change: stop, remove, set, add again, start.
func (p *planner) partitionCounts(c *configChange) error {
	before := map[string]int{}
	if c.claim != nil {
		maps.Copy(before, c.claim.LayoutBefore)
	}
	l := layout{planner: p, counts: map[string]int{}, limit: c.want.MaxDisruption}
	for _, g := range p.selected(c) {
		if p.touches(c, g) {
			if err := l.wants(g, c.want.Count); err != nil {
				return err
			}
		}
		if c.covers(g) {
			continue
		}
		other, err := p.joins(c, g)
		if err != nil {
			return err
		}
		if count, known := p.countBefore(other, g); known {
			before[g] = count
		}
	}
	for _, g := range p.leaving(c) {
		if c.shape.Restore && !p.change.ClaimOnly {
			if err := l.restores(g, before); err != nil {
				return err
			}
		}
		forgetID(before, g)
	}

	var (
		seats   []seat
		refused error
	)
	// An idle node as well: else VMs of the node before would be moved to it meanwhile.
	drain := c.want.Drain && len(l.order) > 0 && WhyNotDrained(&p.host) == ""
	if drain {
		p.add(Step{Op: OpDrainNode})
	} else {
		seats, refused = l.seats()
	}
	l.reshape(seats)
	if drain && p.host.NodeState() == gpu.NodeUp { // else somebody else has paused it
		p.add(Step{Op: OpResumeNode})
	}
	p.record(c, func(claim *gpu.Claim) {
		if len(before) > 0 {
			claim.LayoutBefore = before
		}
	})
	for _, s := range slices.Backward(seats) {
		p.start(s.vm, s.power)
	}
	return refused
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

// joins tells which config of ours a GPU leaves for this one, nil for none, and takes it
// out of that one's claim.
func (p *planner) joins(c *configChange, gpuID string) (*gpu.Claim, error) {
	for i := range p.host.Claims {
		other := &p.host.Claims[i]
		if other.Kind != gpu.ClaimConfig || gpu.SameID(other.ID, c.id) || !other.Covers(gpuID) {
			continue
		}
		if other.Owner != p.change.Owner || other.Owner == "" {
			return nil, &Refusal{Code: NotOwner, Found: "GPU " + gpuID + " on host " + p.host.Name + " is in " +
				DescribeObject(other.Kind, other.ID) + " of " + describeOwner(other.Owner)}
		}
		c.shrunk = appendShrunk(c.shrunk, *other, gpuID)
		return other, nil
	}
	return nil, nil
}

// countBefore is the count that a GPU had before it was in any config of ours.
func (p *planner) countBefore(other *gpu.Claim, gpuID string) (count int, known bool) {
	if other != nil {
		return byID(other.LayoutBefore, gpuID)
	}
	if g, ok := p.host.GPU(gpuID); ok && g.Partitionable != nil {
		return g.Partitionable.Count, true
	}
	return 0, false
}

// appendShrunk takes a GPU out of a claim, which may have lost others already.
func appendShrunk(claims []gpu.Claim, c gpu.Claim, gpuID string) []gpu.Claim {
	i := slices.IndexFunc(claims, func(o gpu.Claim) bool { return o.Is(c.Kind, c.ID) })
	if i < 0 {
		c.Revision++
		c.LayoutBefore, c.MIGBefore, c.MIGLayout = maps.Clone(c.LayoutBefore), maps.Clone(c.MIGBefore), maps.Clone(c.MIGLayout)
		c.VGPUBefore, c.VGPULayout = maps.Clone(c.VGPUBefore), maps.Clone(c.VGPULayout)
		c.ComputeBefore, c.TimeSliceBefore = maps.Clone(c.ComputeBefore), maps.Clone(c.TimeSliceBefore)
		claims, i = append(claims, c), len(claims)
	}
	shrunk := &claims[i]
	shrunk.GPUs = slices.DeleteFunc(slices.Clone(shrunk.GPUs), func(g string) bool { return gpu.SameID(g, gpuID) })
	forgetID(shrunk.LayoutBefore, gpuID)
	forgetID(shrunk.MIGBefore, gpuID)
	forgetID(shrunk.MIGLayout, gpuID)
	forgetID(shrunk.VGPUBefore, gpuID)
	forgetID(shrunk.VGPULayout, gpuID)
	forgetID(shrunk.ComputeBefore, gpuID)
	forgetID(shrunk.TimeSliceBefore, gpuID)
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
		return refuse(NotFound, setCount, "GPU "+gpuID, "host %s has no such GPU", l.host.Name)
	case g.Dismounted:
		return refuse(InvalidState, setCount, "GPU "+g.ID, "it is dismounted from the host, for passthrough")
	case g.Partitionable == nil || g.Partitionable.Paravirtual:
		return refuse(NotSupported, setCount, "GPU "+g.ID, "its driver offers no SR-IOV partitions")
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
		return refuse(InUse, "put the partition count back", "GPU "+g.ID,
			"its partitions are held by %s", l.vmNames(h)).or("unassign them first, or keep the layout (on_destroy = \"keep\")")
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
// assignment gives. With a refusal they are those that would have to be. VMs that are
// pinned to a GPU are stopped last, so that they are started first, also when the change is
// undone: another one could take the partition that they need.
func (l *layout) seats() (out []seat, refused error) {
	for _, g := range l.held {
		if gpu.DisruptVMRestart.Exceeds(l.limit) {
			refused = cmp.Or(refused, error(refuse(InUse, setCount, "GPU "+g.ID,
				"%s would have to be restarted, but max_disruption allows less", l.vmNames(holders(g))).of(PartitionInUse)))
		}
		for _, id := range holders(g) {
			if slices.ContainsFunc(out, func(s seat) bool { return gpu.SameID(s.vm.ID, id) }) {
				continue
			}
			vm, ok := l.host.VM(id)
			if !ok {
				refused = cmp.Or(refused, error(refuse(InUse, setCount, "GPU "+g.ID, "a VM that the host does not list holds a partition: %s", id).of(PartitionInUse)))
				out = append(out, seat{vm: &gpu.VM{ID: id}})
				continue
			}
			power, err := l.permission(vm)
			refused = cmp.Or(refused, err)
			out = append(out, seat{vm: vm, power: power})
		}
	}
	pinned := func(s seat) int {
		if slices.ContainsFunc(s.vm.PartitionAdapters, func(a gpu.PartitionAdapter) bool { return a.PinnedGPU != "" }) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b seat) int { return pinned(a) - pinned(b) })
	return out, refused
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

// permission is what a VM's own assignment lets a change to its GPU do.
func (l *layout) permission(vm *gpu.VM) (gpu.Power, error) {
	claim := findClaim(&l.host, gpu.ClaimAssignment, vm.ID)
	power, hold := MayStop(vm, claim, l.change.Owner)
	var found string
	switch hold {
	case "":
		return power, nil
	case Unmanaged:
		found = "it holds a partition and no gpu_vm_assignment manages it"
	case OtherState:
		found = "its assignment belongs to " + describeOwner(claim.Owner)
	case NotAllowed:
		found = "its assignment does not allow a shutdown (power.allow_shutdown)"
	case WaitsForIt:
		found = "its assignment waits for the VM's next power-off (power.when)"
	case NotRunning:
		found = fmt.Sprintf("it is %s; it has to run or to be off", vm.State)
	}
	return power, refuse(InUse, "stop the VM", "VM "+vm.Name, "%s", found).of(PartitionInUse)
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
// are off: they would not start with them. A VM that is pinned to another GPU keeps its own.
func (l *layout) dropQuotas() {
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
