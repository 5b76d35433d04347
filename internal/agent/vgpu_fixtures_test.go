package agent_test

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// The GPUs of the Linux KVM host: two whose vGPUs lie on virtual functions, and one whose
// vGPUs are mediated devices on the GPU itself.
const (
	ada1   = "GPU-ada00000-0000-4000-8000-000000000001"
	ada2   = "GPU-ada00000-0000-4000-8000-000000000002"
	turing = "GPU-75000000-0000-4000-8000-000000000000"
	// hybrid has MIG as well.
	hybrid = "GPU-90000000-0000-4000-8000-000000000009"
)

// Types of vGPU.
const (
	q12 = "L40S-12Q"
	q24 = "L40S-24Q"
	t4q = "T4-4Q"
	// MIG-backed, and one beside them that is not.
	c10 = "H100-1-10C"
	c40 = "H100-3-40C"
	c20 = "H100-20C"
)

// onKVM makes the test host one of Linux with NVIDIA's vGPU driver.
func onKVM(h *gpu.Host) {
	*h = gpu.Host{
		Name: host, Platform: gpu.Linux, OS: gpu.OS{Name: "Ubuntu 24.04.3 LTS", Version: "24.04"},
		GPUs: []gpu.GPU{
			vgpuGPU(ada1, "NVIDIA L40S", "26B9", 32, gpu.VGPUType{Name: q12, FrameBuffer: 12 * gib, Max: 4},
				gpu.VGPUType{Name: q24, FrameBuffer: 24 * gib, Max: 2}),
			vgpuGPU(ada2, "NVIDIA L40S", "26B9", 32, gpu.VGPUType{Name: q12, FrameBuffer: 12 * gib, Max: 4},
				gpu.VGPUType{Name: q24, FrameBuffer: 24 * gib, Max: 2}),
			vgpuGPU(turing, "Tesla T4", "1EB8", 0, gpu.VGPUType{Name: t4q, FrameBuffer: 4 * gib, Max: 4}),
			vgpuGPU(hybrid, "NVIDIA H100 80GB HBM3", "2330", 16,
				gpu.VGPUType{Name: c20, FrameBuffer: 20 * gib, Max: 4}, gpu.VGPUType{Name: c10, FrameBuffer: 10 * gib, Max: 7, MIGProfile: g1},
				gpu.VGPUType{Name: c40, FrameBuffer: 40 * gib, Max: 2, MIGProfile: g3}),
		},
		Units: []string{dcgm, trainer},
	}
	for i := range h.GPUs { // by which VMs name their functions
		h.GPUs[i].Address = fmt.Sprintf("0000:%02x:00.0", 0x41+i)
	}
}

func vgpuGPU(id, model, device string, functions int, types ...gpu.VGPUType) gpu.GPU {
	g := nvidiaGPU(id, model, device)
	g.VGPU = &gpu.VGPU{Functions: functions, HeterogeneousSupported: functions > 0, Types: types}
	return g
}

// vgpus is a config of numbers of vGPUs that may stop DCGM for them.
func vgpus(id string, types map[string]int, gpus ...string) *gpu.PartitionConfig {
	return &gpu.PartitionConfig{
		ID: id, Kind: gpu.KindVGPU, Name: id, VGPU: &gpu.VGPULayout{Types: types}, GPUs: map[string][]string{host: gpus, "elsewhere": {"X"}},
		QuiesceUnits: []string{"nvidia-dcgm"}, Restore: true,
	}
}

func vgpuAt(typ string, function int) gpu.VGPUPlace {
	return gpu.VGPUPlace{Type: typ, Function: function}
}

// vgpuScenarios cover every step on vGPUs in every order that the planner makes.
func vgpuScenarios() []scenario {
	two, mixed := vgpus("vdi", map[string]int{q12: 2}, ada1), vgpus("vdi", map[string]int{q12: 1, q24: 1}, ada1)
	backed, fewer, sliced := vgpus("mig", map[string]int{c10: 3, c40: 1}, hybrid), vgpus("mig", map[string]int{c10: 1}, hybrid),
		vgpus("mig", map[string]int{c20: 2}, hybrid)
	itself := vgpus("old", map[string]int{t4q: 2}, turing)
	return []scenario{
		{name: "make vGPUs of two sizes", edit: onKVM, change: layout("x", "vgpu", nil, mixed)},
		{
			name: "mix sizes of vGPUs", edit: onKVM, before: []agent.Change{layout("c0", "vgpu", nil, two)},
			change: layout("x", "vgpu", two, mixed),
		},
		{
			name: "a GPU leaves a vGPU config and another joins", edit: onKVM,
			before: []agent.Change{layout("c0", "vgpu", nil, two)},
			change: layout("x", "vgpu", two, vgpus("vdi", map[string]int{q12: 2}, ada2)),
		},
		{
			name: "change vGPUs on the GPU itself", edit: onKVM, before: []agent.Change{layout("c0", "vgpu", nil, itself)},
			change: layout("x", "vgpu", itself, vgpus("old", map[string]int{t4q: 3}, turing)),
		},
		{name: "make MIG-backed vGPUs", edit: onKVM, change: layout("x", "vgpu", nil, backed)},
		{
			name: "take MIG-backed vGPUs away", edit: onKVM, before: []agent.Change{layout("c0", "vgpu", nil, backed)},
			change: layout("x", "vgpu", backed, fewer),
		},
		{
			name: "MIG-backed vGPUs make way for others", edit: onKVM, before: []agent.Change{layout("c0", "vgpu", nil, backed)},
			change: layout("x", "vgpu", backed, sliced),
		},
		{
			name: "vGPUs make way for MIG-backed ones", edit: onKVM, before: []agent.Change{layout("c0", "vgpu", nil, sliced)},
			change: layout("x", "vgpu", sliced, backed),
		},
		{
			name: "delete a config of MIG-backed vGPUs", edit: onKVM, before: []agent.Change{layout("c0", "vgpu", nil, backed)},
			change: layout("x", "vgpu", backed, nil),
		},
		{
			name: "delete a vGPU config", edit: onKVM, before: []agent.Change{layout("c0", "vgpu", nil, mixed)},
			change: layout("x", "vgpu", mixed, nil),
		},
	}
}
