package simulated_test

import (
	"path/filepath"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/backendtest"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T, initial gpu.Host) backendtest.Fixture {
		fleet, err := simulated.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{initial}})
		if err != nil {
			t.Fatal(err)
		}
		host, err := fleet.Host(initial.Name)
		if err != nil {
			t.Fatal(err)
		}
		return fixture{fleet: fleet, host: host}
	})
}

// fixture is a simulated host for the conformance suite.
type fixture struct {
	fleet *simulated.Fleet
	host  *simulated.Host
}

var (
	_ backendtest.Guests  = fixture{}
	_ backendtest.Devices = fixture{}
)

func (f fixture) HyperV() backend.HyperV { return f.host }

func (f fixture) Store() backend.Store { return f.host }

func (f fixture) SetGuest(t *testing.T, vmID string, g backendtest.Guest) {
	t.Helper()
	guest := simulated.Guest{Locked: g.Locked, NoIntegration: g.NoIntegration, ShutdownMS: int(g.Shutdown.Milliseconds())}
	if g.StartFails {
		guest.StartFails = simulated.StartFailsAlways
	}
	if err := f.fleet.SetGuest(t.Context(), vmID, guest); err != nil {
		t.Fatal(err)
	}
}

func (f fixture) NeedsForce(t *testing.T, gpuID string) {
	t.Helper()
	err := f.fleet.EditSimulation(t.Context(), f.host.Name(), func(s *simulated.Simulation) {
		s.GPUs = map[string]simulated.Hidden{gpuID: {NeedsForce: true}}
	})
	if err != nil {
		t.Fatal(err)
	}
}
