package connect_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	host     = "hv01"
	theGPU   = "PCIROOT(10)#PCI(0000)#PCI(0000)"
	oldCount = 4
	newCount = 8
)

// newHost makes a simulated host with one idle GPU in a folder. Changing the count of
// its partitions takes so many milliseconds.
func newHost(t *testing.T, stepMillis int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	each := func(total uint64) gpu.Capacity {
		return gpu.Capacity{Total: total, Available: total, Min: total / oldCount, Max: total / oldCount, Optimal: total / oldCount}
	}
	h := gpu.Host{
		Name: host, Platform: gpu.HyperV, OS: gpu.OS{Name: "Windows Server 2025 Datacenter", Version: "24H2", Build: 26100},
		GPUs: []gpu.GPU{{
			ID: theGPU, InstancePath: `PCI\VEN_10DE&DEV_25B6&SUBSYS_157E10DE&REV_A1\10`, Model: "NVIDIA A2", Vendor: "NVIDIA",
			PCI: gpu.PCIID{Vendor: "10DE", Device: "25B6", Subsystem: "157E10DE"}, VRAM: 16 << 30,
			Driver: gpu.Driver{Version: "573.39"}, Status: gpu.Partitioned, MMIO: gpu.MMIO{Low: 16 << 20, High: 16 << 30},
			Partitionable: &gpu.Partitionable{
				Name: `\\?\PCI#VEN_10DE&DEV_25B6#10`, ValidCounts: []int{1, 2, 4, 8, 16}, Count: oldCount,
				VRAM: each(16 << 30), Encode: each(32), Decode: each(64), Compute: each(4096),
			},
		}},
	}
	fleet, err := others.Create(filepath.Join(dir, "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{h}})
	if err != nil {
		t.Fatal(err)
	}
	err = fleet.EditSimulation(context.Background(), host, func(s *simulated.Simulation) {
		s.Latency = map[simulated.Op]int{simulated.OpSetPartitionCount: stepMillis}
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
