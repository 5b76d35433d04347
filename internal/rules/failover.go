package rules

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

const failoverHeadroom = "failover-headroom"

// checkFailoverHeadroom asks, per cluster, whether the other nodes have partitions for the
// running clustered VMs of any one node that fails.
//
// Terraform plans in any order, and nobody knows the last plan of a run. So a config says how it is by the config alone, with the
// VMs that have partitions now, in numbers; and that the run as a whole makes a cluster short is said once, as soon as no
// plan that is still to come can change it, in words that hold whatever comes.
func checkFailoverHeadroom(r *run) {
	switch w := r.Plan.Want; {
	case r.Only != nil: // of what hung on later plans
		for _, host := range r.Only {
			if h := r.At(host); h != nil && h.Cluster != nil {
				checkRunsHeadroom(r, h)
				return
			}
		}
	case w.Config != nil:
		done := map[string]bool{}
		for _, h := range r.HostsAtHand(w.Config.GPUs) {
			if name := whatif.Cluster(h); name != "" && !done[name] {
				done[name] = true
				if s, ok := r.Alone().Future().Shortage(h); ok && s.VMs > 0 {
					reportShortage(r, s, h)
				}
				if !r.Plan.Unchanged && anotherConfig(r, h) {
					checkRunsHeadroom(r, h)
				}
			}
		}
	case w.Assignment != nil && w.Assignment.Partition != nil && !r.Plan.Unchanged:
		at, ok := r.Locate(w.Assignment)
		if ok && at.Host.Cluster != nil && whatif.RunsAfter(at.VM, w.Assignment) && !hasPartition(at.VM, w.Assignment) {
			checkRunsHeadroom(r, at.Host)
		}
	}
}

// hasPartition tells whether a VM has the partition that its assignment wants.
func hasPartition(vm *gpu.VM, a *gpu.Assignment) bool {
	return len(vm.PartitionAdapters) > 0 && whatif.AlikeAdapters(vm.PartitionAdapters[0], partitionOf(a))
}

func partitionOf(a *gpu.Assignment) gpu.PartitionAdapter {
	return gpu.PartitionAdapter{PinnedGPU: a.Partition.PinnedGPU, Quotas: a.Partition.Quotas}
}

// anotherConfig tells whether another config of the run changes partitions of a cluster.
func anotherConfig(r *run, h *gpu.Host) bool {
	for _, node := range r.Fleet.Cluster(h) {
		for e := range r.Others(whatif.GPUsOn(node)) {
			if e.Plan.Want.Config != nil && !e.Plan.Unchanged {
				return true
			}
		}
	}
	return false
}

// checkRunsHeadroom finds a cluster that the run leaves shorter of partitions than it is.
func checkRunsHeadroom(r *run, h *gpu.Host) {
	cluster := whatif.Cluster(h)
	if r.Mode.Past || r.ToldByAnother(key("failover", cluster)) {
		return
	}
	then, known := headroomOf(r, h)
	if !known || then.VMs == 0 {
		return
	}
	before := *r
	before.Run = *r.Alone().In(r.Mode.Before())
	if now, _ := before.Future().Shortage(h); then.VMs <= now.VMs {
		return
	}
	r.Tells(key("failover", cluster)) // or awaits it
	r.report(Finding{
		Path:      headroomPath(r),
		Title:     "The run leaves not enough partitions for a failover",
		Contended: cluster,
		Found: fmt.Sprintf("If a node of cluster %s fails, the others do not have a partition for each of its running VMs, once this run is "+
			"applied.", quote(h.Cluster.Name)),
		Wanted: "The other nodes should have room for the VMs of any one node; else some stay off until it is back. The next plan says how many.",
		Fix:    "Choose a larger `partition_count`, add a node, or accept that some VMs wait until the node is back.",
	}, key("failover", cluster))
}

// headroomOf is the shortage of a cluster with the plan at hand made.
func headroomOf(r *run, h *gpu.Host) (whatif.Shortage, bool) {
	if a := r.Plan.Want.Assignment; a != nil && a.Partition != nil {
		if at, ok := r.Locate(a); ok {
			return r.Future().ShortageWith(at, partitionOf(a))
		}
	}
	return r.Future().Shortage(h)
}

func headroomPath(r *run) string {
	if r.Plan.Want.Config != nil {
		return "gpu_p.partition_count"
	}
	return "partition"
}

func reportShortage(r *run, s whatif.Shortage, h *gpu.Host) {
	free := plural(s.Moves-s.VMs, "partition") + " free"
	if s.Bound {
		free += " that these may use, by their possible owners, pins and quotas"
	}
	r.report(Finding{
		Path:  "gpu_p.partition_count",
		Title: "Not enough partitions for a failover",
		Host:  s.Host,
		Found: fmt.Sprintf("When %s fails, %s must move, but the other nodes of cluster %s have %s.",
			hostText(s.Host), plural(s.Moves, "running VM"), quote(h.Cluster.Name), free),
		Wanted: fmt.Sprintf("The other nodes should have room for the VMs of any one node; %s would stay off.", plural(s.VMs, "VM")),
		Fix:    "Choose a larger `partition_count`, add a node, or accept that some VMs wait until the node is back.",
	}, overflow("failover", whatif.Cluster(h), s.VMs)...)
}
