package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func checkVMMustBeOff(r *run) {
	if !r.transition() {
		return
	}
	a := r.plan.Want.Assignment
	if a == nil {
		a = r.plan.Prior.Assignment
	}
	at, ok := r.locate(a)
	// Only a destroy cannot wait for the VM's next power-off.
	destroys, waits := r.plan.Want.Empty(), a != nil && a.Power.NextOff
	if !ok || at.vm.State == gpu.VMOff || (waits && !destroys) {
		return
	}
	why := r.needsOff(at)
	if len(why) == 0 {
		return
	}
	f := Finding{
		Path:   "power",
		Host:   at.key,
		VM:     at.vm.Name,
		Title:  "The VM must be off",
		Wanted: fmt.Sprintf("%s changes what Hyper-V changes only while the VM is off: %s.", r.label(), join(why)),
		Found:  fmt.Sprintf("%s on %s is %s.", vmText(at.vm), hostText(at.key), stateText(at.vm.State)),
	}
	switch at.vm.State {
	case gpu.VMRunning, gpu.VMStarting, gpu.VMStopping:
		if a.Power.AllowShutdown && !waits {
			return
		}
		f.Found = fmt.Sprintf("%s on %s is %s, and its assignment does not allow to shut it down.", vmText(at.vm), hostText(at.key), stateText(at.vm.State))
		if waits {
			f.Found = fmt.Sprintf("%s on %s is %s, and its assignment waits for its next power-off.", vmText(at.vm), hostText(at.key), stateText(at.vm.State))
			f.Fix = "Shut the VM down first, or apply `power = { allow_shutdown = true, when = \"now\" }` before the destroy."
			break
		}
		f.Fix = "Write `power = { allow_shutdown = true }` to shut it down and start it again, or `power = { when = \"next_off\" }` to wait for its next power-off."
		if destroys {
			f.Fix += " A destroy knows only what was applied: apply this attribute first, or set it in the provider's `power` block."
		}
	case gpu.VMSaved, gpu.VMPaused:
		f.Fix = "Start or resume the VM and shut it down, or delete its saved state. A saved or paused VM keeps the devices that it had."
	default:
		f.Fix = "Look at the VM on its host and bring it into a regular state first."
	}
	r.report(f, key("off", at.vm.ID))
}

func stateText(s gpu.VMState) string {
	switch s {
	case gpu.VMRunning:
		return "running"
	case gpu.VMOther, "":
		return "in a transitional or critical state"
	}
	return string(s)
}

// Stops tells whether an assignment's plan stops a VM that runs now: the host it is
// on, its name, and what needs it off. Nothing is said of a VM that is not at hand.
func Stops(w World, p Plan) (host, vm string, why []string) {
	r, done := begin(w, p)
	defer done()
	a := p.Want.Assignment
	if a == nil {
		a = p.Prior.Assignment
	}
	at, why := r.stops(a)
	if len(why) == 0 {
		return "", "", nil
	}
	return at.key, at.vm.Name, why
}

// stops finds the VM of an assignment, and why the plan stops it; nothing if it does not.
func (r *run) stops(a *gpu.Assignment) (at located, why []string) {
	at, ok := r.locate(a)
	if !ok || !at.vm.Runs() || a.Power.NextOff || r.plan.Unchanged {
		return at, nil
	}
	return at, r.needsOff(at)
}

// needsOff lists what the plan changes on the VM that needs it off. It compares with
// what the VM has, so that a claim that is only taken over stops nothing.
func (r *run) needsOff(at located) []string {
	if r.plan.Want.Empty() {
		return r.removalNeedsOff(at)
	}
	a := r.plan.Want.Assignment
	var why []string
	hasPartition, hasDevice := len(at.vm.PartitionAdapters) > 0, len(at.vm.Devices) > 0
	switch {
	case a.Partition != nil && !hasPartition:
		why = append(why, "a partition is added")
	case a.Partition != nil:
		adapter := at.vm.AdapterFor(a.Partition)
		switch {
		case adapter == nil || !gpu.SameID(adapter.PinnedGPU, a.Partition.PinnedGPU):
			why = append(why, "the partition comes from another GPU")
		case quotasChange(adapter.Quotas, a.Partition.Quotas, r.priorQuotas()):
			why = append(why, "quotas change")
		}
	case a.Pool != nil && drawn(at.vm, a.Pool.Name) != poolCount(a.Pool):
		why = append(why, "GPUs of pool "+quote(a.Pool.Name)+" are added or removed")
	case a.Device != nil && !holdsExactly(at.vm, a.Device.GPUIDs):
		why = append(why, "GPUs are added or removed")
	}
	if a.Partition != nil && hasDevice && r.had(wholeKind) {
		why = append(why, "its whole GPUs are removed")
	}
	if a.Partition == nil && hasPartition && r.had(partitionKind) {
		why = append(why, "its partition is removed")
	}
	if r.settingsChange(at).NeedOff() {
		why = append(why, "memory-mapped IO space or cache types change")
	}
	return why
}

// settingsChange are the settings that the plan writes: those that it wants, and what
// they were before for those that it no longer sets.
func (r *run) settingsChange(at located) gpu.VMSettings {
	want := r.plan.Want.Assignment.Settings
	if c, ok := r.claimOnVM(at.vm.ID); ok && r.ours(c) {
		want = c.SettingsBefore.Overlay(want)
	}
	return at.vm.Settings.Differs(want)
}

// removalNeedsOff is needsOff for a destroy, which touches nothing when another
// resource has taken the VM over, or when a failed change left the object half done.
func (r *run) removalNeedsOff(at located) []string {
	if len(r.othersForVM(r.plan.Prior.Assignment)) > 0 {
		return nil
	}
	claim, claimed := r.claimOnVM(at.vm.ID)
	if claimed && (claim.Incomplete || r.plan.Token != "" && claim.Token != r.plan.Token) {
		return nil
	}
	var why []string
	if r.had(partitionKind) && len(at.vm.PartitionAdapters) > 0 {
		why = append(why, "its partition is removed")
	}
	if r.had(wholeKind) && len(at.vm.Devices) > 0 {
		why = append(why, "its whole GPUs are removed")
	}
	if claimed && at.vm.Settings.Differs(claim.SettingsBefore).NeedOff() {
		why = append(why, "memory-mapped IO space or cache types are put back")
	}
	return why
}

func partitionKind(a *gpu.Assignment) bool { return a.Partition != nil }
func wholeKind(a *gpu.Assignment) bool     { return a.Pool != nil || a.Device != nil }

// had tells whether the resource gave the VM something of that kind before.
func (r *run) had(kind func(*gpu.Assignment) bool) bool {
	return r.plan.Prior.Assignment != nil && kind(r.plan.Prior.Assignment)
}

func (r *run) priorQuotas() gpu.Quotas {
	if p := r.plan.Prior.Assignment; p != nil && p.Partition != nil {
		return p.Partition.Quotas
	}
	return gpu.Quotas{}
}

// quotasChange tells whether an adapter must be written: a wanted value differs, or
// a value that was set is left to the host again. Hosts fill in the other values.
func quotasChange(have, want, prior gpu.Quotas) bool {
	change := func(have, want, prior *uint64) bool {
		if want == nil {
			return prior != nil && have != nil
		}
		return have == nil || *have != *want
	}
	changes := func(have, want, prior gpu.Quota) bool {
		return change(have.Min, want.Min, prior.Min) || change(have.Max, want.Max, prior.Max) || change(have.Optimal, want.Optimal, prior.Optimal)
	}
	return changes(have.VRAM, want.VRAM, prior.VRAM) || changes(have.Encode, want.Encode, prior.Encode) ||
		changes(have.Decode, want.Decode, prior.Decode) || changes(have.Compute, want.Compute, prior.Compute)
}

// holdsExactly tells whether the VM has these GPUs and no others.
func holdsExactly(vm *gpu.VM, ids []string) bool {
	var have []string
	for _, d := range vm.Devices {
		have = append(have, d.GPU)
	}
	return len(have) == len(ids) && !slices.ContainsFunc(ids, func(id string) bool { return !contains(have, id) })
}

func checkPartitionInUse(r *run) {
	if !r.transition() {
		return
	}
	for _, host := range r.configHosts() {
		h, ok := r.host(host)
		if !ok {
			continue
		}
		forecast := forecastHost(h, host, r.plan, r.mayStop)
		r.reportHeld(host, forecast)
		r.reportHeldRestore(host, h, forecast)
	}
}

// configHosts are the hosts that the config covers or covered.
func (r *run) configHosts() []string {
	var out []string
	for _, c := range []*gpu.PartitionConfig{r.plan.Want.Config, r.plan.Prior.Config} {
		if c != nil {
			out = append(out, sortedKeys(c.GPUs)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mayStop tells whether a VM's own assignment, as its claim has it, allows that a
// resource of this state stops it; if not, why.
func (r *run) mayStop(vmID string) (bool, string) {
	c, _ := r.claimOnVM(vmID)
	return stoppable(c, r.owner)
}

// stoppable goes by the owner's name alone: the host, which asks again at apply, knows
// no other plans of this run.
func stoppable(c *gpu.Claim, owner string) (bool, string) {
	switch {
	case c == nil:
		return false, "no gpu_vm_assignment manages it"
	case owner == "":
		return false, "this state has no owner name, so its assignment cannot be recognised"
	case c.Owner != owner:
		return false, "its assignment belongs to " + whose(c)
	case c.Want.Assignment == nil || !c.Want.Assignment.Power.AllowShutdown:
		return false, "its assignment does not have `power = { allow_shutdown = true }`"
	case c.Want.Assignment.Power.NextOff:
		return false, "its assignment waits for its next power-off (`power.when`)"
	}
	return true, ""
}

func (r *run) reportHeld(host string, f Forecast) {
	c := r.plan.Want.Config
	if c == nil || len(f.StopsVMs) == 0 {
		return
	}
	tooMuch := f.Disruption.Exceeds(c.MaxDisruption)
	var kept, names []string
	for _, vm := range f.StopsVMs {
		names = append(names, quote(vm.Name))
		if !vm.Allowed {
			kept = append(kept, quote(vm.Name)+" ("+vm.Reason+")")
		}
	}
	if !tooMuch && len(kept) == 0 {
		return
	}
	v := Finding{
		Path:   "gpu_p.partition_count",
		Title:  "Running VMs hold the partitions",
		Host:   host,
		Found:  fmt.Sprintf("Running VMs on %s hold partitions of GPUs whose count changes: %s.", hostText(host), joinAll(names)),
		Wanted: fmt.Sprintf("%s changes %s, which needs these VMs off.", r.label(), f.changes()),
	}
	if f.NotDrained != "" {
		v.Found += fmt.Sprintf(" The node is not drained: %s.", f.NotDrained)
	}
	if tooMuch {
		v.Path = "max_disruption"
		v.Wanted += fmt.Sprintf(" Its `max_disruption` allows %s only.", quote(string(orNone(c.MaxDisruption))))
		v.Fix = "Write `max_disruption = \"vm_restart\"`, or shut the VMs down first."
	}
	if len(kept) > 0 {
		v.Found += fmt.Sprintf(" These may not be stopped: %s.", joinAll(kept))
		if v.Fix != "" {
			v.Fix += " "
		}
		v.Fix += "Give each VM a gpu_vm_assignment of this state with `power = { allow_shutdown = true }`, its own or the provider's, and apply that first, while the partition config stays as it is, or shut these VMs down yourself."
	}
	r.report(v, key("held", host))
}

func orNone(d gpu.Disruption) gpu.Disruption {
	if d == "" {
		return gpu.DisruptNone
	}
	return d
}

// reportHeldRestore warns of GPUs that leave the config and cannot be put back to
// their former layout, since that never stops a VM.
func (r *run) reportHeldRestore(host string, h *gpu.Host, f Forecast) {
	for _, g := range f.GPUs {
		if !g.Restore || len(g.Holders) == 0 || g.MIG != nil { // of MIG mig-mode says it
			continue
		}
		m, _ := h.GPU(g.GPU)
		r.report(Finding{
			Level:  Warning,
			Path:   "on_destroy",
			Title:  "The former layout cannot be put back",
			Host:   host,
			GPU:    g.GPU,
			Found:  fmt.Sprintf("Running VMs hold partitions of %s: %s.", gpuOn(host, m), joinAll(quoteAll(g.Holders))),
			Wanted: fmt.Sprintf("%s leaves the GPU, which had %s before. Giving a GPU up never stops a VM.", r.label(), plural(g.To, "partition")),
			Fix:    "Unassign these VMs or shut them down first, or set `on_destroy = \"keep\"`.",
		}, key("restore", host, g.GPU))
	}
}

func checkNodeInService(r *run) {
	if !r.transition() {
		return
	}
	var hosts, lines, keys []string
	for _, host := range r.touched() {
		h, ok := r.host(host)
		if !ok {
			continue
		}
		switch s := h.NodeState(); s {
		case gpu.NodePaused, gpu.NodeDraining, gpu.NodeJoining, gpu.NodeDown:
			hosts = append(hosts, host)
			lines = append(lines, fmt.Sprintf("%s is %s", hostText(host), s))
			keys = append(keys, key("node", host))
		}
	}
	if len(hosts) == 0 {
		return
	}
	path := "hosts"
	if r.plan.Want.Assignment != nil || r.plan.Prior.Assignment != nil {
		path = "vm"
	}
	r.report(Finding{
		Path:   path,
		Title:  "A cluster node is not in service",
		Host:   hosts[0],
		Found:  fmt.Sprintf("%s in its cluster.", capital(join(lines))),
		Wanted: fmt.Sprintf("%s changes something there, and a node in maintenance is left alone: its VMs are on the move and its GPUs may be under service.", r.label()),
		Fix:    "Wait until the node is back (`Resume-ClusterNode`), then apply again.",
	}, keys...)
}

// touched lists the hosts on which the plan changes something.
func (r *run) touched() []string {
	w, prior := r.plan.Want, r.plan.Prior
	switch {
	case w.Config != nil || prior.Config != nil:
		return slices.DeleteFunc(r.configHosts(), func(host string) bool { return !r.touchesConfigHost(host) })
	case w.Pool != nil || prior.Pool != nil:
		return r.touchedPoolHosts(w.Pool, prior.Pool)
	}
	a := w.Assignment
	if a == nil {
		a = prior.Assignment
	}
	at, ok := r.locate(a)
	if !ok {
		return nil
	}
	if len(r.needsOff(at)) > 0 || (w.Assignment != nil && !r.settingsChange(at).Empty()) {
		return []string{at.key}
	}
	return nil
}

// touchesConfigHost tells whether a GPU's count changes on the host. A host that
// joins with the right counts only gets a claim.
func (r *run) touchesConfigHost(host string) bool {
	h, ok := r.host(host)
	return ok && len(forecastHost(h, host, r.plan, r.mayStop).GPUs) > 0
}

// touchedPoolHosts are the hosts whose members are not what the pool has there.
func (r *run) touchedPoolHosts(want, prior *gpu.PoolConfig) []string {
	var out []string
	if want != nil {
		for host, h := range r.hostsAtHand(want.Members) {
			pool, ok := h.Pool(want.Name)
			if !ok || len(pool.GPUs) != len(want.Members[host]) ||
				slices.ContainsFunc(want.Members[host], func(id string) bool { return !pool.Has(id) }) {
				out = append(out, host)
			}
		}
	}
	if prior != nil && leavesMounted(want, prior) {
		for host, h := range r.hostsAtHand(prior.Members) {
			if want != nil {
				if _, stays := want.Members[host]; stays {
					continue
				}
			}
			if _, ok := h.Pool(prior.Name); ok {
				out = append(out, host)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// leavesMounted tells whether GPUs that leave the pool go back to their host; a pool
// that is kept is not touched.
func leavesMounted(want, prior *gpu.PoolConfig) bool {
	if want != nil {
		return want.MountBack
	}
	return prior.MountBack
}
