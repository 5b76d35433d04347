package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func checkVMMustBeOff(r *run) {
	if !r.Transition() {
		return
	}
	a := r.Plan.Want.Assignment
	if a == nil {
		a = r.Plan.Prior.Assignment
	}
	at, ok := r.Locate(a)
	if !ok {
		return
	}
	e := r.Forecast(at.Key, at.Host)
	if len(e.Refused.Of(change.VMMustBeOff)) == 0 || len(e.Stops) == 0 {
		return
	}
	destroys, waits, why := r.Plan.Want.Empty(), a.Power.NextOff, e.Stops[0].Why
	f := Finding{
		Path:   "power",
		Title:  "The VM must be off",
		Wanted: fmt.Sprintf("Hyper-V does this only while it is off: %s.", join(why)),
		Found:  fmt.Sprintf("%s on %s is %s.", vmText(at.VM), hostText(at.Key), change.StateText(at.VM.State)),
	}
	if at.Host.Platform == gpu.Linux {
		f.Wanted = fmt.Sprintf("This is done only while it is off: %s.", join(why))
	}
	switch at.VM.State {
	case gpu.VMRunning, gpu.VMStarting, gpu.VMStopping:
		f.Found = fmt.Sprintf("%s on %s is %s, and its assignment does not allow to shut it down.", vmText(at.VM),
			hostText(at.Key), change.StateText(at.VM.State))
		if waits {
			f.Found = fmt.Sprintf("%s on %s is %s, and its assignment waits for its next power-off.", vmText(at.VM),
				hostText(at.Key), change.StateText(at.VM.State))
			f.Fix = "Shut the VM down first, or apply `power = { allow_shutdown = true, when = \"now\" }` before the destroy."
			break
		}
		f.Fix = "Write `power = { allow_shutdown = true }` to shut it down and start it again, or `power = { when = \"next_off\" }` to wait " +
			"for its next power-off."
		if destroys {
			f.Fix = "Write `power = { allow_shutdown = true }` to shut it down and start it again, or shut the VM down yourself. A destroy knows " +
				"only what was applied: apply this attribute first, or set it in the provider's `power` block."
		}
	case gpu.VMSaved, gpu.VMPaused:
		f.Fix = "Start or resume the VM and shut it down, or delete its saved state. A saved or paused VM keeps the devices that it had."
	default:
		f.Fix = "Look at the VM on its host and bring it into a regular state first."
	}
	r.reportVM(at, f, key("off", at.VM.ID))
}

func checkPartitionInUse(r *run) {
	if !r.Transition() {
		return
	}
	for host, f := range r.Forecasts() {
		reportHeld(r, host, f)
	}
}

func reportHeld(r *run, host string, f change.Forecast) {
	c := r.Plan.Want.Config
	if c == nil {
		return
	}
	reportListed(r, host, f)
	if len(f.Stops) == 0 {
		return
	}
	tooMuch := f.Class.Exceeds(c.MaxDisruption)
	var kept, names, changes []string
	for _, vm := range f.Stops {
		names = append(names, quote(vm.Name))
		if why := f.KeptOn(vm.VM); why != nil {
			kept = append(kept, quote(vm.Name)+" ("+why.Found()+")")
		}
	}
	if !tooMuch && len(kept) == 0 {
		return
	}
	for _, g := range f.GPUs {
		if p := g.Partitions; p != nil && gpu.HasID(c.GPUs[host], g.GPU) {
			changes = append(changes, fmt.Sprintf("GPU %s from %d to %s", g.GPU, p.From, plural(p.To, "partition")))
		}
	}
	v := Finding{
		Path:   "gpu_p.partition_count",
		Title:  "Running VMs hold the partitions",
		Host:   host,
		Found:  fmt.Sprintf("Running VMs on %s hold partitions of GPUs whose count changes: %s.", hostText(host), joinAll(names)),
		Wanted: fmt.Sprintf("%s changes %s, which needs these VMs off.", r.label(), join(changes)),
	}
	if why := NotDrained(r.Plan, f); why != "" {
		v.Found += fmt.Sprintf(" The node is not drained: %s.", why)
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
		v.Fix += "Give each VM a gpu_vm_assignment of this state with `power = { allow_shutdown = true }`, its own or the provider's, and " +
			"apply that first, while the partition config stays as it is, or shut these VMs down yourself."
	}
	r.report(v, key("held", host))
}

// reportListed finds the partitions that a host lists for VMs that cannot let go of them, as they do not run.
func reportListed(r *run, host string, f change.Forecast) {
	var lines, fixes []string
	first := ""
	for _, why := range f.Refused.Of(change.PartitionInUse) {
		stops := func(s change.Stop) bool { return gpu.SameID(s.VM, why.VM) }
		if why.VM == "" || why.GPU == "" || slices.ContainsFunc(f.Stops, stops) {
			continue
		}
		first = cmp.Or(first, why.GPU)
		lines, fixes = append(lines, "GPU "+why.GPU+": "+why.Found()), append(fixes, sentence(why.Fix))
	}
	if len(lines) == 0 {
		return
	}
	r.report(Finding{
		Path: "gpu_p.partition_count", Title: "Partitions are listed for VMs that do not run", Host: host, GPU: first,
		Found:  fmt.Sprintf("On %s: %s.", hostText(host), strings.Join(lines, "; ")),
		Wanted: fmt.Sprintf("%s changes the partition count, which needs all partitions of a GPU free.", r.label()),
		Fix:    strings.Join(slices.Compact(fixes), " "),
	}, key("listed", host))
}

// NotDrained says why VMs are stopped although a drain was asked for, "" when it was not, or
// none is.
func NotDrained(p change.Change, f change.Forecast) string {
	if c := p.Want.Config; c == nil || !c.Drain || len(f.Stops) == 0 {
		return ""
	}
	return cmp.Or(f.Undrained, change.WhyNotDrained(f.On))
}

func orNone(d gpu.Disruption) gpu.Disruption {
	if d == "" {
		return gpu.DisruptNone
	}
	return d
}

// reportNotRestored finds GPUs that leave the config and cannot have their former layout
// back, by a refusal of the rule at hand. Releasing a GPU stops nothing that runs.
func reportNotRestored(r *run, host string, f change.Forecast) {
	for _, why := range f.Refused.Of(r.rule.ID) {
		if why.Restores == "" {
			continue
		}
		g, _ := r.At(host).GPU(why.GPU)
		v := Finding{
			Path:  "on_destroy",
			Title: "The previous layout cannot be restored",
			Host:  host,
			GPU:   why.GPU,
			Found: fmt.Sprintf("%s is in use: %s.", capital(gpuOn(host, g)), joinAll(why.By)),
			Wanted: fmt.Sprintf("%s leaves the GPU, which had %s before. Releasing a GPU never stops a VM or kills a process.",
				r.label(), why.Restores),
			Fix: "Stop what uses it before the apply, or set `on_destroy = \"keep\"`.",
		}
		switch {
		case why.Needs != "":
			v.Found = fmt.Sprintf("%s switches MIG mode only with a reset, and `max_disruption` allows %s only.",
				capital(gpuOn(host, g)), quote(string(orNone(r.allowedDisruption()))))
			v.Fix = fmt.Sprintf("Apply `max_disruption = %q` first, or set `on_destroy = \"keep\"`.", why.Needs)
		case len(why.By) == 0:
			v.Found = fmt.Sprintf("%s cannot have it: %s.", capital(gpuOn(host, g)), why.Found())
			v.Fix = "Set `on_destroy = \"keep\"`."
		}
		r.report(v, key("restore", host, why.GPU))
	}
}

func checkNodeInService(r *run) {
	if !r.Transition() || r.Plan.Act.OnNode() {
		return
	}
	var hosts, lines, keys []string
	for _, host := range r.Touched() {
		h, ok := r.Host(host)
		if !ok {
			continue
		}
		switch s := h.NodeState(); s {
		case gpu.NodePaused, gpu.NodeDraining, gpu.NodeJoining, gpu.NodeDown:
			hosts = append(hosts, host)
			lines = append(lines, fmt.Sprintf("%s is %s", hostText(host), s))
			keys = append(keys, key("node", host))
		case gpu.NodeUp:
		}
	}
	if len(hosts) == 0 {
		return
	}
	path := "hosts"
	if r.Plan.Want.Assignment != nil || r.Plan.Prior.Assignment != nil {
		path = "vm"
	}
	r.report(Finding{
		Path:  path,
		Title: "A cluster node is not in service",
		Host:  hosts[0],
		Found: fmt.Sprintf("%s in its cluster.", capital(join(lines))),
		Wanted: fmt.Sprintf("%s changes something there, and a node in maintenance is left alone: its VMs are on the move and its GPUs may be "+
			"under service.", r.label()),
		Fix: "Wait until the node is back (`Resume-ClusterNode`), then apply again.",
	}, keys...)
}

// leavesMounted tells whether GPUs that leave the pool go back to their host; a pool
// that is kept is not touched.
func leavesMounted(want, prior *gpu.PoolConfig) bool {
	if want != nil {
		return want.MountBack
	}
	return prior.MountBack
}
