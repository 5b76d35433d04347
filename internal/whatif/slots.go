package whatif

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Slot is a partitionable GPU of a host with the number of partitions that it will
// have once the plans of this run are made real.
type Slot struct {
	GPU    *gpu.GPU // as it is now
	Count  int
	Config *gpu.Claim // of the config that will cover it, or nil

	// In a cluster:
	host  string
	node  string // what the cluster calls the host
	up    bool   // VMs may come here
	taken []taken
}

// Likeness tells whether two slots give partitions of one size. Estimates are taken to be
// as good as the driver's figures.
func (s Slot) Likeness(o Slot) bool {
	a, exactA := s.Size()
	b, exactB := o.Size()
	if a == 0 || b == 0 {
		return s.Count == o.Count
	}
	if exactA && exactB {
		return a == b
	}
	return Within(a, b, EstimateTolerance)
}

// LikeAny tells whether a slot gives partitions of the size of one of some others.
func (s Slot) LikeAny(of []Slot) bool { return slices.ContainsFunc(of, s.Likeness) }

// Size is the memory of one partition, and whether the host has said so; at another
// count than the present one it is an estimate.
func (s Slot) Size() (size gpu.Bytes, exact bool) {
	if s.Count == s.GPU.Partitionable.Count {
		return s.GPU.Partitionable.PartitionVRAM(), true
	}
	return s.GPU.Partitionable.EstimatedPartitionVRAM(s.Count), false
}

// Slots lists the GPUs of a host that Hyper-V may take partitions from after this run:
// partitioned for real, not dismounted and not in a pool.
func (r Future) Slots(host string, h *gpu.Host) []Slot {
	return slices.Clone(r.projection(host, h).slots)
}

func slotsOf(h, then *gpu.Host) []Slot {
	var out []Slot
	for i := range then.GPUs {
		g := &then.GPUs[i]
		if now, ok := h.GPU(g.ID); ok && now.Partitionable != nil && Partitions(g) && InPool(then, g.ID) == nil {
			s := Slot{GPU: now, Count: g.Partitionable.Count}
			for c := range then.ClaimsOf(gpu.ClaimConfig) {
				if c.Covers(g.ID) {
					s.Config = c
				}
			}
			out = append(out, s)
		}
	}
	return out
}

// ConfigSlots are the slots of a host that some configs cover once the plans of the run are
// made real.
func (r Future) ConfigSlots(host string, ids ...string) []Slot {
	return slices.DeleteFunc(r.Slots(host, r.Fleet.byName[host]), func(s Slot) bool {
		if c := r.Plan.Want.Config; c != nil && gpu.HasID(ids, c.ID) { // also as it was before
			if gpu.HasID(c.GPUs[host], s.GPU.ID) || s.Config != nil && gpu.SameID(s.Config.ID, c.ID) {
				return !gpu.HasID(c.GPUs[host], s.GPU.ID)
			}
		}
		return s.Config == nil || !gpu.HasID(ids, s.Config.ID)
	})
}

// Choices are the slots that Hyper-V may take the VM's partition from: of the pinned GPU, or
// on a standalone host with GPUs of several sizes those of the config, which the VM is pinned
// to; else all of the host.
func (r Future) Choices(at Located, p *gpu.PartitionWant, host string) []Slot {
	all := r.Slots(host, r.Fleet.byName[host])
	if p.PinnedGPU != "" {
		return slices.DeleteFunc(all, func(s Slot) bool { return !gpu.SameID(s.GPU.ID, p.PinnedGPU) })
	}
	if len(p.ConfigIDs()) == 0 || at.VM.Clustered {
		return all
	}
	own := r.ConfigSlots(host, p.ConfigIDs()...)
	if len(own) == 0 || !slices.ContainsFunc(all, func(s Slot) bool { return !s.LikeAny(own) }) {
		return all
	}
	return own
}

// Demand is a VM that has, or will have, partitions on a host or GPUs of a pool; or several VMs alike.
type Demand struct {
	Name      string
	VM        *gpu.VM
	Amount    int
	uses      int // of the amount what it has in its hands once the run is done
	clustered bool
	pinned    string
	Planned   bool               // it does not have it yet; a plan of this run gives it
	Asks      *gpu.PartitionWant // the partition that its assignment asks for, or nil

	// Of a VM that may have to move:
	host string  // that it runs on
	min  *uint64 // the least memory that its partition must have
	on   string  // the GPU whose partition it keeps while it stays
}

// boundTo are the configs that the partition of a VM is bound to.
func (d Demand) boundTo() []string {
	if d.Asks == nil {
		return nil
	}
	return d.Asks.ConfigIDs()
}

// Demands lists who has a partition on the host after this run, by folded VM id.
func (r Future) Demands(host string, h *gpu.Host) map[string]Demand {
	return r.demandsOn(host, r.projection(host, h))
}

// demandsOn are those who have a partition on a projected host.
func (r Future) demandsOn(host string, p *projection) map[string]Demand {
	held := holders(&p.host)
	return r.users(host, p, func(vm *gpu.VM) (int, int) { return len(vm.PartitionAdapters), held[gpu.FoldID(vm.ID)] })
}

// users lists the VMs that have something of a host after this run, by folded id: how much, and
// how much of that they hold. One that runs then has all of it in use, and one that does not only
// what it holds: it is paused, or goes on until its next power-off.
func (r Future) users(host string, p *projection, has func(*gpu.VM) (all, held int)) map[string]Demand {
	claims := map[string]*gpu.Assignment{}
	for c := range p.host.ClaimsOf(gpu.ClaimAssignment) {
		if id := gpu.FoldID(c.ID); claims[id] == nil {
			claims[id] = c.Want.Assignment
		}
	}
	out := map[string]Demand{}
	for i := range p.host.VMs {
		vm := &p.host.VMs[i]
		n, uses := has(vm)
		if n == 0 || r.MayYieldVM(host, vm) {
			continue
		}
		id := gpu.FoldID(vm.ID)
		if vm.Runs() {
			uses = n
		}
		s := Demand{Name: cmp.Or(vm.Name, vm.ID), VM: vm, Amount: n, uses: uses, clustered: vm.Clustered, Planned: true}
		if now := r.Fleet.vmOn(host, id); now != nil {
			had, _ := has(now)
			s.Planned = had == 0
		}
		if len(vm.PartitionAdapters) > 0 {
			s.pinned = vm.PartitionAdapters[0].PinnedGPU
		}
		if a := claims[id]; a != nil && a.Partition != nil {
			s.Asks = a.Partition
		}
		out[id] = s
	}
	return out
}

// RunsAfter tells whether a VM that gets its first partition by this plan runs
// with it afterwards: it runs now, and is stopped and started again.
func RunsAfter(vm *gpu.VM, a *gpu.Assignment) bool {
	return vm.Runs() && !a.Power.StayOff && !a.Power.NextOff
}

// holders are how many partitions of the host VMs hold, by folded id.
func holders(h *gpu.Host) map[string]int {
	out := map[string]int{}
	for i := range h.GPUs {
		if p := h.GPUs[i].Partitionable; p != nil {
			for _, part := range p.Partitions {
				out[gpu.FoldID(part.VMID)]++
			}
		}
	}
	return out
}

// Tally counts amount: those in use, and all.
func Tally(demands map[string]Demand) (running, configured int) {
	for _, s := range demands {
		configured += s.Amount
		running += s.uses
	}
	return running, configured
}

// RunningOnly leaves those that run.
func RunningOnly(demands map[string]Demand) map[string]Demand {
	out := maps.Clone(demands)
	maps.DeleteFunc(out, func(_ string, s Demand) bool { return s.uses == 0 })
	return out
}

// Total is the number of partitions of all slots.
func Total(slots []Slot) int {
	n := 0
	for _, s := range slots {
		n += s.Count
	}
	return n
}

// PoolUsers lists who draws from a pool on the host after this run.
func (r Future) PoolUsers(host string, h *gpu.Host, pool string) map[string]Demand {
	return r.users(host, r.projection(host, h), func(vm *gpu.VM) (all, held int) {
		for _, d := range vm.Devices {
			if gpu.SameID(d.Pool, pool) && d.GPU != "" {
				held++
			}
		}
		return Drawn(vm, pool), held
	})
}

// AddsPartition tells whether the plan gives a VM a partition beside those that it has by hand.
func (r Future) addsPartition(at Located) bool {
	if prior := r.Plan.Prior.Assignment; r.Plan.Unchanged || prior != nil && prior.Partition != nil {
		return false
	}
	then := r.MadeAnyway(*r.Projected(at.Key, at.Host), at.Key, r.Plan)
	vm, ok := then.VM(at.VM.ID)
	return ok && len(vm.PartitionAdapters) > len(at.VM.PartitionAdapters)
}

// Within tells whether a is at most so many percent away from b.
func Within(a, b gpu.Bytes, percent gpu.Bytes) bool {
	if a < b {
		a, b = b, a
	}
	return a-b <= a/100*percent
}

// starter is a VM that a run starts with partitions.
type starter struct {
	name   string
	held   map[string]int // those that it has now, by GPU
	pinned map[string]int // those of GPUs that people pinned it to
	loose  [][]Slot       // for each of the others the GPUs that the platform may take it from
}

// PinsAny tells whether an assignment on a host pins its VM to a GPU.
func PinsAny(h *gpu.Host) bool {
	for c := range h.ClaimsOf(gpu.ClaimAssignment) {
		if a := c.Want.Assignment; a != nil && a.Partition != nil && a.Partition.PinnedGPU != "" {
			return true
		}
	}
	return false
}

// startsWith is what a VM takes at its start. For its config it is pinned to one of the config's
// GPUs, which is chosen only then.
func startsWith(v Demand, slots []Slot) *starter {
	out := &starter{name: v.Name, held: map[string]int{}, pinned: map[string]int{}}
	own := slices.DeleteFunc(slices.Clone(slots), func(s Slot) bool { return s.Config == nil || !gpu.HasID(v.boundTo(), s.Config.ID) })
	for _, a := range v.VM.PartitionAdapters {
		at := slices.IndexFunc(slots, func(s Slot) bool { return gpu.SameID(s.GPU.ID, a.PinnedGPU) })
		switch {
		case a.PinnedGPU == "":
			out.loose = append(out.loose, slots)
		case (v.Asks == nil || !gpu.SameID(a.PinnedGPU, v.Asks.PinnedGPU)) && len(own) > 0:
			out.loose = append(out.loose, own)
		case at >= 0:
			out.pinned[slots[at].GPU.ID]++
		}
	}
	return out
}

// takenFirst is how many partitions of a GPU VMs that are not pinned to it may take before one that
// is gets its own: at worst all others have come before, what that one has of others has too, and of
// two GPUs with as many free partitions they get this one.
func takenFirst(of Slot, last string, starters map[string]*starter, free map[string]int) int {
	pinned := func(v *starter, id string) int {
		if id == of.GPU.ID {
			return 0 // else it has come before
		}
		return v.pinned[id]
	}
	room := map[string]int{}
	for id, n := range free {
		room[id] = n
		for _, v := range starters {
			room[id] -= max(v.held[id], pinned(v, id))
		}
	}
	taken := 0
	order := slices.DeleteFunc(SortedKeys(starters), func(id string) bool { return id == last })
	for _, id := range append(order, last) {
		v := starters[id]
		for id, n := range v.held { // it is stopped first
			room[id] += max(0, n-pinned(v, id))
		}
		for _, from := range v.loose {
			points := func(s Slot) int {
				switch left := room[s.GPU.ID] - v.pinned[s.GPU.ID]; {
				case s.GPU != of.GPU:
					return 2 * room[s.GPU.ID]
				case left <= 0:
					return 2 * left // it would not find its own there
				}
				return 2*room[s.GPU.ID] + 1
			}
			best := slices.MaxFunc(from, func(a, b Slot) int { return points(a) - points(b) })
			if room[best.GPU.ID]--; best.GPU == of.GPU {
				taken++
			}
		}
	}
	return taken
}

// EstimateTolerance is how far, in percent, an estimated partition size may be from
// the asserted one. The driver rounds and reserves; only the present count is exact.
const EstimateTolerance = 5

// Contest is the slots that a VM may take one more partition of, and the other demands for them, by
// folded VM id.
type Contest struct {
	Slots    []Slot
	Others   map[string]Demand
	Pinned   bool // the slot is the one GPU that the assignment pins the VM to
	OfConfig bool // the slots are those of the assignment's configs, whose sizes differ from others
}

// Contest is that of an assignment's VM. It asks for nothing where the VM has its partition already,
// unless that is to be one of another GPU.
func (r Future) Contest(at Located, a *gpu.Assignment) (c Contest, asks bool) {
	has, pin := at.VM.PartitionAdapters, a.Partition.PinnedGPU
	moves := len(has) > 0 && !slices.ContainsFunc(has, func(p gpu.PartitionAdapter) bool { return gpu.SameID(p.PinnedGPU, pin) })
	adds := len(has) > 0 && !moves && r.addsPartition(at)
	if len(has) > 0 && !moves && !adds || moves && pin == "" {
		return c, false
	}
	c = Contest{Slots: r.Slots(at.Key, at.Host), Others: r.Demands(at.Key, at.Host)}
	if !adds { // else what it has by hand, it keeps
		delete(c.Others, gpu.FoldID(at.VM.ID))
	}
	if pin != "" {
		return c, c.narrowToGPU(pin, moves)
	}
	if choices := r.Choices(at, a.Partition, at.Key); len(choices) < len(c.Slots) {
		c.narrowToConfigs(a.Partition.ConfigIDs(), choices)
	}
	return c, true
}

// narrowToGPU leaves one GPU and those who have or want partitions of it. It tells whether there is
// anything to ask.
func (c *Contest) narrowToGPU(id string, moves bool) bool {
	c.Pinned = true
	c.Slots = slices.DeleteFunc(c.Slots, func(s Slot) bool { return !gpu.SameID(s.GPU.ID, id) })
	if len(c.Slots) == 0 {
		return false
	}
	of, takes := c.Slots[0], false
	for vm, d := range c.Others {
		held := heldBy(of.GPU, vm)
		if d.pinned == "" || held > 0 { // it may have partitions of other GPUs as well
			if d.Amount = held; d.uses > 0 {
				d.uses = held
			}
			c.Others[vm] = d
		}
		if d.Amount == 0 || d.pinned != "" && !gpu.SameID(d.pinned, id) {
			delete(c.Others, vm)
			continue
		}
		takes = takes || held == 0
	}
	return takes || !moves || of.Count != of.GPU.Partitionable.Count // of those that have it now, and keep it, the steps tell
}

// narrowToConfigs leaves the slots of some configs: their sizes differ from the others', so that whoever names the configs is
// pinned to these.
func (c *Contest) narrowToConfigs(ids []string, choices []Slot) {
	c.Slots, c.OfConfig = choices, true
	maps.DeleteFunc(c.Others, func(vm string, d Demand) bool {
		named := slices.ContainsFunc(d.boundTo(), func(id string) bool { return gpu.HasID(ids, id) })
		return !named && !slices.ContainsFunc(choices, func(s Slot) bool {
			return gpu.SameID(d.pinned, s.GPU.ID) || gpu.HasID(HolderIDs(s.GPU), vm)
		})
	})
}

// PinnedContest is a GPU that a run starts VMs with, some pinned to it, and others that the platform
// may give it before: then one of the pinned VMs finds no partition.
type PinnedContest struct {
	GPU           *gpu.GPU
	Free          int      // partitions before any of them has started
	Pinned, Loose []string // names of VMs
}

// PinnedContests finds them on a host.
func (r Future) PinnedContests(host string, slots []Slot, demands map[string]Demand) []PinnedContest {
	starters := map[string]*starter{}
	for id, d := range demands {
		if d.VM.Runs() && !GoesOn(r.Fleet.vmOn(host, id), d.VM) {
			starters[id] = startsWith(d, slots)
		}
	}
	free := map[string]int{}
	for _, s := range slots {
		free[s.GPU.ID] = s.Count
		for _, part := range s.GPU.Partitionable.Partitions {
			id := gpu.FoldID(part.VMID)
			if v := starters[id]; v != nil {
				v.held[s.GPU.ID]++
			} else if _, stays := demands[id]; stays {
				free[s.GPU.ID]--
			}
		}
	}
	var out []PinnedContest
	for _, s := range slots {
		if c, contested := contestOf(s, starters, free); contested {
			out = append(out, c)
		}
	}
	return out
}

func contestOf(s Slot, starters map[string]*starter, free map[string]int) (c PinnedContest, contested bool) {
	c = PinnedContest{GPU: s.GPU, Free: free[s.GPU.ID]}
	room := c.Free
	var pinned []string
	for _, id := range SortedKeys(starters) {
		if n := starters[id].pinned[s.GPU.ID]; n > 0 {
			pinned, c.Pinned = append(pinned, id), append(c.Pinned, starters[id].name)
			room -= n
		}
	}
	last := slices.IndexFunc(pinned, func(id string) bool { return takenFirst(s, id, starters, free) > room })
	if room < 0 || last < 0 {
		return c, false
	}
	for _, id := range SortedKeys(starters) {
		if v := starters[id]; len(v.loose) > 0 && id != pinned[last] {
			c.Loose = append(c.Loose, v.name)
		}
	}
	return c, len(c.Loose) > 0 // else it takes it itself, whichever comes first
}

// PinnedTo are the VMs that run and are pinned to a slot's GPU, and how many partitions they need.
func PinnedTo(s Slot, slots []Slot, demands map[string]Demand) (pinned []Demand, need int) {
	for _, id := range SortedKeys(demands) {
		d := demands[id]
		if n := startsWith(d, slots).pinned[s.GPU.ID]; n > 0 && d.VM.Runs() {
			pinned, need = append(pinned, d), need+n
		}
	}
	return pinned, need
}
