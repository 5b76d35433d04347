package change

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const setCount = "set the partition count"

// kindGPUP is GPU-P, whose partitions a reboot leaves as they are.
var kindGPUP = kind{
	op:       setCount,
	platform: gpu.HyperV,
	layout:   "the partitions",
	noun:     func(c *gpu.PartitionConfig) string { return words.Plural(c.Count, "partition") },
	use:      "its partitions are for VMs of Hyper-V hosts",
	passes: func(g *gpu.GPU) string {
		switch {
		case g.Partitionable == nil:
			return "its driver offers no partitions; status " + string(cmp.Or(g.Status, gpu.NotAssignable))
		case g.Partitionable.Paravirtual:
			return "paravirtualization only: SR-IOV is not enabled on the server"
		}
		return ""
	},
	offers: func(g *gpu.GPU) bool { return g.Partitionable != nil },
	plan: func(p *planner, c *configChange) layouts {
		return &countChange{planner: p, config: c, counts: map[string]int{}, limit: c.want.MaxDisruption}
	},
	has: func(c *gpu.PartitionConfig, g *gpu.GPU) bool {
		return g.Partitionable != nil && g.Partitionable.Count == c.Count
	},
	found: func(_ *gpu.PartitionConfig, _ gpu.Layout, g *gpu.GPU) string {
		return fmt.Sprintf("has %d partitions", g.Partitionable.Count)
	},
	declared: func(c *gpu.PartitionConfig) string { return fmt.Sprintf("%d partitions", c.Count) },
	cause: func(given, now gpu.Layout) Cause {
		if given.Partitions != now.Partitions && given.Partitions != 0 {
			return CauseOtherTool
		}
		return ""
	},
	unrestorable: func(host *gpu.Host, before gpu.Layout, g *gpu.GPU) string {
		p := g.Partitionable
		if before.Partitions == 0 || p == nil || p.Count == before.Partitions {
			return ""
		}
		for _, id := range holders(g) {
			if why := listsInVain(host, id); why != "" {
				return "Hyper-V still lists a partition of " + vmNames(host, []string{id}) + ": " + why
			}
		}
		if len(p.ValidCounts) == 0 || slices.Contains(p.ValidCounts, before.Partitions) {
			return ""
		}
		return fmt.Sprintf("its driver offers no %d partitions any more, only %s", before.Partitions,
			words.Join(words.Each(p.ValidCounts, strconv.Itoa)))
	},
	lost: func(*gpu.Host, *gpu.Claim, *gpu.GPU) repair { return repair{} },
}

// listsInVain is why a VM cannot let go of a partition that its host lists for it, "" where it can: it does not run. Whether
// hosts do that is an assumption (hyperv-partition-rows).
func listsInVain(host *gpu.Host, vmID string) string {
	vm, there := host.VM(vmID)
	switch {
	case !there:
		return "the host does not list that VM"
	case vm.State == gpu.VMOff:
		return "it is off, and gives it back when it is started and shut down once"
	}
	return ""
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

func (l *countChange) wants(g *gpu.GPU) {
	count := l.config.want.Count
	l.config.given = l.config.given.With(g.ID, gpu.Layout{Partitions: count})
	switch {
	case g.Partitionable == nil || g.Partitionable.Paravirtual:
		l.refuse(refuseGPU(gpu.NotSupported, setCount, g.ID, "its driver offers no SR-IOV partitions"))
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

func (l *countChange) restores(g *gpu.GPU) {
	before := l.config.before.Of(g.ID).Partitions
	if before == 0 || g.Partitionable == nil || g.Partitionable.Count == before {
		return
	}
	l.sets(g, before)
	if h := holders(g); len(h) > 0 {
		l.refuse(refuseGPU(gpu.InUse, "restore the partition count", g.ID, "its partitions are held by %s", l.vmNames(h)).
			OfRule(PartitionInUse).HeldBy(l.vmTexts(h)...).Or("unassign them first").Leaving(fmt.Sprintf("%d partitions", before)))
	}
}

func (l *countChange) steps() {
	var seats []displaced
	l.listedInVain()
	// Nobody is moved for a GPU that nobody holds. Those of the node before are back by now.
	drain := l.config.want.Drain && len(l.held) > 0 && l.change.Undrained[l.key] == "" && WhyNotDrained(&l.host) == ""
	if drain {
		l.add(Step{Op: OpDrainNode})
	} else {
		seats = l.displacedVMs()
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
type displaced struct {
	vm    *gpu.VM
	power gpu.Power
}

// listedInVain refuses to change GPUs of which the host lists partitions for VMs that cannot let go of them.
func (l *countChange) listedInVain() {
	for _, g := range l.held {
		for _, id := range holders(g) {
			fix := "start the VM and shut it down once, or leave the GPU out of selector"
			vm, there := l.host.VM(id)
			if !there {
				vm, fix = &gpu.VM{ID: id, Name: id}, "leave the GPU out of selector, or leave its partition count as it is"
			}
			why := listsInVain(&l.host, id)
			if why == "" || slices.ContainsFunc(l.refused, func(r *gpu.Refusal) bool { return r.GPU == g.ID && r.VM == vm.ID }) {
				continue
			}
			r := refuseGPU(gpu.InUse, setCount, g.ID, "Hyper-V still lists a partition of VM %q: %s", vm.Name, why).Or("%s", fix)
			r.Rule, r.VM = PartitionInUse, vm.ID
			l.refuse(r)
		}
	}
}

// runningHolders are the VMs that hold partitions of a GPU and can let go of them.
func (l *countChange) runningHolders(g *gpu.GPU) []string {
	return slices.DeleteFunc(holders(g), func(id string) bool { return listsInVain(&l.host, id) != "" })
}

// seats are the VMs that have to be off, each with the permission that its own assignment
// gives. VMs that are pinned to a GPU are stopped last, so that they are started first, also
// when the change is undone: another one could take the partition that they need.
func (l *countChange) displacedVMs() (out []displaced) {
	for _, g := range l.held {
		running := l.runningHolders(g)
		if len(running) > 0 && gpu.DisruptVMRestart.Exceeds(l.limit) {
			l.refuse(refuseGPU(gpu.InUse, setCount, g.ID,
				"%s would have to be restarted, but max_disruption does not allow it", l.vmNames(running)).
				Or("allow it with max_disruption = %q, or shut down the VMs first", gpu.DisruptVMRestart).OfRule(PartitionInUse).
				Unless(gpu.DisruptVMRestart))
		}
		before := len(l.refused)
		for _, id := range running {
			if slices.ContainsFunc(out, func(s displaced) bool { return gpu.SameID(s.vm.ID, id) }) {
				continue
			}
			if vm, ok := l.host.VM(id); ok {
				out = append(out, displaced{vm: vm, power: l.permission(vm)})
			}
		}
		for _, r := range l.refused[before:] {
			r.GPU = g.ID
		}
	}
	pinned := func(s displaced) int {
		if slices.ContainsFunc(s.vm.PartitionAdapters, func(a gpu.PartitionAdapter) bool { return a.PinnedGPU != "" }) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b displaced) int { return pinned(a) - pinned(b) })
	return out
}

// keepsOn refuses to stop a VM.
func (l *countChange) keepsOn(vm *gpu.VM, why string) {
	r := refuse(gpu.InUse, "stop the VM", vmText(vm.Name), "%s", why).
		Or("set power.allow_shutdown = true in the gpu_vm_assignment of the VM and apply that first, or shut the VM down yourself").
		OfRule(PartitionInUse)
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
	claim, _ := l.host.Claim(gpu.ClaimAssignment, vm.ID)
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
		l.keepsOn(vm, "it is "+StateText(vm.State)+", and has to run or to be off")
	}
	return power
}

// reshape plans the new counts, with the seats out of the way.
func (l *countChange) reshape(seats []displaced) {
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
	claim, _ := l.host.Claim(gpu.ClaimAssignment, vm.ID)
	if claim == nil || claim.Want.Assignment == nil {
		return a.PinnedGPU
	}
	after := ProjectAll(l.host, l.planner.steps)
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
		if vm.State != gpu.VMOff || len(vm.PartitionAdapters) == 0 {
			continue
		}
		claim, _ := l.host.Claim(gpu.ClaimAssignment, vm.ID)
		if claim == nil || claim.Owner != l.change.Owner {
			continue
		}
		for _, a := range vm.PartitionAdapters {
			affected := slices.ContainsFunc(l.order, func(g *gpu.GPU) bool { return a.PinnedGPU == "" || gpu.SameID(a.PinnedGPU, g.ID) })
			if affected && l.fits(a, nil) && !l.fits(a, l.counts) {
				others := slices.DeleteFunc(adapterIDs(vm.PartitionAdapters), func(id string) bool { return gpu.SameID(id, a.ID) })
				l.add(Step{Op: OpRemoveAdapters, VM: vm.ID, Name: vm.Name, Keep: others})
				l.add(Step{Op: OpAddAdapter, VM: vm.ID, Name: vm.Name, Adapter: &gpu.PartitionAdapter{PinnedGPU: a.PinnedGPU}})
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
