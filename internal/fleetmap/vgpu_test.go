package fleetmap_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleetmap"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A VM that has a vGPU waits for no whole GPU, and is not without one.
func TestAVMWithAVGPUDoesNotWait(t *testing.T) {
	t.Parallel()
	m := fleetmap.New(gpu.Snapshot{Format: gpu.SnapshotFormat, Hosts: []gpu.Host{{
		Name: "kvm01", Platform: gpu.Linux, GPUs: []gpu.GPU{{ID: "GPU-1", Model: "NVIDIA L40S", VRAM: 48 << 30}},
		VMs: []gpu.VM{{
			ID: "1", Name: "desk-01", State: gpu.VMRunning,
			Devices: []gpu.DeviceAssignment{{ID: "ua-gpu-1", GPU: "GPU-1", VGPU: &gpu.VGPUPlace{Type: "L40S-12Q"}}},
		}},
	}}})
	if h := m.Hosts[0]; len(h.Waiting) > 0 || len(h.Others) > 0 {
		t.Errorf("waiting are %v, without a GPU %v", h.Waiting, h.Others)
	}
}
