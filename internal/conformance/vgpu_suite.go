package conformance

import (
	"context"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// VGPUFixture is a Linux KVM host with NVIDIA's vGPU driver that stands as a scenario
// wants it. Its methods beside VGPU are what others do on the host; they end the test
// when they fail.
type VGPUFixture interface {
	// VGPU is the backend. It is asked for anew for every call, so that a fixture may open
	// it again after a reboot.
	VGPU() backend.VGPU

	// StartProcess has a process of the host compute on a GPU. It returns the process id.
	StartProcess(t *testing.T, gpuID, name string) int

	// Hold has a VM of a name run with a vGPU that is there, and Release shuts it down.
	Hold(t *testing.T, gpuID string, p gpu.VGPUPlace, vm string)
	Release(t *testing.T, gpuID string, p gpu.VGPUPlace)

	// Define has a VM that is off, or saved, name a vGPU that is there, and Undefine ends the VM.
	Define(t *testing.T, gpuID string, p gpu.VGPUPlace, vm string, state gpu.VMState)
	Undefine(t *testing.T, vm string)

	// Take binds the virtual function of a vGPU that is there to another driver, or to none with "".
	Take(t *testing.T, gpuID string, p gpu.VGPUPlace, driver string)

	// CreateOutside is somebody else who makes a vGPU, and RemoveOutside one who removes it.
	CreateOutside(t *testing.T, gpuID string, p gpu.VGPUPlace)
	RemoveOutside(t *testing.T, gpuID string, p gpu.VGPUPlace)

	// Reboot starts the host again.
	Reboot(t *testing.T)
}

// VGPUFactory makes a fixture of a host. Every scenario has its own. The host has no
// vGPUs and no processes yet, its virtual functions are off. Those of the GPUs that are
// mediated have mediated devices on them, those of others vendor-specific VFIO.
type VGPUFactory func(t *testing.T, initial gpu.Host, mediated []string) VGPUFixture

type (
	vgpuScenario = scenarioOn[*vgpuBench]
	vgpuSubject  = subjectOn[*vgpuBench]
	vgpuAction   = actionOn[*vgpuBench]
	vgpuCheck    = checkOn[*vgpuBench]
)

// vgpuBench is a scenario that runs.
type vgpuBench struct {
	VGPUFixture
	record
}

// Inventory reads the host.
func (b *vgpuBench) Inventory(ctx context.Context) (gpu.Host, error) { return b.VGPU().Inventory(ctx) }

func (b *vgpuBench) sane(t *testing.T, h gpu.Host) {
	t.Helper()
	saneVGPU(t, h)
}

// RunVGPU runs all scenarios of vGPUs on the fixtures of a backend, or those about some subjects.
func RunVGPU(t *testing.T, factory VGPUFactory, about ...string) {
	t.Helper()
	subjects := slices.DeleteFunc(vgpuSubjects(), func(s vgpuSubject) bool { return len(about) > 0 && !slices.Contains(about, s.name) })
	runSubjects(t, subjects, standardVGPUHost, func(t *testing.T, h gpu.Host) *vgpuBench {
		t.Helper()
		return &vgpuBench{VGPUFixture: factory(t, h, []string{a40}), record: newRecord(t)}
	})
}

func vgpuSubjects() []vgpuSubject {
	return []vgpuSubject{
		{"inventory", vgpuInventoryScenarios()},
		{"functions", vgpuFunctionScenarios()},
		{"mode", vgpuModeScenarios()},
		{"create", vgpuCreateScenarios()},
		{"remove", vgpuRemoveScenarios()},
		{"definitions", vgpuDefinitionScenarios()},
		{"mig", vgpuMIGScenarios()},
		{"reboot", vgpuRebootScenarios()},
		{"errors", vgpuErrorScenarios()},
		{"concurrency", vgpuConcurrencyScenarios()},
	}
}
