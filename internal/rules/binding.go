package rules

import (
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// checkPartitionOfConfig asks whether the partition of an assignment can come from the
// config that it names, wherever the VM may run. The config's own plan asks it for the
// assignments that were planned before.
func checkPartitionOfConfig(r *run) {
	if a := r.plan.Want.Assignment; a != nil {
		r.checkBound(a, r.label())
		return
	}
	c := r.plan.Want.Config
	if c == nil {
		return
	}
	for e := range r.others(usersOf(c.ID)) {
		if a := e.plan.Want.Assignment; a != nil {
			r.checkBound(a, labelOf(e.plan))
		}
	}
	if prior := r.plan.Prior.Config; prior != nil && r.transition() {
		r.warnOfLeft(c, prior)
	}
}

func (r *run) checkBound(a *gpu.Assignment, label string) {
	at, ok := r.locate(a)
	if !ok || a.Partition == nil || a.Partition.Config == "" {
		return
	}
	id := a.Partition.Config
	kind, known := r.configKind(id)
	if known && kind != gpu.KindGPUP || !known && !r.applying {
		return // known-config says so
	}
	var bare, keys []string
	for _, host := range r.mayRunOn(at) {
		h := r.fleet.hosts[host]
		// Where a part of the host cannot be read, rule readable speaks of it.
		if len(h.Unknown) == 0 && h.Platform != gpu.Linux && len(r.configSlots(host, id)) == 0 {
			bare = append(bare, host)
			keys = append(keys, key("bare", host, at.vm.ID, id))
		}
	}
	if len(bare) > 0 {
		f := Finding{
			Path:   "partition.config",
			Title:  "The partition config has no GPU where the VM may run",
			Host:   at.key,
			VM:     at.vm.Name,
			Found:  fmt.Sprintf("%s may run on %s, where partition config %s has no GPU.", vmText(at.vm), join(quoteAll(bare)), quote(id)),
			Wanted: fmt.Sprintf("%s takes a partition of this config.", label),
			Fix:    "Add these hosts to the config, name a config that has them, or leave `config` out to take any partition.",
		}
		if at.vm.Clustered {
			f.Fix += " You can also restrict the VM's possible owners."
		}
		r.report(f, keys...)
		return
	}
	if pin := a.Partition.PinnedGPU; pin != "" {
		slots := r.configSlots(at.key, id)
		if len(slots) > 0 && !slices.ContainsFunc(slots, func(s slot) bool { return gpu.SameID(s.gpu.ID, pin) }) {
			r.reportVM(at, Finding{
				Path:   "partition.gpu_id",
				Title:  "The GPU is not in the partition config",
				GPU:    pin,
				Found:  fmt.Sprintf("Partition config %s does not have GPU %s on %s.", quote(id), pin, hostText(at.key)),
				Wanted: fmt.Sprintf("%s takes a partition of this config, and of this GPU.", label),
				Fix:    "Name a GPU of the config, or leave `gpu_id` or `config` out.",
			}, key("pinned beside", at.key, at.vm.ID, pin))
		}
		return
	}
	if at.vm.Clustered {
		r.checkSizes(at, id, label)
	}
}

// checkSizes asks whether all GPUs that a clustered VM may get a partition of give one of the
// size that its config gives: a pinned VM would not start on another node.
func (r *run) checkSizes(at located, id, label string) {
	slots := r.configSlots(at.key, id)
	if len(slots) == 0 {
		return
	}
	own := slots[0]
	var lines, keys []string
	first := Finding{}
	for _, host := range r.chosenOn(at) {
		for _, s := range r.slots(host, r.fleet.hosts[host]) {
			if s.likeness(own) {
				continue
			}
			if len(lines) == 0 {
				first.Host, first.GPU = host, s.gpu.ID
			}
			size, exact := s.size()
			lines = append(lines, fmt.Sprintf("%s with %s of %s", gpuOn(host, s.gpu), plural(s.count, "partition"), sizeText(size, exact)))
			keys = append(keys, key("size", at.vm.ID, host, s.gpu.ID))
		}
	}
	if len(lines) == 0 {
		return
	}
	size, exact := own.size()
	first.Path, first.VM = "partition.config", at.vm.Name
	first.Title = "The clustered VM may get a partition of another size"
	first.Found = fmt.Sprintf("Partition config %s gives partitions of %s. %s could also get one from %s.", quote(id), sizeText(size, exact), vmText(at.vm), join(lines))
	first.Wanted = fmt.Sprintf("%s takes a partition of this config, and Hyper-V chooses among all GPUs of the node where the VM starts. A clustered VM cannot be pinned to a GPU.", label)
	first.Fix = "Give all GPUs of these nodes the same layout, with `cluster` instead of `hosts` in the config, or leave `config` out to take any partition."
	r.report(first, keys...)
}

// warnOfLeft says that a config leaves hosts on which VMs were given partitions of it.
func (r *run) warnOfLeft(c, prior *gpu.PartitionConfig) {
	for host, h := range r.hostsAtHand(prior.GPUs) {
		if len(prior.GPUs[host]) == 0 || len(c.GPUs[host]) > 0 {
			continue
		}
		var vms []string
		for i := range h.VMs {
			if claim, ok := r.claimOnVM(host, h.VMs[i].ID); ok && !r.superseded(claim) && gpu.SameID(r.configOfClaim(host, &h.VMs[i]), c.ID) {
				vms = append(vms, quote(h.VMs[i].Name))
			}
		}
		if len(vms) == 0 {
			continue
		}
		r.report(Finding{
			Level:  Warning,
			Path:   "hosts",
			Title:  "The partition config leaves a host under its VMs",
			Host:   host,
			Found:  fmt.Sprintf("These VMs on %s were assigned partitions of %s: %s.", hostText(host), r.label(), join(vms)),
			Wanted: "The config no longer has a GPU there. The VMs keep their partitions, but this config no longer sets their size.",
			Fix:    "Move the VMs to hosts of the config, or change `partition.config` of their assignments in the same run.",
		}, key("left", host))
	}
}

// configOfClaim is the config of which a VM was assigned a partition, "" for none.
func (r *run) configOfClaim(host string, vm *gpu.VM) string {
	if c, ok := r.claimOnVM(host, vm.ID); ok && c.Want.Assignment != nil && c.Want.Assignment.Partition != nil {
		return c.Want.Assignment.Partition.Config
	}
	return ""
}

// chosenOn are the hosts whose GPUs count for the size of a VM's partition. On the host that
// is changed it is those that the VM is started beside: elsewhere the run may not be done yet.
func (r *run) chosenOn(at located) []string {
	if r.applying {
		return []string{at.key}
	}
	return r.mayRunOn(at)
}

// mayRunOn are the hosts at hand on which a VM may run: its own, and of a clustered VM its
// possible owners.
func (r *run) mayRunOn(at located) []string {
	out := []string{at.key}
	if !at.vm.Clustered {
		return out
	}
	for _, node := range r.fleet.cluster(at.host) {
		if len(at.vm.PossibleOwners) == 0 || contains(at.vm.PossibleOwners, r.fleet.hosts[node].Name) {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// configSlots are the slots of a host that a config covers once the plans of the run are
// made real.
func (r *run) configSlots(host, id string) []slot {
	return slices.DeleteFunc(r.slots(host, r.fleet.hosts[host]), func(s slot) bool {
		if c := r.plan.Want.Config; c != nil && gpu.SameID(c.ID, id) { // also as it was before
			return !contains(c.GPUs[host], s.gpu.ID)
		}
		return s.config == nil || !gpu.SameID(s.config.ID, id)
	})
}

// choices are the slots that Hyper-V may take the VM's partition from: of the pinned GPU, or
// on a standalone host with GPUs of several sizes those of the config, which the VM is pinned
// to; else all of the host.
func (r *run) choices(at located, p *gpu.PartitionWant, host string) []slot {
	all := r.slots(host, r.fleet.hosts[host])
	if p.PinnedGPU != "" {
		return slices.DeleteFunc(all, func(s slot) bool { return !gpu.SameID(s.gpu.ID, p.PinnedGPU) })
	}
	if p.Config == "" || at.vm.Clustered {
		return all
	}
	own := r.configSlots(host, p.Config)
	if len(own) == 0 || !slices.ContainsFunc(all, func(s slot) bool { return !s.likeness(own[0]) }) {
		return all
	}
	return own
}

// likeness tells whether two slots give partitions of one size. Estimates are taken to be
// as good as the driver's figures.
func (s slot) likeness(o slot) bool {
	a, exactA := s.size()
	b, exactB := o.size()
	if a == 0 || b == 0 {
		return s.count == o.count
	}
	if exactA && exactB {
		return a == b
	}
	return within(a, b, estimateTolerance)
}
