package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func checkSameHost(r *run) {
	a := r.Plan.Want.Assignment
	at, ok := r.Locate(a)
	if !ok {
		return
	}
	f := Finding{
		Title:  "The VM and the GPU are on different hosts",
		Wanted: "A VM can only use GPUs of the host that it runs on.",
	}
	switch {
	case a.Device != nil && a.Device.Host != at.Key:
		f.Path = "device.host"
		f.Found = fmt.Sprintf("%s is on %s, but %s names GPUs of %s.", vmText(at.VM), hostText(at.Key), r.label(), hostText(a.Device.Host))
		f.Fix = fmt.Sprintf("Write `host = %s` and GPU ids of that host, or move the VM.", quote(at.Key))
	case a.Partition != nil && a.Partition.PinnedGPU != "":
		pin := a.Partition.PinnedGPU
		if _, here := at.Host.GPU(pin); here {
			return
		}
		elsewhere := r.HostsWith(pin)
		if len(elsewhere) == 0 {
			return // gpu-exists says that nobody has it
		}
		f.Path = "partition.gpu_id"
		f.GPU = pin
		f.Found = fmt.Sprintf("%s is on %s, but GPU %s is on %s.", vmText(at.VM), hostText(at.Key), pin, join(quoteAll(elsewhere)))
		f.Fix = fmt.Sprintf("Name a GPU of %s (%s), or leave `gpu_id` out.", hostText(at.Key), join(gpusSeen(at.Host)))
	default:
		return
	}
	r.reportVM(at, f)
}

func checkPinnedOnClustered(r *run) {
	a := r.Plan.Want.Assignment
	at, ok := r.Locate(a)
	if !ok || !at.VM.Clustered {
		return
	}
	f := Finding{
		Title: "A clustered VM is pinned to a GPU",
		Found: fmt.Sprintf("%s on %s is clustered: it may start on another node.", vmText(at.VM), hostText(at.Key)),
	}
	switch {
	case a.Partition != nil && a.Partition.PinnedGPU != "":
		f.Path = "partition.gpu_id"
		f.GPU = a.Partition.PinnedGPU
		f.Wanted = fmt.Sprintf("%s pins its partition to GPU %s of this node; elsewhere the VM would not start.",
			r.label(), a.Partition.PinnedGPU)
		f.Fix = "Leave `gpu_id` out: Hyper-V then takes a free partition of any GPU of the node."
	case a.Device != nil:
		f.Level = Warning
		f.Path = "device"
		f.Wanted = fmt.Sprintf("%s gives it GPUs of this node only; after a failover it would not start.", r.label())
		f.Fix = "Use a pool of the same name on every node: `pool = { id = gpu_pool.NAME.id }`."
	default:
		return
	}
	r.reportVM(at, f)
}

func checkPoolCoversOwners(r *run) {
	switch w := r.Plan.Want; {
	case w.Assignment != nil && w.Assignment.Pool != nil:
		if at, ok := r.Locate(w.Assignment); ok {
			name := cmp.Or(w.Assignment.Pool.Name, w.Assignment.Pool.ID)
			without := r.Future().OwnersWithoutPool(at, name)
			reportUncovered(r, at.Key, at.VM.Name, "pool.id", name, fmt.Sprintf("%s may run on nodes that have no pool %s: %s.",
				vmText(at.VM), quote(name), join(quoteAll(without))), without)
		}
	case w.Pool != nil:
		checkPoolLosesOwners(r, w.Pool)
	}
}

// checkPoolLosesOwners finds clustered VMs that draw from the pool and may run where
// it will not be.
func checkPoolLosesOwners(r *run, p *gpu.PoolConfig) {
	var vms, without []string
	first := ""
	seen := map[string]bool{}
	for host, h := range r.HostsAtHand(p.Members) {
		for _, node := range r.ClusterOf(host, h) {
			if seen[node] {
				continue
			}
			seen[node] = true
			n := r.At(node)
			for i := range n.VMs {
				at := whatif.Located{Key: node, Host: n, VM: &n.VMs[i]}
				if whatif.Drawn(at.VM, p.Name) == 0 {
					continue
				}
				if missing := r.Future().OwnersWithoutPool(at, p.Name); len(missing) > 0 {
					first = cmp.Or(first, node)
					vms = append(vms, quote(at.VM.Name))
					without = append(without, missing...)
				}
			}
		}
	}
	slices.Sort(without)
	without = slices.Compact(without)
	reportUncovered(r, first, "", "members", p.Name, fmt.Sprintf("VMs that draw from pool %s may run on nodes where it is not: %s on %s.",
		quote(p.Name), join(vms), join(quoteAll(without))), without)
}

func reportUncovered(r *run, host, vm, path, pool, found string, without []string) {
	if len(without) == 0 {
		return
	}
	keys := words.Each(without, func(node string) string { return key("uncovered", vm, pool, node) })
	r.report(Finding{
		Path:   path,
		Title:  "The pool is missing on nodes where the VM may run",
		Host:   host,
		VM:     vm,
		Found:  found,
		Wanted: "Every node that may own the VM needs a pool of this name; elsewhere the VM does not start after a failover.",
		Fix:    "Add the nodes to the pool's `members`, or restrict the VM's possible owners.",
	}, keys...)
}

func checkPoolCounts(r *run) {
	p := r.Plan.Want.Pool
	if p == nil {
		return
	}
	byCluster := map[string]map[int][]string{}
	names := map[string]string{}
	for host, h := range r.HostsAtHand(p.Members) {
		c := whatif.Cluster(h)
		if c == "" {
			continue
		}
		if byCluster[c] == nil {
			byCluster[c] = map[int][]string{}
			names[c] = h.ClusterName()
		}
		n := len(p.Members[host])
		byCluster[c][n] = append(byCluster[c][n], host)
	}
	for _, c := range whatif.SortedKeys(byCluster) {
		if len(byCluster[c]) < 2 {
			continue
		}
		var lines, keys []string
		first := ""
		for _, n := range whatif.SortedKeys(byCluster[c]) {
			lines = append(lines, plural(n, "GPU")+" on "+join(quoteAll(byCluster[c][n])))
			for _, host := range byCluster[c][n] {
				first = cmp.Or(first, host)
				keys = append(keys, key("count", host, fmt.Sprint(n)))
			}
		}
		r.report(Finding{
			Path:   "members",
			Title:  "The pool has different numbers of GPUs per node",
			Host:   first,
			Found:  fmt.Sprintf("In cluster %s pool %s has %s.", quote(names[c]), quote(p.Name), joinAll(lines)),
			Wanted: "Every node of a cluster should have the same number of GPUs in the pool, so that any of them can take over from any other.",
			Fix:    "Put the same number of GPUs into `members` for every node.",
		}, keys...)
	}
}

func checkOfflineAction(r *run) {
	a := r.Plan.Want.Assignment
	at, ok := r.Locate(a)
	if !ok {
		return
	}
	f := Finding{Path: "offline_action", Host: at.Key, VM: at.VM.Name}
	if !at.VM.Clustered {
		if a.Settings.OfflineAction == nil {
			return
		}
		f.Title = "An offline action for a VM that is not clustered"
		f.Found = fmt.Sprintf("%s on %s is not clustered.", vmText(at.VM), hostText(at.Key))
		f.Wanted = fmt.Sprintf("%s sets its offline action to %q, which only a cluster has.", r.label(), *a.Settings.OfflineAction)
		f.Fix = "Remove `offline_action`, or add the VM to the cluster first."
		r.report(f, key("not clustered", at.VM.ID))
		return
	}
	action := at.VM.Settings.Overlay(a.Settings).OfflineAction
	if action == nil || *action == gpu.OfflineForcedShutdown {
		return
	}
	f.Level = Warning
	f.Title = "The cluster may not be able to take the VM offline"
	f.Found = fmt.Sprintf("The offline action of clustered %s on %s is %q.", vmText(at.VM), hostText(at.Key), *action)
	f.Wanted = fmt.Sprintf("%s gives it a GPU. When the cluster takes such a VM offline, as a drain does, it should shut it down by force: "+
		"it can be neither saved nor, without support for it, moved while it runs.", r.label())
	f.Fix = "Write `offline_action = \"force_shutdown\"`."
	r.report(f, key("offline action", at.VM.ID))
}
