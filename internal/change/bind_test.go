package change_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What a start gave a VM is judged by the adapter of its assignment: what another adapter has, which somebody made by hand, is
// neither the assignment's nor its fault.
func TestWhatAnAdapterByHandGetsIsNotTheAssignments(t *testing.T) {
	t.Parallel()
	host := hyperV()
	host.Cluster = nil
	host.Claims = append(host.Claims, gpu.Claim{
		Kind: gpu.ClaimConfig, ID: "vdi", Token: "t", GPUs: []string{split1}, Want: gpu.Want{Config: &gpu.PartitionConfig{ID: "vdi"}},
	})
	for i := range host.GPUs {
		if host.GPUs[i].ID == split2 {
			host.GPUs[i].Partitionable.Count = 8
			host.GPUs[i].Partitionable.Partitions = []gpu.Partition{{VMID: vmID(0), VRAM: 2 * gib}}
		}
	}
	vm := &host.VMs[0]
	vm.State, vm.Clustered = gpu.VMRunning, false
	vm.PartitionAdapters = []gpu.PartitionAdapter{{ID: "of somebody"}}
	want := &gpu.Assignment{VMID: vmID(0), Partition: &gpu.PartitionWant{Config: "vdi"}}
	if got := change.Undelivered(&host, want); got == "" {
		t.Error("a partition of another size is delivered")
	}
	vm.PartitionAdapters = append(vm.PartitionAdapters, gpu.PartitionAdapter{ID: "of the assignment", PinnedGPU: split1})
	if got := change.Undelivered(&host, want); got != "" {
		t.Errorf("the assignment's own adapter is pinned to a GPU of its config, and: %s", got)
	}
}
