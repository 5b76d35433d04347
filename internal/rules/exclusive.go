package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

func checkSinglePartition(r *run) {
	a := r.Plan.Want.Assignment
	if a == nil || a.Partition == nil {
		return
	}
	const wanted = "A VM gets at most one GPU partition."
	for _, e := range r.OthersForVM(a) {
		if o := e.Plan.Want.Assignment; o != nil && o.Partition != nil {
			r.report(Finding{
				Path:   "vm",
				Title:  "Two partitions for one VM",
				Host:   a.Host,
				VM:     whatif.VMWritten(a),
				Other:  whatif.Label(e.Plan),
				Found:  fmt.Sprintf("%s both give VM %s a partition.", r.both(e), quote(r.vmName(a, o))),
				Wanted: wanted,
				Fix:    "Keep one of the two; the other may be in another module." + wayOut,
			}, key("plan", r.vmName(a, o), whatif.Label(e.Plan)))
		}
	}
	at, ok := r.Locate(a)
	if ok && at.Host.Platform == gpu.Linux {
		checkSingleVGPU(r, at)
		return
	}
	if !ok || len(at.VM.PartitionAdapters) == 0 {
		return
	}
	n := len(at.VM.PartitionAdapters)
	f := Finding{
		Path:   "vm",
		Title:  "The VM already has a partition",
		Wanted: fmt.Sprintf("%s gives it one. %s", r.label(), wanted),
	}
	claim, claimed := r.ClaimOnVM(at.Key, at.VM.ID)
	switch {
	case claimed && !r.Ours(claim):
		f.Found = fmt.Sprintf("%s on %s has %s, assigned by %s.", vmText(at.VM), hostText(at.Key), plural(n, "GPU partition adapter"),
			whose(claim))
		f.Fix = r.handOver(vmText(at.VM))
	case !r.HadPartition(at):
		f.Found = fmt.Sprintf("%s on %s has %s that no Terraform resource manages; it was assigned by other means, such as Windows Admin "+
			"Center or PowerShell.",
			vmText(at.VM), hostText(at.Key), plural(n, "GPU partition adapter"))
		f.Fix = fmt.Sprintf("Adopt it with `terraform import ADDRESS %s`, where ADDRESS is this resource's address, or unassign the partition "+
			"where it was assigned.",
			at.VM.ID)
	case n > 1:
		f.Title = "The VM has several partitions"
		f.Found = fmt.Sprintf("%s on %s has %s; only one of them can come from this state.", vmText(at.VM),
			hostText(at.Key), plural(n, "GPU partition adapter"))
		f.Fix = "Remove the adapters that were added by other means while the VM is off."
	default:
		return
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = key("adapter", at.VM.ID, fmt.Sprint(i))
	}
	r.reportVM(at, f, keys...)
}

// vmName names the VM of two assignments in the same words for both.
func (r *run) vmName(a, b *gpu.Assignment) string {
	if at, ok := r.Locate(a); ok {
		return at.VM.Name
	}
	return min(whatif.VMWritten(a), whatif.VMWritten(b))
}

func checkDDAXorPartition(r *run) {
	switch w := r.Plan.Want; {
	case w.Config != nil:
		for host, h := range r.HostsAtHand(w.Config.GPUs) {
			for g := range whatif.Selected(h, w.Config.GPUs[host]) {
				if h.Platform == gpu.Linux {
					checkPassedThrough(r, host, g, w.Config.Kind)
					continue
				}
				checkPartitionedGPU(r, host, h, g)
			}
		}
	case w.Pool != nil:
		for host, h := range r.HostsAtHand(w.Pool.Members) {
			if h.Platform == gpu.Linux {
				continue // shares are drawn from its pools, and layouts are welcome in them
			}
			for g := range whatif.Selected(h, w.Pool.Members[host]) {
				checkWholeGPU(r, host, h, g, "members")
			}
		}
	case w.Assignment != nil:
		if d := w.Assignment.Device; d != nil {
			if h, ok := r.Host(d.Host); ok {
				for g := range whatif.Selected(h, d.GPUIDs) {
					checkWholeGPU(r, d.Host, h, g, "device.gpu_ids")
				}
			}
		}
		checkBothKinds(r, w.Assignment)
	}
}

const xorWanted = "A physical GPU is either partitioned or given whole to VMs, never both."

// checkPassedThrough looks for GPUs that a Linux host has given up for VMs. Of those that
// are shared with containers gpu-vm-xor-share says it.
func checkPassedThrough(r *run, host string, g *gpu.GPU, kind gpu.Kind) {
	if !g.Dismounted || kind == gpu.KindMPS || kind == gpu.KindTimeSlicing {
		return
	}
	r.report(Finding{
		Path:   "selector",
		Title:  "The GPU is assigned as a whole device",
		Host:   host,
		GPU:    g.ID,
		Found:  fmt.Sprintf("%s is taken from its host, for passthrough to a VM.", gpuOn(host, g)),
		Wanted: r.label() + " partitions it. " + xorWanted,
		Fix:    "Leave this GPU out of `selector`, or take it back from the VM first.",
	}, key("whole", host, g.ID))
}

// checkPartitionedGPU looks for whoever takes a GPU of this config whole.
func checkPartitionedGPU(r *run, host string, h *gpu.Host, g *gpu.GPU) {
	f := Finding{
		Path:   "selector",
		Title:  "The GPU is assigned as a whole device",
		Host:   host,
		GPU:    g.ID,
		Wanted: r.label() + " partitions it. " + xorWanted,
		Fix:    "Leave this GPU out of `selector`, or take it back from the pool or the VM first and mount it on the host.",
	}
	if e := r.Conflict(host, func(w gpu.Want) bool { return whatif.TakesWhole(w, host, g.ID) }); e != nil {
		reportXor(r, f, e, host, g)
		return
	}
	pool := whatif.InPool(h, g.ID)
	switch {
	case pool != nil:
		f.Found = fmt.Sprintf("%s is in pool %s.", gpuOn(host, g), quote(pool.Name))
	case g.Dismounted:
		f.Found = fmt.Sprintf("%s is dismounted from its host.", gpuOn(host, g))
	default:
		reportXorClaim(r, f, h, host, g, gpu.ClaimPool)
		return
	}
	r.report(f, key("whole", host, g.ID))
}

// checkWholeGPU looks for whoever has partitions of a GPU that this plan takes whole.
func checkWholeGPU(r *run, host string, h *gpu.Host, g *gpu.GPU, path string) {
	f := Finding{
		Path:   path,
		Title:  "The GPU is partitioned",
		Host:   host,
		GPU:    g.ID,
		Wanted: r.label() + " takes it whole. " + xorWanted,
		Fix:    "Choose another GPU in `" + path + "`, or take this one out of its gpu_partition_config and unassign its partitions first.",
	}
	if e := r.Conflict(host, func(w gpu.Want) bool { return w.Config != nil && gpu.HasID(w.Config.GPUs[host], g.ID) }); e != nil {
		reportXor(r, f, e, host, g)
		return
	}
	if ids := whatif.HolderIDs(g); len(ids) > 0 {
		f.Found = fmt.Sprintf("Running VMs hold partitions of %s: %s.", gpuOn(host, g), joinAll(vmNames(h, ids)))
		r.report(f, key("held", host, g.ID))
		return
	}
	reportXorClaim(r, f, h, host, g, gpu.ClaimConfig)
}

// reportXor words a conflict inside the run the same for both sides.
func reportXor(r *run, f Finding, e *whatif.Entry, host string, g *gpu.GPU) {
	f.Title = "A GPU is both partitioned and assigned whole"
	f.Other = whatif.Label(e.Plan)
	f.Found = fmt.Sprintf("%s both want %s; one partitions it, the other takes it whole.", r.both(e), gpuOn(host, g))
	f.Wanted = xorWanted
	f.Fix = "Leave this GPU out of one of the two." + wayOut
	r.report(f, key("plan", host, g.ID, whatif.Label(e.Plan)))
}

// reportXorClaim reports a claim of the other kind. One of this state is only worth
// a warning: its resource is not planned in this run yet, or is being removed in it.
func reportXorClaim(r *run, f Finding, h *gpu.Host, host string, g *gpu.GPU, other gpu.ClaimKind) {
	for c := range h.ClaimsOf(other) {
		if !c.Covers(g.ID) || r.Superseded(c) {
			continue
		}
		f.Found = fmt.Sprintf("%s is claimed by %s %s of %s.", gpuOn(host, g), claimNoun(other), quote(c.ID), whose(c))
		if r.Ours(c) {
			f.Level = Warning
			f.Fix = "This works only when that resource gives the GPU up first: apply its removal before this change. " + f.Fix
		}
		r.report(f, key("claim", host, g.ID))
		return
	}
}

func claimNoun(k gpu.ClaimKind) string {
	switch k {
	case gpu.ClaimConfig:
		return "partition config"
	case gpu.ClaimPool:
		return "pool"
	case gpu.ClaimShare:
		return "share"
	case gpu.ClaimAssignment:
	}
	return "VM assignment"
}

// checkBothKinds finds a plan of this run that gives the VM the other kind.
func checkBothKinds(r *run, a *gpu.Assignment) {
	for _, e := range r.OthersForVM(a) {
		o := e.Plan.Want.Assignment
		if o == nil || (o.Partition == nil) == (a.Partition == nil) {
			continue
		}
		r.report(Finding{
			Path:   "vm",
			Title:  "A partition and a whole GPU for one VM",
			Host:   a.Host,
			VM:     whatif.VMWritten(a),
			Other:  whatif.Label(e.Plan),
			Found:  fmt.Sprintf("%s both assign to VM %s; one gives it a partition, the other whole GPUs.", r.both(e), quote(r.vmName(a, o))),
			Wanted: "A VM gets either one partition or whole GPUs, from one resource.",
			Fix:    "Keep one of the two." + wayOut,
		}, key("kinds", r.vmName(a, o), whatif.Label(e.Plan)))
	}
}

func checkOneConfigPerGPU(r *run) {
	if p := r.Plan.Want.Pool; p != nil {
		checkOnePoolPerGPU(r, p)
		return
	}
	c := r.Plan.Want.Config
	if c == nil {
		return
	}
	shared := map[*whatif.Entry][]member{}
	claimed := map[string][]member{} // by the claim's state and config
	claims := map[string]*gpu.Claim{}
	for host, h := range r.HostsAtHand(c.GPUs) {
		for g := range whatif.Selected(h, c.GPUs[host]) {
			m := member{host: host, gpu: g}
			for e := range r.Others(whatif.GPUsOn(host)) {
				if o := e.Plan.Want.Config; o != nil && gpu.HasID(o.GPUs[host], g.ID) {
					shared[e] = append(shared[e], m)
				}
			}
			if claim := r.ConfigClaimOver(h, g.ID); claim != nil && !r.Ours(claim) {
				k := claim.Owner + "\x00" + gpu.FoldID(claim.ID)
				claims[k] = claim
				claimed[k] = append(claimed[k], m)
			}
		}
	}
	for _, e := range slices.SortedFunc(maps.Keys(shared), whatif.CompareEntries) {
		r.reportGPUs(Finding{
			Path:   "selector",
			Title:  "Two configurations for one GPU",
			Other:  whatif.Label(e.Plan),
			Found:  fmt.Sprintf("%s both cover %s.", r.both(e), r.gpuList(shared[e])),
			Wanted: "A GPU has one layout, so one gpu_partition_config covers it.",
			Fix:    "Tell the two apart with `hosts` or `selector`, or merge them." + wayOut,
		}, "shared "+whatif.Label(e.Plan), shared[e])
	}
	for _, k := range whatif.SortedKeys(claimed) {
		claim := claims[k]
		r.reportGPUs(Finding{
			Path:   "selector",
			Title:  "The GPU belongs to another configuration",
			Found:  fmt.Sprintf("Partition config %s of %s covers %s.", quote(claim.ID), whose(claim), r.gpuList(claimed[k])),
			Wanted: fmt.Sprintf("%s covers %s too, but a GPU has one layout.", r.label(), verb(len(claimed[k]), "it", "them")),
			Fix:    r.handOver("partition config " + quote(claim.ID)),
		}, "claimed", claimed[k])
	}
}

// gpuList names GPUs. All of a host are counted: `all 8 GPUs of host "hgx01" (NVIDIA H100 80GB HBM3)`.
func (r *run) gpuList(members []member) string {
	of := map[string]int{}
	for _, m := range members {
		of[m.host]++
	}
	var hosts, models, lines []string
	total := 0
	for _, m := range members {
		n := of[m.host]
		if h := r.At(m.host); h == nil || n < 3 || n != len(h.GPUs) { // two are as soon listed
			lines = append(lines, gpuOn(m.host, m.gpu))
			continue
		}
		total++
		if model := cmp.Or(m.gpu.Model, "unknown model"); !slices.Contains(models, model) {
			models = append(models, model)
		}
		if name := quote(m.host); !slices.Contains(hosts, name) {
			hosts = append(hosts, name)
		}
	}
	if total > 0 {
		all := fmt.Sprintf("all %d GPUs of %s%s (%s)", total, verb(len(hosts), "host ", "hosts "), join(hosts), join(models))
		lines = slices.Insert(lines, 0, all)
	}
	return join(lines)
}

func checkUniqueName(r *run) {
	switch w := r.Plan.Want; {
	case w.Config != nil:
		for e := range r.Others(whatif.ConfigNamed(w.Config.ID)) {
			if o := e.Plan.Want.Config; o != nil && gpu.SameID(o.ID, w.Config.ID) {
				reportTwin(r, e, "name", "partition config "+quote(w.Config.ID), "Give one of the two another `name`.")
			}
		}
	case w.Pool != nil:
		checkPoolTwins(r, w.Pool)
	case w.Share != nil:
		checkShareTwins(r, w.Share)
	case w.Assignment != nil:
		for _, e := range r.OthersForVM(w.Assignment) {
			// Partitions on both or on one side have rules of their own.
			if o := e.Plan.Want.Assignment; o != nil && o.Partition == nil && w.Assignment.Partition == nil {
				reportTwin(r, e, "vm", "VM "+quote(r.vmName(w.Assignment, o)),
					"Put everything that the VM gets into one gpu_vm_assignment; `pool = { count = 2 }` gives it two GPUs.")
			}
		}
	}
}

// checkPoolTwins finds pools of the same id, or of the same name on the same host.
func checkPoolTwins(r *run, p *gpu.PoolConfig) {
	about := []string{whatif.PoolNamed(p.ID)}
	for _, host := range whatif.SortedKeys(p.Members) {
		about = append(about, whatif.GPUsOn(host))
	}
	for e := range r.Others(about...) {
		o := e.Plan.Want.Pool
		if o == nil || !(gpu.SameID(o.ID, p.ID) || (gpu.SameID(o.Name, p.Name) && shareHost(o.Members, p.Members))) {
			continue
		}
		reportTwin(r, e, "name", "pool "+quote(p.Name), "Give one of the two another `name`, or merge their `members`.")
	}
}

func shareHost(a, b map[string][]string) bool {
	for host := range a {
		if _, ok := b[host]; ok {
			return true
		}
	}
	return false
}

func reportTwin(r *run, e *whatif.Entry, path, object, fix string) {
	r.report(Finding{
		Path:   path,
		Title:  "Two resources for one object",
		Other:  whatif.Label(e.Plan),
		Found:  fmt.Sprintf("%s both manage %s.", r.both(e), object),
		Wanted: "An object must be managed by one resource only.",
		Fix:    fix + wayOut,
	}, key("twin", object, whatif.Label(e.Plan)))
}
