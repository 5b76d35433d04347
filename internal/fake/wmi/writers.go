package fakewmi

import (
	"context"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// writer writes changes of an instance.
type writer func(ctx context.Context, v *view, o *Object, change fields) error

// writers are the classes whose instances can be written.
var writers = map[string]writer{
	"Msvm_PartitionableGpu": writePartitionCount,
	"MSCluster_Resource":    writeClusterResource,
}

// writePartitionCount divides a GPU anew. The call returns before the driver shows it.
func writePartitionCount(ctx context.Context, v *view, o *Object, change fields) error {
	g, ok := v.partitionableAt(o.Path)
	if !ok {
		return fault(hyperv.NotFound, "the GPU is gone")
	}
	count, ok := change["PartitionCount"].(uint64)
	if !ok || len(change) > 1 {
		return fault(providerNotCapable, "only PartitionCount can be written, with a value")
	}
	before := *g.Partitionable
	if err := v.machine.host.SetPartitionCount(ctx, g.ID, int(count)); err != nil {
		return err
	}
	v.machine.unrest.keepFace(g.ID, before, v.machine.faults.time())
	return nil
}

// writeClusterResource writes the offline action of a VM's resource.
func writeClusterResource(ctx context.Context, v *view, o *Object, change fields) error {
	private, ok := change["PrivateProperties"].(fields)
	if !ok || len(change) > 1 {
		return fault(providerNotCapable, "only PrivateProperties are of a fleet")
	}
	number, ok := private["OfflineAction"].(uint64)
	if !ok || len(private) > 1 {
		return fault(providerNotCapable, "only OfflineAction is of a fleet")
	}
	for _, r := range v.roles() {
		if r.resource() != o.text("Name") {
			continue
		}
		for action, n := range offlineActions {
			if fmt.Sprint(n) != fmt.Sprint(number) {
				continue
			}
			owner, err := v.machine.fleet.Host(r.node)
			if err != nil {
				return err
			}
			return owner.ApplyVMSettings(ctx, r.vm.ID, gpu.VMSettings{OfflineAction: &action})
		}
		return fault(hyperv.InvalidParameter, "there is no offline action %d", number)
	}
	return fault(hyperv.InvalidParameter, "%s has no offline action", o.text("Name"))
}
