package change

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// WhyNotDrained says why a host cannot have its VMs moved to other nodes of its cluster
// by live migration, "" when it can. A drain moves all running clustered VMs, so each of
// them that has a GPU must be one that can migrate, whatever GPU it has; those that are
// not clustered stay, so none of them may hold a partition, and neither may one that is
// paused or on its way to another state: no live migration takes it away. Whether
// another node has room is the cluster's to say.
func WhyNotDrained(h *gpu.Host) string {
	if h.Cluster == nil {
		return "the host is in no cluster"
	}
	if !slices.ContainsFunc(h.Cluster.Nodes, func(n gpu.Node) bool { return !gpu.SameID(n.Name, h.Name) && n.State == gpu.NodeUp }) {
		return "no other node of the cluster is up"
	}
	for i := range h.VMs {
		vm := &h.VMs[i]
		switch {
		case vm.State == gpu.VMOff || vm.State == gpu.VMSaved:
		case !vm.Clustered && len(vm.PartitionAdapters) > 0:
			return fmt.Sprintf("VM %q holds a partition and is not clustered", vm.Name)
		case vm.Clustered && len(vm.Devices) > 0:
			return fmt.Sprintf("VM %q has a whole GPU, which cannot migrate", vm.Name)
		case vm.Clustered && !mayLeave(h, vm):
			return fmt.Sprintf("VM %q has no possible owner that is up but this node (%s)", vm.Name, strings.Join(vm.PossibleOwners, ", "))
		}
	}
	for i := range h.GPUs {
		if h.GPUs[i].Partitionable == nil {
			continue
		}
		for _, p := range h.GPUs[i].Partitionable.Partitions {
			vm, ok := h.VM(p.VMID)
			switch {
			case !ok:
				return fmt.Sprintf("VM %q, which the host does not list, holds a partition", p.VMID)
			case !vm.Runs():
				return fmt.Sprintf("VM %q holds a partition and is %s, so it cannot migrate live", vm.Name, StateText(vm.State))
			}
			if p.SupportsOutgoingLiveMigration == nil || !*p.SupportsOutgoingLiveMigration {
				return fmt.Sprintf("the partition of VM %q cannot migrate live (it takes Windows Server 2025 or Azure Local 24H2 and a host driver "+
					"that supports it)", cmp.Or(vm.Name, vm.ID))
			}
		}
	}
	return ""
}

// mayLeave tells whether another node that is up is a possible owner of a VM.
func mayLeave(h *gpu.Host, vm *gpu.VM) bool {
	return len(vm.PossibleOwners) == 0 || slices.ContainsFunc(h.Cluster.Nodes, func(n gpu.Node) bool {
		return n.State == gpu.NodeUp && !gpu.SameID(n.Name, h.Name) && gpu.HasID(vm.PossibleOwners, n.Name)
	})
}

// StateText is a VM's state, for people.
func StateText(s gpu.VMState) string {
	if s == gpu.VMOther || s == "" {
		return "in a transitional or critical state"
	}
	return string(s)
}
