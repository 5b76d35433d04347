package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
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
	if !ok {
		return
	}
	e := r.effectOnVM(at)
	if e.refused == nil || e.refused.Rule != change.VMMustBeOff || len(e.Stops) == 0 {
		return
	}
	destroys, waits, why := r.plan.Want.Empty(), a.Power.NextOff, e.Stops[0].Why
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
func Stops(w World, p change.Change) (host, vm string, why []string) {
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

func checkPartitionInUse(r *run) {
	if !r.transition() {
		return
	}
	for _, host := range r.configHosts() {
		h, ok := r.host(host)
		if !ok {
			continue
		}
		r.reportHeld(host, r.forecast(host, h, r.plan))
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

// stoppable tells whether a VM's own assignment, as its claim has it, allows that a resource
// of a state stops it; if not, why. It goes by the owner's name alone: the host, which asks
// again at apply, knows no other plans of this run.
func stoppable(vm *gpu.VM, c *gpu.Claim, owner string) (bool, string) {
	switch _, hold := change.MayStop(vm, c, owner); hold {
	case change.Unmanaged:
		return false, "no gpu_vm_assignment manages it"
	case change.OtherState:
		if owner == "" {
			return false, "this state has no owner name, so its assignment cannot be recognised"
		}
		return false, "its assignment belongs to " + whose(c)
	case change.NotAllowed:
		return false, "its assignment does not have `power = { allow_shutdown = true }`"
	case change.WaitsForIt:
		return false, "its assignment waits for its next power-off (`power.when`)"
	case change.NotRunning:
		return false, "it is " + stateText(vm.State) + ", and has to run or to be off"
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
	if r.effectOnVM(at).changes() {
		return []string{at.key}
	}
	return nil
}

// touchesConfigHost tells whether a GPU's count changes on the host. A host that
// joins with the right counts only gets a claim.
func (r *run) touchesConfigHost(host string) bool {
	h, ok := r.host(host)
	return ok && len(r.forecast(host, h, r.plan).GPUs) > 0
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
