package hyperv_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// crowded adds VMs until there are n, each with an adapter and a device of the pool.
func crowded(n int) func(*gpu.Snapshot) {
	return onHost(func(h *gpu.Host) {
		for i := len(h.VMs); i < n; i++ {
			id := fmt.Sprintf("44444444-DDDD-4DDD-8DDD-%012d", i)
			h.VMs = append(h.VMs, gpu.VM{
				ID: id, Name: fmt.Sprintf("vm-%03d", i), State: gpu.VMOff, Generation: 2, Clustered: true,
				PartitionAdapters: []gpu.PartitionAdapter{{ID: fmt.Sprintf("AAAAAAAA-1111-4111-8111-%012d", i), PinnedGPU: gpuA}},
				Devices:           []gpu.DeviceAssignment{{ID: fmt.Sprintf("BBBBBBBB-1111-4111-8111-%012d", i), Pool: "vdi"}},
			})
		}
	})
}

// inventoryLimit bounds an inventory of 300 VMs, which takes half a second here, most of
// it the fixture's.
const inventoryLimit = 5 * time.Second

// The host is read in one pass: how many calls that takes does not depend on its VMs.
func TestCallsOfAnInventory(t *testing.T) {
	counts := map[int]int{}
	for _, n := range []int{3, 300} {
		r := newRig(t, crowded(n), inCluster)
		began := time.Now()
		host := r.host()
		took := time.Since(began)
		last := host.VMs[len(host.VMs)-1]
		if len(host.VMs) != n || len(last.PartitionAdapters) != 1 || last.PartitionAdapters[0].PinnedGPU != gpuA || len(last.Devices) != 1 || !last.Clustered {
			t.Fatalf("of %d VMs there are %d, the last is %+v", n, len(host.VMs), last)
		}
		counts[n] = r.wire.queries + r.wire.others
		t.Logf("%d VMs: %d queries and %d other calls, %v", n, r.wire.queries, r.wire.others, took.Round(time.Millisecond))
		if took > inventoryLimit {
			t.Errorf("an inventory of %d VMs takes %v", n, took)
		}
	}
	if counts[3] != counts[300] {
		t.Errorf("an inventory takes %d calls for 3 VMs and %d for 300", counts[3], counts[300])
	}
}
