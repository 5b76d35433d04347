package hyperv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// onlineTime bounds a group's way online when the caller set no deadline.
const onlineTime = 10 * time.Minute

// States of a cluster resource (MSCluster_Resource.State). Those that pass are above.
const (
	resourceOnline  = 2
	resourceFailed  = 4
	resourcePending = 128
)

// clustered finds the cluster resource of a VM, without a path for a VM that is not
// clustered. As a rule it has the VM's name; else the VMs of the whole cluster are read.
func (b *Backend) clustered(ctx context.Context, vmID, name string, properties ...string) (Row, error) {
	properties = append(properties, "OwnerGroup", "OwnerNode", "State", "PrivateProperties")
	for _, filter := range []string{" AND Name=" + literal(virtualMachineType+" "+name), ""} {
		rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type="+literal(virtualMachineType)+filter, properties...)
		if errors.Is(err, InvalidNamespace) {
			return Row{}, nil
		}
		if err != nil {
			return Row{}, err
		}
		for _, row := range rows {
			if gpu.SameID(strings.Trim(row.Row("PrivateProperties").String("VmID"), "{}"), vmID) {
				return row, nil
			}
		}
	}
	return Row{}, nil
}

// bringOnline starts a clustered VM through its group. The cluster learns by looking every
// few seconds that Hyper-V has shut a VM down, and until it does it takes the VM for
// online and BringOnline does nothing (assumption hyperv-cluster-state). So the call is
// made whenever the resource is offline and the VM off, until the VM starts.
func (b *Backend) bringOnline(ctx context.Context, v vm, resource Row) error {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, onlineTime)
		defer cancel()
		ctx = limited
	}
	var called time.Time
	for i := 0; ; i++ {
		state := resource.Uint("State")
		if state == resourceFailed && !called.IsZero() && time.Since(called) > b.patience {
			return refuse(backend.Failed, "the cluster took the call, and its resource of the VM has failed: the cluster's event log says why")
		}
		if state != resourceOnline && state < resourcePending {
			if err := b.nodeRuns(ctx, resource.String("OwnerNode")); err != nil {
				return err
			}
			if err := b.groupOnline(ctx, resource.String("OwnerGroup")); err != nil {
				return err
			}
			if called.IsZero() {
				called = time.Now()
			}
		}
		now, err := b.vm(ctx, v.id)
		if err != nil && ctx.Err() == nil {
			return movedAway(err)
		}
		if err == nil && now.state != v.state {
			return b.reaches(ctx, now, gpu.VMRunning)
		}
		if err := sleep(ctx, clusterPolls[min(i, len(clusterPolls)-1)]); err != nil {
			return refuse(backend.Timeout, "the VM was %s when time ran out, and its resource in the cluster %s", v.state, resourceState(state))
		}
		next, err := b.wmi.Get(ctx, MSCluster, resource.Path, "OwnerGroup", "OwnerNode", "State")
		switch {
		case err == nil:
			resource = next
		case ctx.Err() == nil:
			return err
		}
	}
}

// clusterPolls are the waits between two looks at a resource.
var clusterPolls = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

func resourceState(state uint64) string {
	switch {
	case state == resourceOnline:
		return "still online: the cluster has not noticed that the VM is off"
	case state == resourceFailed:
		return "failed"
	case state >= resourcePending:
		return fmt.Sprintf("on its way (state %d)", state)
	default:
		return fmt.Sprintf("offline (state %d)", state)
	}
}

// nodeRuns refuses a node on which the cluster places nothing now.
func (b *Backend) nodeRuns(ctx context.Context, node string) error {
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Node WHERE Name="+literal(node), "Name", "State", "NodeDrainStatus")
	if err != nil || len(rows) == 0 {
		return err
	}
	if state := nodeState(rows[0]); state != gpu.NodeUp {
		return refuse(backend.Unavailable, "the cluster places no VM on node %s, which is %s", node, state)
	}
	return nil
}

func (b *Backend) groupOnline(ctx context.Context, group string) error {
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_ResourceGroup WHERE Name="+literal(group), "Name")
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return refuse(backend.NotFound, "the cluster has no group %s", group)
	}
	limit := onlineTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	seconds := int32(max(1, limit/time.Second))
	_, err = b.wmi.Invoke(ctx, MSCluster, rows[0].Path, "BringOnline", map[string]any{"TimeOut": seconds, "Flags": int32(0)})
	return err
}
