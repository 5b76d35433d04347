package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// checkPartitionOfConfig asks whether the partition of an assignment can come from the
// config that it names, wherever the VM may run. The config's own plan asks it for the
// assignments that were planned before.
func checkPartitionOfConfig(r *run) {
	if a := r.Plan.Want.Assignment; a != nil {
		checkBound(r, a, r.label())
		return
	}
	c := r.Plan.Want.Config
	if c == nil {
		return
	}
	for e := range r.Others(whatif.UsersOf(c.ID)) {
		if a := e.Plan.Want.Assignment; a != nil {
			checkBound(r, a, whatif.Label(e.Plan))
		}
	}
	if prior := r.Plan.Prior.Config; prior != nil && r.Transition() {
		warnOfLeft(r, c, prior)
	}
}

func checkBound(r *run, a *gpu.Assignment, label string) {
	at, ok := r.Locate(a)
	if !ok || a.Partition == nil || len(a.Partition.ConfigIDs()) == 0 {
		return
	}
	for _, id := range a.Partition.ConfigIDs() {
		kind, known := r.ConfigKind(id)
		if known && kind != gpu.KindGPUP || !known && !r.Mode.OnHost || at.Host.Platform == gpu.Linux {
			return // known-config says so
		}
	}
	switch {
	case reportBare(r, at, a.Partition, label):
	case a.Partition.PinnedGPU != "":
		checkPinOfConfig(r, at, a.Partition, label)
	case at.VM.Clustered:
		checkSizes(r, at, a.Partition, label)
	}
}

// configsText names the configs of a partition: `partition config "vdi"`, `partition configs "a" and "b"`.
func configsText(p *gpu.PartitionWant) string {
	ids := p.ConfigIDs()
	return verb(len(ids), "partition config ", "partition configs ") + joinAll(quoteAll(ids))
}

// configPath is the attribute that names them.
func configPath(p *gpu.PartitionWant) string {
	if p.Config == "" {
		return "partition.configs"
	}
	return "partition.config"
}

// reportBare reports the hosts on which a VM may run and where its config has no GPU, if there are any.
func reportBare(r *run, at whatif.Located, p *gpu.PartitionWant, label string) bool {
	var bare, keys []string
	for _, host := range r.MayRunOn(at) {
		h := r.At(host)
		// Where a part of the host cannot be read, rule readable speaks of it.
		if len(h.Unknown) == 0 && h.Platform != gpu.Linux && len(r.Future().ConfigSlots(host, p.ConfigIDs()...)) == 0 {
			bare = append(bare, host)
			keys = append(keys, key("bare", host, at.VM.ID, strings.Join(p.ConfigIDs(), " ")))
		}
	}
	if len(bare) == 0 {
		return false
	}
	f := Finding{
		Path:   configPath(p),
		Title:  "The partition config has no GPU where the VM may run",
		Host:   at.Key,
		VM:     at.VM.Name,
		Found:  fmt.Sprintf("%s may run on %s, where %s has no GPU.", vmText(at.VM), join(quoteAll(bare)), configsText(p)),
		Wanted: fmt.Sprintf("%s takes a partition of this config.", label),
		Fix: "Add these hosts to the config, name the configs that have them, as in `partition = { configs = [a, b] }`, or leave `config` " +
			"out to take any partition.",
	}
	if len(p.Configs) > 0 {
		f.Title = "None of the partition configs has a GPU where the VM may run"
		f.Found = fmt.Sprintf("%s may run on %s, where none of %s has a GPU.", vmText(at.VM), join(quoteAll(bare)), configsText(p))
		f.Wanted = fmt.Sprintf("%s takes a partition of one of them.", label)
		f.Fix = "Add these hosts to one of the configs, name another config that has them as well, or leave `configs` out to take any partition."
	}
	if at.VM.Clustered {
		f.Fix += " You can also restrict the VM's possible owners."
	}
	r.report(f, keys...)
	return true
}

// checkPinOfConfig asks whether the GPU that an assignment names is one of its config.
func checkPinOfConfig(r *run, at whatif.Located, p *gpu.PartitionWant, label string) {
	slots := r.Future().ConfigSlots(at.Key, p.ConfigIDs()...)
	if len(slots) == 0 || slices.ContainsFunc(slots, func(s whatif.Slot) bool { return gpu.SameID(s.GPU.ID, p.PinnedGPU) }) {
		return
	}
	r.reportVM(at, Finding{
		Path:  "partition.gpu_id",
		Title: "The GPU is not in the partition config",
		GPU:   p.PinnedGPU,
		Found: capital(fmt.Sprintf("%s %s not have GPU %s on %s.", configsText(p), verb(len(p.ConfigIDs()), "does", "do"), p.PinnedGPU,
			hostText(at.Key))),
		Wanted: fmt.Sprintf("%s takes a partition of this config, and of this GPU.", label),
		Fix:    "Name a GPU of the config, or leave `gpu_id` or `config` out.",
	}, key("pinned beside", at.Key, at.VM.ID, p.PinnedGPU))
}

// checkSizes asks whether all GPUs that a clustered VM may get a partition of give one of a
// size that its configs give: a pinned VM would not start on another node.
func checkSizes(r *run, at whatif.Located, p *gpu.PartitionWant, label string) {
	hosts := r.chosenOn(at)
	own := ownSlots(r, at, p, hosts)
	if len(own) == 0 {
		return
	}
	var lines, keys []string
	others, uncovered := map[string]bool{}, false
	first := Finding{}
	for _, host := range hosts {
		for _, s := range r.Future().Slots(host, r.At(host)) {
			if s.LikeAny(own) {
				continue
			}
			if len(lines) == 0 {
				first.Host, first.GPU = host, s.GPU.ID
			}
			if s.Config != nil {
				others[s.Config.ID] = true
			} else {
				uncovered = true
			}
			size, exact := s.Size()
			lines = append(lines, fmt.Sprintf("%s with %s of %s", gpuOn(host, s.GPU), plural(s.Count, "partition"), sizeText(size, exact)))
			keys = append(keys, key("size", at.VM.ID, host, s.GPU.ID))
		}
	}
	if len(lines) == 0 {
		return
	}
	var sizes []string
	for _, s := range own {
		sizes = append(sizes, sizeText(s.Size()))
	}
	first.Path, first.VM = configPath(p), at.VM.Name
	first.Title = "The clustered VM may get a partition of another size"
	first.Found = capital(fmt.Sprintf("%s %s partitions of %s. %s could also get one from %s.", configsText(p),
		verb(len(p.ConfigIDs()), "gives", "give"), joinAll(slices.Compact(sizes)), vmText(at.VM), join(lines)))
	first.Wanted = fmt.Sprintf("%s takes a partition of this config, and Hyper-V chooses among all GPUs of the node where the VM starts. A "+
		"clustered VM cannot be pinned to a GPU.", label)
	first.Fix = alsoOf(p, whatif.SortedKeys(others), uncovered) + " Or give all GPUs of these nodes partitions of one size, or take any " +
		"partition: `partition = {}`."
	r.report(first, keys...)
}

// alsoOf is the advice to name the configs of the other GPUs as well.
func alsoOf(p *gpu.PartitionWant, others []string, uncovered bool) string {
	if uncovered {
		return "Cover the other GPUs by a gpu_partition_config of their own, and name all these configs in the assignment: " +
			"`partition = { configs = [gpu_partition_config.NAME.id, ...] }`."
	}
	ids := slices.Concat(p.ConfigIDs(), others)
	slices.Sort(ids)
	return fmt.Sprintf("Let the VM take a partition of any of the configs %s: `partition = { configs = [gpu_partition_config.NAME.id, "+
		"...] }` with the ids of all of them.", joinAll(quoteAll(ids)))
}

// ownSlots are, for each size that the configs give, a slot that gives it: of each config the first one on the VM's host, or else where
// the VM may run besides.
func ownSlots(r *run, at whatif.Located, p *gpu.PartitionWant, hosts []string) (own []whatif.Slot) {
	for _, id := range p.ConfigIDs() {
		for _, host := range slices.Concat([]string{at.Key}, hosts) {
			if slots := r.Future().ConfigSlots(host, id); len(slots) > 0 {
				own = append(own, slots[0])
				break
			}
		}
	}
	return own
}

// warnOfLeft says that a config leaves hosts on which VMs were given partitions of it.
func warnOfLeft(r *run, c, prior *gpu.PartitionConfig) {
	for host, h := range r.HostsAtHand(prior.GPUs) {
		if len(prior.GPUs[host]) == 0 || len(c.GPUs[host]) > 0 {
			continue
		}
		var vms []string
		for i := range h.VMs {
			if claim, ok := r.ClaimOnVM(host, h.VMs[i].ID); ok && !r.Superseded(claim) && gpu.HasID(r.ConfigsOfClaim(host, &h.VMs[i]), c.ID) {
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

// chosenOn are the hosts whose GPUs count for the size of a VM's partition. On the host that
// is changed it is those that the VM is started beside: elsewhere the run may not be done yet.
func (r *run) chosenOn(at whatif.Located) []string {
	if r.Mode.OnHost {
		return []string{at.Key}
	}
	return r.MayRunOn(at)
}
