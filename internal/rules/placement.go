package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func checkSameHost(r *run) {
	a := r.plan.Want.Assignment
	at, ok := r.locate(a)
	if !ok {
		return
	}
	f := Finding{
		Title:  "The VM and the GPU are on different hosts",
		Wanted: "A VM can only use GPUs of the host that it runs on.",
	}
	switch {
	case a.Device != nil && a.Device.Host != at.key:
		f.Path = "device.host"
		f.Found = fmt.Sprintf("%s is on %s, but %s names GPUs of %s.", vmText(at.vm), hostText(at.key), r.label(), hostText(a.Device.Host))
		f.Fix = fmt.Sprintf("Write `host = %s` and GPU ids of that host, or move the VM.", quote(at.key))
	case a.Partition != nil && a.Partition.PinnedGPU != "":
		pin := a.Partition.PinnedGPU
		if _, here := at.host.GPU(pin); here {
			return
		}
		elsewhere := r.hostsWith(pin)
		if len(elsewhere) == 0 {
			return // gpu-exists says that nobody has it
		}
		f.Path = "partition.gpu_id"
		f.GPU = pin
		f.Found = fmt.Sprintf("%s is on %s, but GPU %s is on %s.", vmText(at.vm), hostText(at.key), pin, join(quoteAll(elsewhere)))
		f.Fix = fmt.Sprintf("Name a GPU of %s (%s), or leave `gpu_id` out.", hostText(at.key), join(gpusSeen(at.host)))
	default:
		return
	}
	r.reportVM(at, f)
}

func checkPinnedOnClustered(r *run) {
	a := r.plan.Want.Assignment
	at, ok := r.locate(a)
	if !ok || !at.vm.Clustered {
		return
	}
	f := Finding{
		Title: "A clustered VM is pinned to a GPU",
		Found: fmt.Sprintf("%s on %s is clustered: it may start on another node.", vmText(at.vm), hostText(at.key)),
	}
	switch {
	case a.Partition != nil && a.Partition.PinnedGPU != "":
		f.Path = "partition.gpu_id"
		f.GPU = a.Partition.PinnedGPU
		f.Wanted = fmt.Sprintf("%s pins its partition to GPU %s of this node; elsewhere the VM would not start.", r.label(), a.Partition.PinnedGPU)
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
	switch w := r.plan.Want; {
	case w.Assignment != nil && w.Assignment.Pool != nil:
		if at, ok := r.locate(w.Assignment); ok {
			name := cmp.Or(w.Assignment.Pool.Name, w.Assignment.Pool.ID)
			without := r.ownersWithoutPool(at, name)
			r.reportUncovered(at.key, at.vm.Name, "pool.id", name, fmt.Sprintf("%s may run on nodes that have no pool %s: %s.",
				vmText(at.vm), quote(name), join(quoteAll(without))), without)
		}
	case w.Pool != nil:
		r.checkPoolLosesOwners(w.Pool)
	}
}

// checkPoolLosesOwners finds clustered VMs that draw from the pool and may run where
// it will not be.
func (r *run) checkPoolLosesOwners(p *gpu.PoolConfig) {
	var vms, without []string
	first := ""
	seen := map[string]bool{}
	for host, h := range r.hostsAtHand(p.Members) {
		for _, node := range r.clusterOf(host, h) {
			if seen[node] {
				continue
			}
			seen[node] = true
			n := r.fleet.hosts[node]
			for i := range n.VMs {
				at := located{node, n, &n.VMs[i]}
				if drawn(at.vm, p.Name) == 0 {
					continue
				}
				if missing := r.ownersWithoutPool(at, p.Name); len(missing) > 0 {
					first = cmp.Or(first, node)
					vms = append(vms, quote(at.vm.Name))
					without = append(without, missing...)
				}
			}
		}
	}
	slices.Sort(without)
	without = slices.Compact(without)
	r.reportUncovered(first, "", "members", p.Name, fmt.Sprintf("VMs that draw from pool %s may run on nodes where it is not: %s on %s.",
		quote(p.Name), join(vms), join(quoteAll(without))), without)
}

func (r *run) reportUncovered(host, vm, path, pool, found string, without []string) {
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

// ownersWithoutPool lists the nodes at hand that may own a clustered VM and will have
// no pool of that name.
func (r *run) ownersWithoutPool(at located, pool string) []string {
	if !at.vm.Clustered {
		return nil
	}
	var out []string
	for _, node := range r.fleet.cluster(at.host) {
		h := r.fleet.hosts[node]
		if len(at.vm.PossibleOwners) > 0 && !contains(at.vm.PossibleOwners, h.Name) {
			continue
		}
		if !r.willHavePool(node, h, pool) {
			out = append(out, node)
		}
	}
	return out
}

func (r *run) willHavePool(host string, h *gpu.Host, name string) bool {
	pool, ok := r.projected(host, h).Pool(name)
	return ok && len(pool.GPUs) > 0
}

// clusterOf is the host's cluster, or the host alone.
func (r *run) clusterOf(host string, h *gpu.Host) []string {
	if all := r.fleet.cluster(h); all != nil {
		return all
	}
	return []string{host}
}

func checkPoolCounts(r *run) {
	p := r.plan.Want.Pool
	if p == nil {
		return
	}
	byCluster := map[string]map[int][]string{}
	names := map[string]string{}
	for host, h := range r.hostsAtHand(p.Members) {
		c := cluster(h)
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
	for _, c := range sortedKeys(byCluster) {
		if len(byCluster[c]) < 2 {
			continue
		}
		var lines, keys []string
		first := ""
		for _, n := range sortedKeys(byCluster[c]) {
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
	a := r.plan.Want.Assignment
	at, ok := r.locate(a)
	if !ok {
		return
	}
	f := Finding{Path: "offline_action", Host: at.key, VM: at.vm.Name}
	if !at.vm.Clustered {
		if a.Settings.OfflineAction == nil {
			return
		}
		f.Title = "An offline action for a VM that is not clustered"
		f.Found = fmt.Sprintf("%s on %s is not clustered.", vmText(at.vm), hostText(at.key))
		f.Wanted = fmt.Sprintf("%s sets its offline action to %q, which only a cluster has.", r.label(), *a.Settings.OfflineAction)
		f.Fix = "Remove `offline_action`, or add the VM to the cluster first."
		r.report(f, key("not clustered", at.vm.ID))
		return
	}
	action := at.vm.Settings.Overlay(a.Settings).OfflineAction
	if action == nil || *action == gpu.OfflineForcedShutdown {
		return
	}
	f.Level = Warning
	f.Title = "The cluster may not be able to take the VM offline"
	f.Found = fmt.Sprintf("The offline action of clustered %s on %s is %q.", vmText(at.vm), hostText(at.key), *action)
	f.Wanted = fmt.Sprintf("%s gives it a GPU. When the cluster takes such a VM offline, as a drain does, it should shut it down by force: it can be neither saved nor, without support for it, moved while it runs.", r.label())
	f.Fix = "Write `offline_action = \"force_shutdown\"`."
	r.report(f, key("offline action", at.vm.ID))
}
