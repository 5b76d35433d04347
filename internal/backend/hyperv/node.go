package hyperv

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Values of MSCluster_Node.Pause's DrainType and Resume's FailbackType.
const (
	pauseAndDrain     = 1
	failbackImmediate = 1
)

// Values of MSCluster_Node.NodeDrainStatus.
const (
	drainCompleted = 2
	drainFailed    = 3
)

// DrainNode pauses the node and waits until the cluster has moved its VMs away. The
// cluster migrates them live where it can, and to where it likes (assumption
// hyperv-drain-target).
func (b *Backend) DrainNode(ctx context.Context) error {
	return b.onNode(ctx, "drain the cluster node", func(node Row) error {
		name := node.String("Name")
		status := node.Uint("NodeDrainStatus")
		if nodeState(node) != gpu.NodeDraining && (nodeStates[node.Uint("State")] != gpu.NodePaused || status != drainCompleted) {
			if _, err := b.wmi.Invoke(ctx, MSCluster, node.Path, "Pause", map[string]any{"DrainType": int32(pauseAndDrain)}); err != nil {
				return err
			}
		}
		paused := false
		for i := 0; ; i++ {
			now, err := b.node(ctx, name)
			if err != nil {
				return err
			}
			state, status := nodeState(now), now.Uint("NodeDrainStatus")
			switch {
			case state == gpu.NodeUp && paused:
				return refuse(backend.InvalidState, "somebody has resumed the node while it was being drained")
			case status == drainCompleted:
				return nil
			case status == drainFailed:
				return refuse(backend.InUse, "the drain has failed: the cluster could not move %s away; its event log says why", b.stillOn(ctx, name))
			}
			paused = state != gpu.NodeUp
			if err := sleep(ctx, jobPolls[min(i, len(jobPolls)-1)]); err != nil {
				return refuse(backend.Timeout, "the cluster had not moved %s away when time ran out", b.stillOn(context.WithoutCancel(ctx), name))
			}
		}
	})
}

// ResumeNode lets the cluster place VMs on the node again, and has it move back those that
// the drain has moved away (assumption hyperv-failback).
func (b *Backend) ResumeNode(ctx context.Context) error {
	return b.onNode(ctx, "resume the cluster node", func(node Row) error {
		if nodeState(node) == gpu.NodeUp {
			return nil
		}
		if _, err := b.wmi.Invoke(ctx, MSCluster, node.Path, "Resume", map[string]any{"FailbackType": int32(failbackImmediate)}); err != nil {
			return err
		}
		return b.until(ctx, "the node is not up", func() (bool, error) {
			now, err := b.node(ctx, node.String("Name"))
			return err == nil && nodeState(now) == gpu.NodeUp, err
		})
	})
}

// onNode acts on the host's node in its cluster.
func (b *Backend) onNode(ctx context.Context, op string, act func(node Row) error) error {
	name, err := b.nodeName(ctx)
	object := "node " + name
	if err != nil {
		return complete(ctx, err, op, "the host")
	}
	cluster, err := b.clusterName(ctx)
	if err == nil && cluster == "" {
		err = refuse(backend.NotSupported, "the host is in no cluster")
	}
	var node Row
	if err == nil {
		node, err = b.node(ctx, name)
	}
	if err == nil {
		err = act(node)
	}
	return complete(ctx, err, op, object)
}

// node reads a node of the cluster.
func (b *Backend) node(ctx context.Context, name string) (Row, error) {
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Node WHERE Name="+literal(name), "Name", "State", "NodeDrainStatus")
	switch {
	case err != nil:
		return Row{}, err
	case len(rows) == 0:
		return Row{}, refuse(backend.NotFound, "the cluster has no node %s", name)
	}
	return rows[0], nil
}

// stillTime bounds a look that an error's text needs.
const stillTime = 10 * time.Second

// stillOn names what still runs on a node, for an error.
func (b *Backend) stillOn(ctx context.Context, node string) string {
	ctx, cancel := context.WithTimeout(ctx, stillTime)
	defer cancel()
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type="+literal(virtualMachineType),
		"OwnerGroup", "OwnerNode", "State")
	if err != nil {
		return "every VM"
	}
	var names []string
	for _, row := range rows {
		if gpu.SameID(row.String("OwnerNode"), node) && row.Uint("State") == resourceOnline {
			names = append(names, row.String("OwnerGroup"))
		}
	}
	if len(names) == 0 {
		return "every role"
	}
	slices.Sort(names)
	return "VM " + strings.Join(names, ", ")
}
