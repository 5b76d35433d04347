package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// checkFailoverHeadroom asks, per cluster, whether the other nodes have partitions for the
// running clustered VMs of any one node that fails.
func checkFailoverHeadroom(r *run) {
	if a := r.Plan.Want.Assignment; a != nil {
		checkAssignmentHeadroom(r, a)
		return
	}
	if r.Plan.Want.Config == nil {
		return
	}
	done := map[string]bool{}
	for _, h := range r.HostsAtHand(r.Plan.Want.Config.GPUs) {
		if name := whatif.Cluster(h); name != "" && !done[name] {
			done[name] = true
			if s, ok := r.Future().Shortage(h); ok && s.VMs > 0 {
				reportShortage(r, s, h, "gpu_p.partition_count")
			}
		}
	}
}

// checkAssignmentHeadroom finds a VM whose partition, or what that must be like, makes the shortage
// of its cluster larger.
func checkAssignmentHeadroom(r *run, a *gpu.Assignment) {
	if a.Partition == nil || r.Plan.Unchanged || r.Mode.Past {
		return // the config of the GPUs says what stands
	}
	at, ok := r.Locate(a)
	if !ok || at.Host.Cluster == nil || !whatif.RunsAfter(at.VM, a) {
		return
	}
	has, wants := at.VM.PartitionAdapters, gpu.PartitionAdapter{PinnedGPU: a.Partition.PinnedGPU, Quotas: a.Partition.Quotas}
	if len(has) > 0 && whatif.AlikeAdapters(has[0], wants) {
		return
	}
	after, known := r.Future().ShortageWith(at, wants)
	if !known || after.VMs == 0 {
		return
	}
	if before, _ := r.Future().Shortage(at.Host); after.VMs > before.VMs {
		reportShortage(r, after, at.Host, "partition")
	}
}

func reportShortage(r *run, s whatif.Shortage, h *gpu.Host, path string) {
	free := plural(s.Moves-s.VMs, "partition") + " free"
	if s.Bound {
		free += " that these may use, by their possible owners, pins and quotas"
	}
	r.report(Finding{
		Path:  path,
		Title: "Not enough partitions for a failover",
		Host:  s.Host,
		Found: fmt.Sprintf("When %s fails, %s must move, but the other nodes of cluster %s have %s.",
			hostText(s.Host), plural(s.Moves, "running VM"), quote(h.Cluster.Name), free),
		Wanted: fmt.Sprintf("The other nodes should have room for the VMs of any one node; %s would stay off.", plural(s.VMs, "VM")),
		Fix:    "Choose a larger `partition_count`, add a node, or accept that some VMs wait until the node is back.",
	}, overflow("failover", whatif.Cluster(h), s.VMs)...)
}
