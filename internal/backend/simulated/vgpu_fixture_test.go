package simulated_test

import (
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestVGPUConformance(t *testing.T) {
	conformVGPU(t, func(t *testing.T, s gpu.Snapshot) (*others.Fleet, error) {
		t.Helper()
		return others.Create(filepath.Join(t.TempDir(), "fleet.json"), s)
	})
}

func TestVGPUConformanceInMemory(t *testing.T) {
	conformVGPU(t, func(_ *testing.T, s gpu.Snapshot) (*others.Fleet, error) { return others.InMemory(s) })
}

func conformVGPU(t *testing.T, create func(*testing.T, gpu.Snapshot) (*others.Fleet, error)) {
	t.Helper()
	conformance.RunVGPU(t, func(t *testing.T, initial gpu.Host, mediated []string) conformance.VGPUFixture {
		t.Helper()
		fleet, err := create(t, gpu.Snapshot{Hosts: []gpu.Host{initial}})
		if err != nil {
			t.Fatal(err)
		}
		run(t, fleet.EditSimulation(t.Context(), initial.Name, func(s *simulated.Simulation) {
			s.GPUs = map[string]simulated.Hidden{}
			for _, id := range mediated {
				s.GPUs[id] = simulated.Hidden{Mediated: true}
			}
		}))
		return vgpuFixture{fleet: fleet, host: hostOf(t, fleet, initial.Name)}
	})
}

// vgpuFixture is a simulated Linux KVM host for the conformance suite.
type vgpuFixture struct {
	fleet *others.Fleet
	host  *simulated.Host
}

func (f vgpuFixture) VGPU() backend.VGPU { return f.host }

func (f vgpuFixture) StartProcess(t *testing.T, gpuID, name string) int {
	t.Helper()
	return migFixture(f).StartProcess(t, gpuID, nil, name)
}

func (f vgpuFixture) Hold(t *testing.T, gpuID string, p gpu.VGPUPlace, vm string) {
	t.Helper()
	run(t, f.fleet.HoldVGPU(t.Context(), f.host.Name(), gpuID, p, vm))
}

func (f vgpuFixture) Release(t *testing.T, gpuID string, p gpu.VGPUPlace) {
	t.Helper()
	run(t, f.fleet.ReleaseVGPU(t.Context(), f.host.Name(), gpuID, p))
}

func (f vgpuFixture) Define(t *testing.T, gpuID string, p gpu.VGPUPlace, vm string, state gpu.VMState) {
	t.Helper()
	run(t, f.fleet.DefineVM(t.Context(), f.host.Name(), gpuID, p, vm, state))
}

func (f vgpuFixture) Take(t *testing.T, gpuID string, p gpu.VGPUPlace, driver string) {
	t.Helper()
	run(t, f.fleet.TakeFunction(t.Context(), f.host.Name(), gpuID, p, driver))
}

func (f vgpuFixture) Undefine(t *testing.T, vm string) {
	t.Helper()
	run(t, f.fleet.UndefineVM(t.Context(), f.host.Name(), vm))
}

func (f vgpuFixture) CreateOutside(t *testing.T, gpuID string, p gpu.VGPUPlace) {
	t.Helper()
	run(t, f.fleet.CreateVGPUOutside(t.Context(), f.host.Name(), gpuID, p))
}

func (f vgpuFixture) RemoveOutside(t *testing.T, gpuID string, p gpu.VGPUPlace) {
	t.Helper()
	run(t, f.fleet.RemoveVGPUOutside(t.Context(), f.host.Name(), gpuID, p))
}

func (f vgpuFixture) Reboot(t *testing.T) {
	t.Helper()
	run(t, f.fleet.Reboot(t.Context(), f.host.Name()))
}
