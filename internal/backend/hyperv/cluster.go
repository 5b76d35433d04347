package hyperv

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// onlineTime bounds a group's way online when the caller set no deadline.
const onlineTime = 10 * time.Minute

// bringOnline starts a clustered VM through its group (assumption hyperv-cluster-state). It
// tells false for a VM that is not clustered.
func (b *Backend) bringOnline(ctx context.Context, v vm) (clustered bool, err error) {
	rows, err := b.wmi.Query(ctx, MSCluster, "SELECT * FROM MSCluster_Resource WHERE Type="+literal(virtualMachineType),
		"OwnerGroup", "OwnerNode", "PrivateProperties")
	if errors.Is(err, InvalidNamespace) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, row := range rows {
		if !gpu.SameID(strings.Trim(row.Row("PrivateProperties").String("VmID"), "{}"), v.id) {
			continue
		}
		if err := b.nodeRuns(ctx, row.String("OwnerNode")); err != nil {
			return true, err
		}
		return true, b.groupOnline(ctx, row.String("OwnerGroup"))
	}
	return false, nil
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
