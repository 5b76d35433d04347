package simulated_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func TestConformance(t *testing.T) {
	conform(t, func(t *testing.T, s gpu.Snapshot) (*others.Fleet, error) {
		t.Helper()
		return others.Create(filepath.Join(t.TempDir(), "fleet.json"), s)
	})
}

func TestConformanceInMemory(t *testing.T) {
	conform(t, func(_ *testing.T, s gpu.Snapshot) (*others.Fleet, error) { return others.InMemory(s) })
}

func conform(t *testing.T, create func(*testing.T, gpu.Snapshot) (*others.Fleet, error)) {
	t.Helper()
	conformance.Run(t, func(t *testing.T, initial gpu.Host) conformance.Fixture {
		fleet, err := create(t, gpu.Snapshot{Hosts: []gpu.Host{initial}})
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

func TestClusterConformance(t *testing.T) {
	conformance.RunCluster(t, func(t *testing.T, hosts gpu.Snapshot) (conformance.Fixture, func(*testing.T, string) gpu.Host) {
		fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), hosts)
		if err != nil {
			t.Fatal(err)
		}
		return fixture{fleet: fleet, host: hostOf(t, fleet, "hv01")}, func(t *testing.T, name string) gpu.Host {
			t.Helper()
			return inventory(t, fleet, name)
		}
	})
}

func TestMIGConformance(t *testing.T) {
	conformance.RunMIG(t, func(t *testing.T, initial gpu.Host) conformance.MIGFixture {
		t.Helper()
		fleet, err := others.Create(filepath.Join(t.TempDir(), "fleet.json"), gpu.Snapshot{Hosts: []gpu.Host{initial}})
		if err != nil {
			t.Fatal(err)
		}
		return migFixture{fleet: fleet, host: hostOf(t, fleet, initial.Name)}
	})
}

func TestMIGConformanceInMemory(t *testing.T) {
	conformance.RunMIG(t, func(t *testing.T, initial gpu.Host) conformance.MIGFixture {
		t.Helper()
		fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{initial}})
		if err != nil {
			t.Fatal(err)
		}
		return migFixture{fleet: fleet, host: hostOf(t, fleet, initial.Name)}
	})
}

// fixture is a simulated host for the conformance suite.
type fixture struct {
	fleet *others.Fleet
	host  *simulated.Host
}

var (
	_ conformance.Guests   = fixture{}
	_ conformance.Devices  = fixture{}
	_ conformance.Laggards = fixture{}
)

func (f fixture) HyperV() backend.HyperV { return f.host }

func (f fixture) ClusterLag(t *testing.T, d time.Duration) {
	t.Helper()
	err := f.fleet.EditSimulation(t.Context(), f.host.Name(), func(s *simulated.Simulation) { s.ClusterLagMS = int(d.Milliseconds()) })
	if err != nil {
		t.Fatal(err)
	}
}

func (f fixture) Store() backend.Store { return f.host }

func (f fixture) SetGuest(t *testing.T, vmID string, g conformance.Guest) {
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
