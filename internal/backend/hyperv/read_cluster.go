package hyperv

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// nodeStates are those of MSCluster_Node.State.
var nodeStates = map[uint64]gpu.NodeState{0: gpu.NodeUp, 1: gpu.NodeDown, 2: gpu.NodePaused, 3: gpu.NodeJoining}

const drainInProgress = 1 // MSCluster_Node.NodeDrainStatus

// nodeState is a node's state. One that drains takes no VMs, whether it shows as paused
// yet or not; on one of which the cluster does not know the state nothing can be placed.
func nodeState(row Row) gpu.NodeState {
	state, ok := nodeStates[row.Uint("State")]
	switch {
	case !ok:
		return gpu.NodeDown
	case (state == gpu.NodePaused || state == gpu.NodeUp) && row.Uint("NodeDrainStatus") == drainInProgress:
		return gpu.NodeDraining
	default:
		return state
	}
}

// States of the cluster service on a node (MSCluster_Cluster.GetNodeClusterState).
const (
	clusterNotInstalled  = 0
	clusterNotConfigured = 1
	clusterNotRunning    = 3
)

// clusterName is the name of the host's cluster, "" if it is in none. A host without the
// feature does not have the namespace; one with it may still be in no cluster, and a
// node whose service stands still looks like it.
func (b *Backend) clusterName(ctx context.Context) (string, error) {
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Cluster", "Name")
	switch {
	case errors.Is(err, InvalidNamespace):
		return "", nil
	case err == nil && len(rows) > 0:
		return rows[0].String("Name"), nil
	}
	res, stateErr := b.wmi.Invoke(ctx, MSCluster, "MSCluster_Cluster", "GetNodeClusterState", nil)
	if stateErr != nil {
		if err == nil {
			err = stateErr
		}
		return "", err
	}
	switch (Row{Values: res.Out}).Uint("ClusterState") {
	case clusterNotInstalled, clusterNotConfigured:
		return "", nil
	case clusterNotRunning:
		return "", refuse(backend.Unavailable, "the host is a node of a cluster, and its cluster service does not run: Start-ClusterNode")
	}
	if err == nil {
		err = refuse(backend.Failed, "the cluster service runs and shows no cluster in %s: %s", MSCluster, clusterRight)
	}
	return "", err
}

// The resource type of a clustered VM.
const virtualMachineType = "Virtual Machine"

// clusterNodes reads the failover cluster, if the host is a node of one. While a cluster
// does not answer nobody knows who owns which VM.
func (r *reader) clusterNodes(ctx context.Context) error {
	name, err := r.clusterName(ctx)
	if err != nil || name == "" {
		return err
	}
	r.lacks(ctx, gpu.Unknown{Part: gpu.PartCluster}, r.nodes(ctx, name))
	return r.clusteredVMs(ctx)
}

func (r *reader) nodes(ctx context.Context, cluster string) error {
	r.host.Cluster = &gpu.Cluster{Name: cluster}
	nodes, err := r.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Node", "Name", "State", "NodeDrainStatus")
	for _, row := range nodes {
		r.host.Cluster.Nodes = append(r.host.Cluster.Nodes, gpu.Node{Name: row.String("Name"), State: nodeState(row)})
	}
	return err
}

// clusteredVMs finds out which of the host's VMs are clustered. The cluster lists the
// VMs of all nodes; ids come with braces or without.
func (r *reader) clusteredVMs(ctx context.Context) error {
	rows, err := r.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type="+literal(virtualMachineType),
		"Name", "PrivateProperties")
	if err != nil {
		return err
	}
	byResource := map[string]*gpu.VM{}
	for _, row := range rows {
		if row.value("PrivateProperties") == nil {
			return isNull("MSCluster_Resource", "PrivateProperties")
		}
		private := row.Row("PrivateProperties")
		vm, ok := r.host.VM(strings.Trim(private.String("VmID"), "{}"))
		if !ok {
			continue // it is on another node
		}
		vm.Clustered = true
		vm.Settings.OfflineAction = offlineAction(row)
		byResource[gpu.FoldID(row.String("Name"))] = vm
	}
	if len(byResource) == 0 {
		return nil
	}
	return r.possibleOwners(ctx, byResource)
}

// offlineAction is that of a VM's resource, nil for none (assumption hyperv-offline-action).
func offlineAction(resource Row) *gpu.OfflineAction {
	private := resource.Row("PrivateProperties")
	if action, ok := offlineActions[private.Uint("OfflineAction")]; ok && private.Has("OfflineAction") {
		return &action
	}
	return nil
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
