package simulated_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestSharingConformance(t *testing.T) {
	conformSharing(t, func(t *testing.T, s gpu.Snapshot) (*others.Fleet, error) {
		t.Helper()
		return others.Create(filepath.Join(t.TempDir(), "fleet.json"), s)
	})
}

func TestSharingConformanceInMemory(t *testing.T) {
	conformSharing(t, func(_ *testing.T, s gpu.Snapshot) (*others.Fleet, error) { return others.InMemory(s) })
}

func conformSharing(t *testing.T, create func(*testing.T, gpu.Snapshot) (*others.Fleet, error)) {
	t.Helper()
	conformance.RunSharing(t, func(t *testing.T, initial gpu.Host) conformance.SharingFixture {
		t.Helper()
		fleet, err := create(t, gpu.Snapshot{Hosts: []gpu.Host{initial}})
		if err != nil {
			t.Fatal(err)
		}
		return sharingFixture{migFixture{fleet: fleet, host: hostOf(t, fleet, initial.Name)}}
	})
}

// sharingFixture is a simulated Linux host for the conformance suite.
type sharingFixture struct{ migFixture }

var _ conformance.Metered = sharingFixture{}

func (f sharingFixture) Sharing() backend.Sharing { return f.host }

func (f sharingFixture) Meter() backend.Meter { return f.host }

func (f sharingFixture) StartClient(t *testing.T, daemon, name string) int {
	t.Helper()
	pid, err := f.fleet.StartClient(t.Context(), f.host.Name(), daemon, gpu.Process{Name: name})
	run(t, err)
	return pid
}

func (f sharingFixture) StartInShare(t *testing.T, share, name string) int {
	t.Helper()
	pid, err := f.fleet.StartInShare(t.Context(), f.host.Name(), share, gpu.Process{Name: name})
	run(t, err)
	return pid
}

func (f sharingFixture) KillDaemon(t *testing.T, daemon string) {
	t.Helper()
	run(t, f.fleet.KillDaemon(t.Context(), f.host.Name(), daemon))
}

func (f sharingFixture) KillControl(t *testing.T, daemon string) {
	t.Helper()
	run(t, f.fleet.KillControl(t.Context(), f.host.Name(), daemon))
}

func (f sharingFixture) LeaveSockets(t *testing.T, daemon string) {
	t.Helper()
	run(t, f.fleet.LeaveSockets(t.Context(), f.host.Name(), daemon))
}

func (f sharingFixture) FailStarts(t *testing.T, fail bool) {
	t.Helper()
	run(t, f.fleet.EditSimulation(t.Context(), f.host.Name(), func(s *simulated.Simulation) {
		if s.MPS.StartFails = ""; fail {
			s.MPS.StartFails = "exit status 1"
		}
	}))
}

func (f sharingFixture) StartDaemonOutside(t *testing.T, gpuIDs ...string) int {
	t.Helper()
	pid, err := f.fleet.StartDaemonOutside(t.Context(), f.host.Name(), gpuIDs...)
	run(t, err)
	return pid
}

func (f sharingFixture) SetComputeModeOutside(t *testing.T, gpuID string, mode gpu.ComputeMode) {
	t.Helper()
	run(t, f.fleet.SetComputeModeOutside(t.Context(), f.host.Name(), gpuID, mode))
}

func (f sharingFixture) WriteForeignSpec(t *testing.T, share string) {
	t.Helper()
	run(t, f.fleet.WriteForeignSpec(t.Context(), f.host.Name(), share))
}

func (f sharingFixture) HasForeignSpec(t *testing.T, share string) bool {
	t.Helper()
	var found bool
	run(t, f.fleet.EditSimulation(t.Context(), f.host.Name(), func(s *simulated.Simulation) {
		found = slices.Contains(s.ForeignSpecs, share)
	}))
	return found
}

func (f sharingFixture) SetLoad(t *testing.T, gpuID string, at *gpu.MIGPlacement, percent float64, memory gpu.Bytes) {
	t.Helper()
	load := simulated.Load{GPU: gpuID, Instance: at, MemoryUsed: memory}
	if load.Busy = percent; at != nil {
		load.Busy, load.SMActivity = 0, percent
	}
	run(t, f.fleet.SetLoad(t.Context(), f.host.Name(), load))
}
