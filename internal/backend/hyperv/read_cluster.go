package hyperv

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// nodeStates are those of MSCluster_Node.State.
var nodeStates = map[uint64]gpu.NodeState{0: gpu.NodeUp, 1: gpu.NodeDown, 2: gpu.NodePaused, 3: gpu.NodeJoining}

const drainInProgress = 1 // MSCluster_Node.NodeDrainStatus

// The resource type of a clustered VM.
const virtualMachineType = "Virtual Machine"

// clusterNodes reads the failover cluster, if the host is a node of one. A host without the
// feature does not have the namespace; a cluster that does not answer is an error,
// because nobody knows then who owns which VM.
func (r *reader) clusterNodes(ctx context.Context) error {
	clusters, err := r.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Cluster", "Name")
	if errors.Is(err, InvalidNamespace) || (err == nil && len(clusters) == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	c := &gpu.Cluster{Name: clusters[0].String("Name")}
	nodes, err := r.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Node", "Name", "State", "NodeDrainStatus")
	if err != nil {
		return err
	}
	for _, row := range nodes {
		state, ok := nodeStates[row.Uint("State")]
		switch {
		case !ok:
			state = gpu.NodeDown // unknown: nothing can be placed on it
		case state == gpu.NodePaused && row.Uint("NodeDrainStatus") == drainInProgress:
			state = gpu.NodeDraining
		}
		c.Nodes = append(c.Nodes, gpu.Node{Name: row.String("Name"), State: state})
	}
	r.host.Cluster = c
	return r.clusteredVMs(ctx)
}

// clusteredVMs finds out which of the host's VMs are clustered. The cluster lists the
// VMs of all nodes; ids come with braces or without.
func (r *reader) clusteredVMs(ctx context.Context) error {
	rows, err := r.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type="+literal(virtualMachineType),
		"Name", "OwnerGroup", "PrivateProperties")
	if err != nil {
		return err
	}
	byResource := map[string]*gpu.VM{}
	for _, row := range rows {
		private := row.Row("PrivateProperties")
		vm, ok := r.host.VM(strings.Trim(private.String("VmID"), "{}"))
		if !ok {
			continue // it is on another node
		}
		vm.Clustered = true
		if action, ok := offlineActions[private.Uint("OfflineAction")]; ok && private.Has("OfflineAction") {
			vm.Settings.OfflineAction = &action
		}
		m := r.machine(vm)
		m.resource, m.group = row.Path, row.String("OwnerGroup")
		byResource[gpu.FoldID(row.String("Name"))] = vm
	}
	if len(byResource) == 0 {
		return nil
	}
	return r.possibleOwners(ctx, byResource)
}

// possibleOwners reads which nodes may run each VM. All nodes is what a VM has that
// nobody restricted, and reads as none listed.
func (r *reader) possibleOwners(ctx context.Context, vms map[string]*gpu.VM) error {
	rows, err := r.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_ResourceToPossibleOwner", "GroupComponent", "PartComponent")
	if err != nil {
		return err
	}
	for _, row := range rows {
		if vm, ok := vms[gpu.FoldID(keyOf(row.String("GroupComponent"), "Name"))]; ok {
			vm.PossibleOwners = append(vm.PossibleOwners, keyOf(row.String("PartComponent"), "Name"))
		}
	}
	for _, vm := range vms {
		if len(vm.PossibleOwners) == len(r.host.Cluster.Nodes) {
			vm.PossibleOwners = nil
		}
		slices.Sort(vm.PossibleOwners)
	}
	return nil
}
