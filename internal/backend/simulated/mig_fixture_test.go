package simulated_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// migFixture is a simulated Linux host for the conformance suite.
type migFixture struct {
	fleet *others.Fleet
	host  *simulated.Host
}

var _ conformance.MIGWatchers = migFixture{}

func (f migFixture) MIG() backend.MIG { return f.host }

func (f migFixture) StartProcess(t *testing.T, gpuID string, at *gpu.MIGPlacement, name string) int {
	t.Helper()
	pid, err := f.fleet.StartProcess(t.Context(), f.host.Name(), gpuID, at, gpu.Process{Name: name})
	run(t, err)
	return pid
}

func (f migFixture) StopProcess(t *testing.T, pid int) {
	t.Helper()
	run(t, f.fleet.StopProcess(t.Context(), f.host.Name(), pid))
}

func (f migFixture) CreateOutside(t *testing.T, gpuID string, p gpu.MIGPlacement) {
	t.Helper()
	run(t, f.fleet.CreateInstanceOutside(t.Context(), f.host.Name(), gpuID, p))
}

func (f migFixture) DestroyOutside(t *testing.T, gpuID string, p gpu.MIGPlacement) {
	t.Helper()
	run(t, f.fleet.DestroyInstanceOutside(t.Context(), f.host.Name(), gpuID, p))
}

func (f migFixture) HalfMake(t *testing.T, gpuID string, p gpu.MIGPlacement) {
	t.Helper()
	run(t, f.fleet.HalfMakeInstance(t.Context(), f.host.Name(), gpuID, p))
}

func (f migFixture) Divide(t *testing.T, gpuID string, p gpu.MIGPlacement, slices int) {
	t.Helper()
	run(t, f.fleet.HalfMakeInstance(t.Context(), f.host.Name(), gpuID, p))
	run(t, f.fleet.DivideInstance(t.Context(), f.host.Name(), gpuID, p, slices))
}

func (f migFixture) Reboot(t *testing.T) {
	t.Helper()
	run(t, f.fleet.Reboot(t.Context(), f.host.Name()))
}

func (f migFixture) HoldGPUs(t *testing.T, unit string) {
	t.Helper()
	run(t, f.fleet.SetUnit(t.Context(), f.host.Name(), unit, simulated.Unit{HoldsGPUs: true}, true))
}
