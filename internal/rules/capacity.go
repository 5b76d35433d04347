package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func checkCapacity(r *run) {
	if r.plan.Want.Pool != nil || r.plan.Prior.Pool != nil {
		r.checkPoolMembers(r.plan.Want.Pool, r.plan.Prior.Pool)
		return
	}
	switch w := r.plan.Want; {
	case w.Config != nil:
		r.checkConfigSeats(w.Config)
	case w.Assignment != nil && w.Assignment.Partition != nil:
		r.checkPartitionSeat(w.Assignment)
	case w.Assignment != nil && w.Assignment.Pool != nil:
		r.checkPoolSeats(w.Assignment)
	case w.Assignment != nil && w.Assignment.Device != nil:
		r.checkDeviceFree(w.Assignment)
	}
}

// checkConfigSeats compares the partitions that a host will have with the VMs that
// run on it with an adapter.
func (r *run) checkConfigSeats(c *gpu.PartitionConfig) {
	for host, h := range r.hostsAtHand(c.GPUs) {
		if len(c.GPUs[host]) == 0 {
			continue
		}
		slots, seating := r.slots(host, h), r.seating(host, h)
		seats := total(slots)
		drains := r.forecast(host, h).Drains // they are moved away first, and those that find no room again stay there
		if pinsAny(r.projected(host, h)) {
			r.checkPinned(Finding{Path: "gpu_p.partition_count", Host: host}, slots, seating)
			if !drains {
				r.checkPinnedSeats(host, slots, seating)
			}
		}
		need, _ := tally(seating)
		if need <= seats {
			r.warnOfOff(host, seats, seating)
			continue
		}
		if drains {
			continue
		}
		r.report(Finding{
			Path:   "gpu_p.partition_count",
			Title:  "Too few partitions for the running VMs",
			Host:   host,
			Found:  fmt.Sprintf("On %s %s: %s.", hostText(host), verb(need, "1 running VM needs a partition", fmt.Sprintf("%d partitions are needed by running VMs", need)), joinAll(names(runningOnly(seating)))),
			Wanted: fmt.Sprintf("%s leaves %s there.", r.label(), plural(seats, "partition")),
			Fix:    "Choose a larger `partition_count`, or unassign or move some of these VMs first.",
		}, overflow("config", host, need-seats)...)
	}
}

// warnOfOff says that VMs with an adapter are more than the partitions that a config leaves:
// those that are off now take theirs when they start.
func (r *run) warnOfOff(host string, seats int, seating map[string]seated) {
	_, configured := tally(seating)
	if configured <= seats {
		return
	}
	r.report(Finding{
		Level:  Warning,
		Path:   "gpu_p.partition_count",
		Title:  "More VMs than partitions",
		Host:   host,
		Found:  fmt.Sprintf("On %s, %s configured for %s: %s.", hostText(host), verb(configured, "1 partition is", fmt.Sprintf("%d partitions are", configured)), plural(len(seating), "VM"), joinAll(names(seating))),
		Wanted: fmt.Sprintf("%s leaves %s there. VMs take their partition when they start, so not all of them can run at the same time.", r.label(), plural(seats, "partition")),
		Fix:    "Choose a larger `partition_count`, or unassign or move some of these VMs.",
	}, overflow("configured", host, configured-seats)...)
}

// overflow has one key per missing seat, so that a larger shortage counts as worse.
// No host has a thousand seats; the bound keeps absurd counts harmless.
func overflow(what, host string, n int) []string {
	keys := make([]string, max(0, min(n, 1000)))
	for i := range keys {
		keys[i] = key("short", what, host, strconv.Itoa(i))
	}
	return keys
}

// checkPartitionSeat asks whether the host of the VM has a partition for it. A VM
// that has its adapter already takes no new seat, unless it is pinned to another GPU.
func (r *run) checkPartitionSeat(a *gpu.Assignment) {
	at, ok := r.locate(a)
	if !ok {
		return
	}
	r.checkOwnPinned(at)
	had := at.vm.PartitionAdapters
	moves := len(had) > 0 && !slices.ContainsFunc(had, func(p gpu.PartitionAdapter) bool { return gpu.SameID(p.PinnedGPU, a.Partition.PinnedGPU) })
	adds := len(had) > 0 && !moves && r.addsPartition(at)
	if len(had) > 0 && !moves && !adds {
		return
	}
	slots := r.slots(at.key, at.host)
	seating := r.seating(at.key, at.host)
	if !adds { // else what it has by hand, it keeps
		delete(seating, gpu.FoldID(at.vm.ID))
	}
	if moves && a.Partition.PinnedGPU == "" {
		return
	}
	where := capital(hostText(at.key))
	if pin := a.Partition.PinnedGPU; pin != "" {
		slots = slices.DeleteFunc(slots, func(s slot) bool { return !gpu.SameID(s.gpu.ID, pin) })
		if len(slots) == 0 {
			return
		}
		for id, s := range seating {
			if n := heldBy(slots[0].gpu, id); s.pinned == "" || n > 0 { // it may have partitions of other GPUs as well
				if s.seats = n; s.uses > 0 {
					s.uses = n
				}
				seating[id] = s
			}
			if s.seats == 0 || s.pinned != "" && !gpu.SameID(s.pinned, pin) {
				delete(seating, id)
			}
		}
		takes := func(id string) bool { return heldBy(slots[0].gpu, id) == 0 }
		if moves && slots[0].count == slots[0].gpu.Partitionable.Count && !slices.ContainsFunc(slices.Collect(maps.Keys(seating)), takes) {
			return // of those that have it now, and keep it, the steps tell
		}
		where = gpuOn(at.key, slots[0].gpu)
	} else if choices := r.choices(at, a.Partition, at.key); len(choices) < len(slots) {
		// Its sizes differ, so that whoever names the config is pinned to these.
		slots, where = choices, fmt.Sprintf("Partition config %s on %s", quote(a.Partition.Config), hostText(at.key))
		maps.DeleteFunc(seating, func(id string, s seated) bool {
			return !gpu.SameID(s.config, a.Partition.Config) && !slices.ContainsFunc(choices, func(o slot) bool {
				return gpu.SameID(s.pinned, o.gpu.ID) || contains(holderIDs(o.gpu), id)
			})
		})
	}
	seats := total(slots)
	running, configured := tally(seating)
	f := Finding{
		Path:   "partition",
		Host:   at.key,
		VM:     at.vm.Name,
		Title:  "No free partition",
		Wanted: fmt.Sprintf("%s needs one more.", r.label()),
		Fix:    "Choose a larger `partition_count`, move the VM to another host, or unassign another VM in an apply of its own: Terraform may remove it only after this VM has started.",
	}
	switch {
	case seatedAfter(at.vm, a) && running+1 > seats:
		f.Found = fmt.Sprintf("%s has %s, and VMs that run use %s: %s.", where, plural(seats, "partition"), verb(running, "1", strconv.Itoa(running)), joinAll(names(runningOnly(seating))))
	case configured+1 > seats:
		f.Level = Warning
		f.Title = "More VMs than partitions"
		f.Found = fmt.Sprintf("%s has %s for %s: %s.", where, plural(seats, "partition"), plural(configured+1, "VM"), joinAll(append(names(seating), "this one")))
		f.Wanted = fmt.Sprintf("%s adds one more. VMs take their partition when they start, so not all of them can run at the same time.", r.label())
	default:
		return
	}
	r.report(f, key("seat", at.key, at.vm.ID, string(f.Level)))
}

// addsPartition tells whether the plan gives a VM a partition beside those that it has by hand.
func (r *run) addsPartition(at located) bool {
	if prior := r.plan.Prior.Assignment; r.plan.Unchanged || prior != nil && prior.Partition != nil {
		return false
	}
	then := r.forced(*r.projected(at.key, at.host), at.key, r.plan)
	vm, ok := then.VM(at.vm.ID)
	return ok && len(vm.PartitionAdapters) > len(at.vm.PartitionAdapters)
}

// checkPoolSeats asks whether the pool on the VM's host has GPUs for it.
func (r *run) checkPoolSeats(a *gpu.Assignment) {
	at, ok := r.locate(a)
	if !ok {
		return
	}
	members, known := r.poolMembers(at, a.Pool)
	if !known {
		return
	}
	size := len(members)
	users := r.poolUsers(at.key, at.host, a.Pool.Name)
	delete(users, gpu.FoldID(at.vm.ID))
	running, configured := tally(users)
	f := Finding{
		Path:   "pool",
		Host:   at.key,
		VM:     at.vm.Name,
		Title:  "The pool has too few GPUs",
		Found:  fmt.Sprintf("Pool %s on %s has %s; these VMs use it: %s.", quote(a.Pool.Name), hostText(at.key), plural(size, "GPU"), join(names(users))),
		Wanted: fmt.Sprintf("%s takes %s.", r.label(), plural(poolCount(a.Pool), "GPU")),
		Fix:    "Add GPUs to the pool's `members` on this host, lower `count`, or unassign another VM.",
	}
	n := poolCount(a.Pool)
	switch {
	case n > size || seatedAfter(at.vm, a) && running+n > size:
		r.report(f, overflow("pool "+at.vm.ID, at.key, max(running+n, n)-size)...)
	case configured+n > size:
		f.Level = Warning
		f.Title = "More VMs than GPUs in the pool"
		f.Wanted += " VMs take their GPUs when they start, so not all of them can run at the same time."
		r.report(f, overflow("pool use "+at.vm.ID, at.key, configured+n-size)...)
	}
}

// checkPoolMembers asks whether the VMs that draw from a pool find as many GPUs in it
// after the change. A pool that is destroyed but kept on its hosts takes nothing away.
func (r *run) checkPoolMembers(want, prior *gpu.PoolConfig) {
	pool := cmp.Or(want, prior)
	hosts := map[string][]string{}
	if prior != nil && leavesMounted(want, prior) {
		for host := range prior.Members {
			hosts[host] = nil
		}
	}
	if want != nil {
		maps.Copy(hosts, want.Members)
	}
	for host, h := range r.hostsAtHand(hosts) {
		if want != nil {
			r.checkMembersFree(want, host, h)
		}
		size := len(hosts[host])
		users := r.poolUsers(host, h, pool.Name)
		running, configured := tally(users)
		alone := 0 // one that draws more than there are never starts
		for _, u := range users {
			alone = max(alone, u.seats)
		}
		f := Finding{
			Path:   "members",
			Title:  "The pool would have fewer GPUs than its VMs use",
			Host:   host,
			Found:  fmt.Sprintf("VMs on %s draw %s from pool %s: %s.", hostText(host), plural(configured, "GPU"), quote(pool.Name), joinAll(names(users))),
			Wanted: fmt.Sprintf("%s leaves %s in the pool there.", r.label(), plural(size, "GPU")),
			Fix:    "Unassign these VMs first, or keep the GPUs in the pool.",
		}
		switch {
		case running > size, size > 0 && alone > size:
			r.report(f, overflow("members", host, max(running, alone)-size)...)
		case configured > size:
			f.Level = Warning
			r.report(f, overflow("members", host, configured-size)...)
		}
	}
}

// checkMembersFree asks whether a VM has a GPU of the pool by itself. Nobody could take it out
// of the pool again while the VM runs, not even to put the change back.
func (r *run) checkMembersFree(pool *gpu.PoolConfig, host string, h *gpu.Host) {
	then := r.projected(host, h)
	for g := range selected(h, pool.Members[host]) {
		f := Finding{
			Path:   "members",
			Title:  "The GPU belongs to a VM",
			Host:   host,
			GPU:    g.ID,
			Wanted: fmt.Sprintf("%s takes it into the pool.", r.label()),
			Fix:    "Choose another GPU, or unassign this one first.",
		}
		if e := r.conflict(host, func(w gpu.Want) bool { return w.Assignment != nil && takesWhole(w, host, g.ID) }); e != nil {
			r.reportBothTake(f, e, host, g)
			continue
		}
		byItself := func(d gpu.DeviceAssignment) bool { return d.Pool == "" && gpu.SameID(d.GPU, g.ID) }
		for i := range h.VMs {
			vm := &h.VMs[i]
			after, ok := then.VM(vm.ID)
			if !ok || r.mayGo(host, vm) || !slices.ContainsFunc(vm.Devices, byItself) || !slices.ContainsFunc(after.Devices, byItself) {
				continue
			}
			if c, ok := r.claimOnVM(host, vm.ID); ok && r.applying && r.owner != "" && c.Owner == r.owner {
				continue // the plan has found that it gives the GPU up
			}
			f.Found = fmt.Sprintf("%s is assigned to %s.", capital(gpuOn(host, g)), vmText(vm))
			r.report(f, key("holder", host, g.ID))
		}
	}
}

// reportBothTake words it the same for both sides that two resources of the run take a GPU.
func (r *run) reportBothTake(f Finding, e *entry, host string, g *gpu.GPU) {
	f.Title = "The GPU belongs to another VM"
	if r.plan.Want.Pool != nil || e.plan.Want.Pool != nil {
		f.Title = "A GPU is both in a pool and assigned by itself"
	}
	f.Other = labelOf(e.plan)
	f.Found = fmt.Sprintf("%s both take %s.", r.both(e), gpuOn(host, g))
	f.Wanted = "A physical GPU is given whole to one VM only."
	f.Fix = "Leave it out of one of the two." + wayOut
	r.report(f, key("rival", host, g.ID, labelOf(e.plan)))
}

func poolCount(p *gpu.PoolWant) int { return max(p.Count, 1) }

// poolUsers lists who draws from a pool on the host after this run.
func (r *run) poolUsers(host string, h *gpu.Host, pool string) map[string]seated {
	return r.users(host, r.projection(host, h), func(vm *gpu.VM) (all, held int) {
		for _, d := range vm.Devices {
			if gpu.SameID(d.Pool, pool) && d.GPU != "" {
				held++
			}
		}
		return drawn(vm, pool), held
	})
}

// drawn is the number of a VM's devices that come from a pool.
func drawn(vm *gpu.VM, pool string) int {
	n := 0
	for _, d := range vm.Devices {
		if gpu.SameID(d.Pool, pool) {
			n++
		}
	}
	return n
}

// checkDeviceFree asks whether somebody else has one of the named GPUs.
func (r *run) checkDeviceFree(a *gpu.Assignment) {
	h, ok := r.host(a.Device.Host)
	if !ok {
		return
	}
	own := r.vmID(a)
	for g := range selected(h, a.Device.GPUIDs) {
		f := Finding{
			Path:   "device.gpu_ids",
			Title:  "The GPU belongs to another VM",
			Host:   a.Device.Host,
			GPU:    g.ID,
			VM:     vmWritten(a),
			Wanted: "A physical GPU is given whole to one VM only.",
			Fix:    "Choose another GPU, or unassign this one first.",
		}
		if e := r.deviceRival(a, g.ID); e != nil {
			r.reportBothTake(f, e, a.Device.Host, g)
			continue
		}
		if p := r.pooled(a.Device.Host, h, g.ID); p != nil {
			f.Title = "The GPU is in a pool"
			f.Found = fmt.Sprintf("%s is in pool %s.", capital(gpuOn(a.Device.Host, g)), quote(p.Name))
			f.Wanted = fmt.Sprintf("%s takes it by itself.", r.label())
			f.Fix = "Choose another GPU, or take this one out of the pool first."
			r.report(f, key("pooled", a.Device.Host, g.ID))
			continue
		}
		if vm := r.deviceHolder(a.Device.Host, h, g.ID, own); vm != nil {
			f.Found = fmt.Sprintf("%s is assigned to %s.", capital(gpuOn(a.Device.Host, g)), vmText(vm))
			f.Wanted = fmt.Sprintf("%s takes it. %s", r.label(), f.Wanted)
			r.report(f, key("holder", a.Device.Host, g.ID))
		}
	}
}

// deviceRival is another assignment, or a pool, of this run that takes the GPU.
func (r *run) deviceRival(a *gpu.Assignment, id string) *entry {
	return r.conflict(a.Device.Host, func(w gpu.Want) bool {
		return takesWhole(w, a.Device.Host, id) && (w.Pool != nil || !r.sameVM(a, w.Assignment))
	})
}

// pooled is the pool of a host that a GPU is in, and stays in by what the run has planned.
func (r *run) pooled(host string, h *gpu.Host, id string) *gpu.Pool {
	p := inPool(h, id)
	if p == nil {
		return nil
	}
	for e := range r.others(gpusOn(host)) {
		if takesWhole(gpu.Want{Pool: e.plan.Prior.Pool}, host, id) {
			return nil // else it would be a rival
		}
	}
	if c, ok := h.Claim(gpu.ClaimPool, p.Name); r.lenient && ok && c.Owner == r.owner && !r.superseded(c) {
		return nil
	}
	return p
}

// deviceHolder is another VM that has the GPU and keeps it in this run.
func (r *run) deviceHolder(host string, h *gpu.Host, id, own string) *gpu.VM {
	then := r.projected(host, h)
	for i := range h.VMs {
		vm := &h.VMs[i]
		if after, ok := then.VM(vm.ID); ok && has(vm, id) && has(after, id) && !gpu.SameID(vm.ID, own) && !r.mayGo(host, vm) {
			return vm
		}
	}
	return nil
}

// has tells whether a VM has a GPU whole.
func has(vm *gpu.VM, id string) bool {
	return slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return gpu.SameID(d.GPU, id) })
}
