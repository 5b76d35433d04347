package simulated_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	vgpuCard = "GPU-8871d1c9-d175-4272-8cb5-7b8c9daebf08"
	gib      = 1024 * gpu.MiB
)

// vgpuFleet is a KVM host with an H100, of which the vGPU driver offers both kinds of types.
func vgpuFleet(t *testing.T) (*others.Fleet, *simulated.Host) {
	t.Helper()
	profile := gpu.MIGProfile{ID: 19, Name: "1g.10gb", Slices: 1, Memory: 9856 * gpu.MiB, Max: 7, Size: 1, Starts: []int{0, 1}}
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{{
		Name: "kvm01", Platform: gpu.Linux,
		GPUs: []gpu.GPU{{
			ID: vgpuCard, Model: "NVIDIA H100", Address: "0000:41:00.0", VRAM: 80 * gib,
			MIG: &gpu.MIG{Profiles: []gpu.MIGProfile{profile}},
			VGPU: &gpu.VGPU{Functions: 8, Types: []gpu.VGPUType{
				{Name: "H100-40C", FrameBuffer: 40 * gib, Max: 2},
				{Name: "H100-1-10C", FrameBuffer: 10 * gib, Max: 7, MIGProfile: "1g.10gb"},
			}},
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return fleet, hostOf(t, fleet, "kvm01")
}

func TestVGPUFaults(t *testing.T) {
	fleet, h := vgpuFleet(t)
	run(t,
		h.SetVirtualFunctions(t.Context(), vgpuCard, true),
		fleet.InjectFault(t.Context(), "kvm01", simulated.Fault{
			Op: simulated.OpCreateVGPU, Object: "H100-40C@1", Times: 1, Moment: simulated.AfterEffect,
		}),
		h.CreateVGPU(t.Context(), vgpuCard, gpu.VGPUPlace{Type: "H100-40C"}),
	)
	wantCode(t, h.CreateVGPU(t.Context(), vgpuCard, gpu.VGPUPlace{Type: "H100-40C", Function: 1}), backend.Failed)
	if got := inventory(t, fleet, "kvm01").GPUs[0].VGPU.Instances; len(got) != 2 || got[1].Function != 1 || got[1].Address != "0000:41:00.5" {
		t.Errorf("the vGPU whose answer was lost is not there: %+v", got)
	}
}

// A MIG-backed type lives in a GPU instance of its own, a time-sliced one outside of MIG
// mode, which changes only while the functions are off.
func TestVGPUInMIG(t *testing.T) {
	_, h := vgpuFleet(t)
	sliced, backed := gpu.VGPUPlace{Type: "H100-40C"}, gpu.VGPUPlace{Type: "H100-1-10C", Function: 1}
	run(t, h.SetVirtualFunctions(t.Context(), vgpuCard, true))
	wantCode(t, h.CreateVGPU(t.Context(), vgpuCard, backed), backend.InvalidState)
	wantCode(t, h.SetMIGMode(t.Context(), vgpuCard, true, false), backend.InUse)
	run(t,
		h.SetVirtualFunctions(t.Context(), vgpuCard, false),
		h.SetMIGMode(t.Context(), vgpuCard, true, false),
		h.CreateInstance(t.Context(), vgpuCard, gpu.MIGPlacement{Profile: "1g.10gb"}),
		h.SetVirtualFunctions(t.Context(), vgpuCard, true),
	)
	wantCode(t, h.CreateVGPU(t.Context(), vgpuCard, sliced), backend.InvalidState)
	wantCode(t, h.CreateVGPU(t.Context(), vgpuCard, backed), backend.Insufficient) // -e took the instance
	run(t,
		h.CreateInstance(t.Context(), vgpuCard, gpu.MIGPlacement{Profile: "1g.10gb"}),
		h.CreateVGPU(t.Context(), vgpuCard, backed),
	)
}

func TestVGPUNeedsLinux(t *testing.T) {
	fleet := newFleet(t, 0)
	wantCode(t, hostOf(t, fleet, "hv01").SetVirtualFunctions(t.Context(), gpu1, true), backend.NotSupported)
}
