package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

func checkCapacity(r *run) {
	if r.Plan.Want.Pool != nil || r.Plan.Prior.Pool != nil {
		checkPoolMembers(r, r.Plan.Want.Pool, r.Plan.Prior.Pool)
		return
	}
	switch w := r.Plan.Want; {
	case w.Config != nil:
		checkConfigRoom(r, w.Config)
	case w.Assignment != nil && w.Assignment.Partition != nil:
		checkPartitionRoom(r, w.Assignment)
	case w.Assignment != nil && w.Assignment.Pool != nil:
		checkPoolRoom(r, w.Assignment)
	case w.Assignment != nil && w.Assignment.Device != nil:
		checkDeviceFree(r, w.Assignment)
	}
}

// checkConfigRoom compares the partitions that a host will have with the VMs that
// run on it with an adapter.
func checkConfigRoom(r *run, c *gpu.PartitionConfig) {
	for host, h := range r.HostsAtHand(c.GPUs) {
		if len(c.GPUs[host]) == 0 {
			continue
		}
		slots, demands := r.Future().Slots(host, h), r.Future().Demands(host, h)
		room := whatif.Total(slots)
		drains := r.Forecast(host, h).Drains // they are moved away first, and those that find no room again stay there
		if whatif.PinsAny(r.Future().Projected(host, h)) {
			checkPinned(r, Finding{Path: "gpu_p.partition_count", Host: host}, slots, demands)
			if !drains {
				checkPinnedRoom(r, host, slots, demands)
			}
		}
		need, _ := whatif.Tally(demands)
		if need <= room {
			warnOfOff(r, host, room, demands)
			continue
		}
		if drains {
			continue
		}
		r.report(Finding{
			Path:  "gpu_p.partition_count",
			Title: "Too few partitions for the running VMs",
			Host:  host,
			Found: fmt.Sprintf("On %s %s: %s.", hostText(host),
				verb(need, "1 running VM needs a partition", fmt.Sprintf("%d partitions are needed by running VMs", need)),
				joinAll(names(whatif.RunningOnly(demands)))),
			Wanted: fmt.Sprintf("%s leaves %s there.", r.label(), plural(room, "partition")),
			Fix:    "Choose a larger `partition_count`, or unassign or move some of these VMs first.",
		}, overflow("config", host, need-room)...)
	}
}

// warnOfOff says that VMs with an adapter are more than the partitions that a config leaves:
// those that are off now take theirs when they start.
func warnOfOff(r *run, host string, room int, demands map[string]whatif.Demand) {
	_, configured := whatif.Tally(demands)
	if configured <= room {
		return
	}
	r.report(Finding{
		Level: Warning,
		Path:  "gpu_p.partition_count",
		Title: "More VMs than partitions",
		Host:  host,
		Found: fmt.Sprintf("On %s, %s configured for %s: %s.", hostText(host),
			verb(configured, "1 partition is", fmt.Sprintf("%d partitions are", configured)), plural(len(demands), "VM"), joinAll(names(demands))),
		Wanted: fmt.Sprintf("%s leaves %s there. VMs take their partition when they start, so not all of them can run at the same time.",
			r.label(), plural(room, "partition")),
		Fix: "Choose a larger `partition_count`, or unassign or move some of these VMs.",
	}, overflow("configured", host, configured-room)...)
}

// overflow has one key per missing partition, so that a larger shortage counts as worse.
// No host has a thousand partitions; the bound keeps absurd counts harmless.
func overflow(what, host string, n int) []string {
	keys := make([]string, max(0, min(n, 1000)))
	for i := range keys {
		keys[i] = key("short", what, host, strconv.Itoa(i))
	}
	return keys
}

// checkPartitionRoom asks whether the host of the VM has a partition for it. A VM
// that has its adapter already takes no new one, unless it is pinned to another GPU.
func checkPartitionRoom(r *run, a *gpu.Assignment) {
	at, ok := r.Locate(a)
	if !ok {
		return
	}
	if at.Host.Platform == gpu.Linux {
		checkVGPURoom(r, at, a)
		return
	}
	checkOwnPinned(r, at)
	c, asks := r.Future().Contest(at, a)
	if !asks {
		return
	}
	where := capital(hostText(at.Key))
	switch {
	case c.Pinned:
		where = gpuOn(at.Key, c.Slots[0].GPU)
	case c.OfConfig:
		where = fmt.Sprintf("%s on %s", capital(configsText(a.Partition)), hostText(at.Key))
	}
	demands := c.Others
	room := whatif.Total(c.Slots)
	running, configured := whatif.Tally(demands)
	f := Finding{
		Path:   "partition",
		Host:   at.Key,
		VM:     at.VM.Name,
		Title:  "No free partition",
		Wanted: fmt.Sprintf("%s needs one more.", r.label()),
		Fix: "Choose a larger `partition_count`, move the VM to another host, or unassign another VM in an apply of its own: Terraform may " +
			"remove it only after this VM has started.",
	}
	switch {
	case whatif.RunsAfter(at.VM, a) && running+1 > room:
		f.Found = fmt.Sprintf("%s has %s, and VMs that run use %s: %s.", where, plural(room, "partition"),
			verb(running, "1", strconv.Itoa(running)), joinAll(names(whatif.RunningOnly(demands))))
	case configured+1 > room:
		f.Level = Warning
		f.Title = "More VMs than partitions"
		f.Found = fmt.Sprintf("%s has %s for %s: %s.", where, plural(room, "partition"), plural(configured+1, "VM"),
			joinAll(append(names(demands), "this one")))
		f.Wanted = fmt.Sprintf("%s adds one more. VMs take their partition when they start, so not all of them can run at the same time.",
			r.label())
	default:
		return
	}
	r.report(f, key("seat", at.Key, at.VM.ID, string(f.Level)))
}

// checkPoolRoom asks whether the pool on the VM's host has GPUs for it.
func checkPoolRoom(r *run, a *gpu.Assignment) {
	at, ok := r.Locate(a)
	if !ok {
		return
	}
	members, known := r.PoolMembers(at, a.Pool)
	if !known {
		return
	}
	size := len(members)
	users := r.Future().PoolUsers(at.Key, at.Host, a.Pool.Name)
	delete(users, gpu.FoldID(at.VM.ID))
	running, configured := whatif.Tally(users)
	f := Finding{
		Path:  "pool",
		Host:  at.Key,
		VM:    at.VM.Name,
		Title: "The pool has too few GPUs",
		Found: fmt.Sprintf("Pool %s on %s has %s; these VMs use it: %s.", quote(a.Pool.Name), hostText(at.Key),
			plural(size, "GPU"), join(names(users))),
		Wanted: fmt.Sprintf("%s takes %s.", r.label(), plural(whatif.PoolCount(a.Pool), "GPU")),
		Fix:    "Add GPUs to the pool's `members` on this host, lower `count`, or unassign another VM.",
	}
	f.Fix += r.ofThisState(at.Key, users)
	n := whatif.PoolCount(a.Pool)
	switch {
	case n > size || whatif.RunsAfter(at.VM, a) && running+n > size:
		r.report(f, overflow("pool "+at.VM.ID, at.Key, max(running+n, n)-size)...)
	case configured+n > size:
		f.Level = Warning
		f.Title = "More VMs than GPUs in the pool"
		f.Wanted += " VMs take their GPUs when they start, so not all of them can run at the same time."
		r.report(f, overflow("pool use "+at.VM.ID, at.Key, configured+n-size)...)
	}
}

// ofThisState says of users that this state has claims of how to get at one that left the state without a destroy. The host alone
// can say it: in a plan the resource may be still to come.
func (r *run) ofThisState(host string, users map[string]whatif.Demand) string {
	var own []string
	for _, id := range whatif.SortedKeys(users) {
		vm := users[id].VM
		if c, ok := r.ClaimOnVM(host, vm.ID); ok && r.Mode.OnHost && r.Owner != "" && c.Owner == r.Owner {
			own = append(own, quote(vm.Name))
		}
	}
	if len(own) == 0 {
		return ""
	}
	return fmt.Sprintf(" This state's owner has claims for %s: where no resource has such a VM any more, as after `terraform state rm` or "+
		"`destroy = false`, import it and destroy it.", joinAll(own))
}

// checkPoolMembers asks whether the VMs that draw from a pool find as many GPUs in it
// after the change. A pool that is destroyed but kept on its hosts takes nothing away.
func checkPoolMembers(r *run, want, prior *gpu.PoolConfig) {
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
	for host, h := range r.HostsAtHand(hosts) {
		if want != nil {
			checkMembersFree(r, want, host, h)
		}
		size := len(hosts[host])
		users := r.Future().PoolUsers(host, h, pool.Name)
		running, configured := whatif.Tally(users)
		alone := 0 // one that draws more than there are never starts
		for _, u := range users {
			alone = max(alone, u.Amount)
		}
		f := Finding{
			Path:  "members",
			Title: "The pool would have fewer GPUs than its VMs use",
			Host:  host,
			Found: fmt.Sprintf("VMs on %s draw %s from pool %s: %s.", hostText(host), plural(configured, "GPU"),
				quote(pool.Name), joinAll(names(users))),
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
func checkMembersFree(r *run, pool *gpu.PoolConfig, host string, h *gpu.Host) {
	then := r.Future().Projected(host, h)
	for g := range whatif.Selected(h, pool.Members[host]) {
		f := Finding{
			Path:   "members",
			Title:  "The GPU belongs to a VM",
			Host:   host,
			GPU:    g.ID,
			Wanted: fmt.Sprintf("%s takes it into the pool.", r.label()),
			Fix:    "Choose another GPU, or unassign this one first.",
		}
		if e := r.Conflict(host, func(w gpu.Want) bool { return w.Assignment != nil && whatif.TakesWhole(w, host, g.ID) }); e != nil {
			reportBothTake(r, f, e, host, g)
			continue
		}
		byItself := func(d gpu.DeviceAssignment) bool { return d.Pool == "" && gpu.SameID(d.GPU, g.ID) }
		for i := range h.VMs {
			vm := &h.VMs[i]
			after, ok := then.VM(vm.ID)
			if !ok || r.MayYieldVM(host, vm) || !slices.ContainsFunc(vm.Devices, byItself) || !slices.ContainsFunc(after.Devices, byItself) {
				continue
			}
			if c, ok := r.ClaimOnVM(host, vm.ID); ok && r.Mode.OnHost && r.Owner != "" && c.Owner == r.Owner {
				continue // the plan has found that it gives the GPU up
			}
			f.Found = fmt.Sprintf("%s is assigned to %s.", capital(gpuOn(host, g)), vmText(vm))
			r.report(f, key("holder", host, g.ID))
		}
	}
}

// reportBothTake words it the same for both sides that two resources of the run take a GPU.
func reportBothTake(r *run, f Finding, e *whatif.Entry, host string, g *gpu.GPU) {
	f.Title = "The GPU belongs to another VM"
	if r.Plan.Want.Pool != nil || e.Plan.Want.Pool != nil {
		f.Title = "A GPU is both in a pool and assigned by itself"
	}
	f.Other = whatif.Label(e.Plan)
	f.Found = fmt.Sprintf("%s both take %s.", r.both(e), gpuOn(host, g))
	f.Wanted = "A physical GPU is given whole to one VM only."
	f.Fix = "Leave it out of one of the two." + wayOut
	r.report(f, key("rival", host, g.ID, whatif.Label(e.Plan)))
}

// checkDeviceFree asks whether somebody else has one of the named GPUs.
func checkDeviceFree(r *run, a *gpu.Assignment) {
	h, ok := r.Host(a.Device.Host)
	if !ok {
		return
	}
	own := r.VMID(a)
	for g := range whatif.Selected(h, a.Device.GPUIDs) {
		f := Finding{
			Path:   "device.gpu_ids",
			Title:  "The GPU belongs to another VM",
			Host:   a.Device.Host,
			GPU:    g.ID,
			VM:     whatif.VMWritten(a),
			Wanted: "A physical GPU is given whole to one VM only.",
			Fix:    "Choose another GPU, or unassign this one first.",
		}
		if e := r.DeviceRival(a, g.ID); e != nil {
			reportBothTake(r, f, e, a.Device.Host, g)
			continue
		}
		if p := r.Future().Pooled(a.Device.Host, h, g.ID); p != nil {
			f.Title = "The GPU is in a pool"
			f.Found = fmt.Sprintf("%s is in pool %s.", capital(gpuOn(a.Device.Host, g)), quote(p.Name))
			f.Wanted = fmt.Sprintf("%s takes it by itself.", r.label())
			f.Fix = "Choose another GPU, or take this one out of the pool first."
			r.report(f, key("pooled", a.Device.Host, g.ID))
			continue
		}
		if vm := r.Future().DeviceHolder(a.Device.Host, h, g.ID, own); vm != nil {
			f.Found = fmt.Sprintf("%s is assigned to %s.", capital(gpuOn(a.Device.Host, g)), vmText(vm))
			f.Wanted = fmt.Sprintf("%s takes it. %s", r.label(), f.Wanted)
			r.report(f, key("holder", a.Device.Host, g.ID))
		}
	}
}
