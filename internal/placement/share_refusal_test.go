package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Devices of one model that lack the same are counted; those of another, and instances beside whole GPUs, are told apart.
func TestLikeDevicesAreCounted(t *testing.T) {
	t.Parallel()
	const gib = 1024 * gpu.MiB
	host := &gpu.Host{Name: "ml01", Platform: gpu.Linux}
	for i := range 8 {
		host.GPUs = append(host.GPUs, gpu.GPU{ID: fmt.Sprintf("GPU-%d", i), Model: "NVIDIA H100 80GB HBM3", VRAM: 80 * gib})
	}
	for i := range 2 {
		host.GPUs = append(host.GPUs, gpu.GPU{ID: fmt.Sprintf("GPU-8%d", i), Model: "NVIDIA L4", VRAM: 24 * gib})
	}
	split := gpu.GPU{ID: "GPU-9", Model: "NVIDIA H100 80GB HBM3", VRAM: 80 * gib, MIG: &gpu.MIG{Enabled: true, Pending: true}}
	for i := range 3 {
		split.MIG.Instances = append(split.MIG.Instances, gpu.GPUInstance{
			ID: i, Profile: "1g.10gb", Start: i, Size: 1, Memory: 10 * gib, Compute: []gpu.ComputeInstance{{UUID: fmt.Sprint("MIG-", i), Slices: 1}},
		})
	}
	host.GPUs = append(host.GPUs, split)
	_, err := placement.PlaceShare(host, "ml01", &gpu.Share{Name: "s", Count: 1, MemoryRequest: 200 * gib, MemoryLimit: 200 * gib}, "")
	if err == nil {
		t.Fatal("200 GiB fit")
	}
	for _, want := range []string{
		"each of 8 GPUs (NVIDIA H100 80GB HBM3) ", "GPU GPU-80 (NVIDIA L4) ", "GPU GPU-81 (NVIDIA L4) ",
		"each of 3 GPU instances (NVIDIA H100 80GB HBM3) ",
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("%q is not there once:\n%v", want, err)
		}
	}
}
