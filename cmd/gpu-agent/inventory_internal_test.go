package main

import (
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Each process is on a line of its own, and one that is too long for the column goes on below.
func TestTheUsersOfAGPUAreToldApart(t *testing.T) {
	var out strings.Builder
	show(&out, &gpu.Host{Name: "gpu01", Platform: gpu.Linux, GPUs: []gpu.GPU{{ID: "GPU-1", Processes: []gpu.Process{
		{PID: 4525, Name: "gpu-client", Share: "notebook"}, {PID: 4533, Name: "nvidia-cuda-mps-server"}, {PID: 4600, Name: "x"},
	}}}})
	var begins []string
	for line := range strings.Lines(out.String()) {
		if _, who, found := strings.Cut(line, "  4"); found {
			begins = append(begins, "4"+strings.TrimSpace(who))
		}
	}
	if got := strings.Join(begins, "|"); got != "4525 gpu-client, share|4533 nvidia-cuda-mps-server|4600 x" ||
		!strings.Contains(out.String(), " notebook ") {
		t.Errorf("the lines that begin with a process are %q:\n%s", got, out.String())
	}
}

// A vGPU of a VM is told as one, and not as a whole GPU.
func TestAVGPUIsNoWholeGPU(t *testing.T) {
	t.Parallel()
	vm := gpu.VM{ID: "1", Devices: []gpu.DeviceAssignment{{GPU: "GPU-1", VGPU: &gpu.VGPUPlace{Type: "L40S-12Q"}}, {GPU: "GPU-2"}}}
	got := holdings(&gpu.Host{VMs: []gpu.VM{vm}}, &vm)
	if len(got) != 2 || got[0] != [2]string{"vGPU L40S-12Q", "GPU-1"} || got[1] != [2]string{"whole GPU", "GPU-2"} {
		t.Errorf("it has %v", got)
	}
}
