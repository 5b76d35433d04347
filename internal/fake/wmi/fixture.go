package fakewmi

import (
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/simulated"
	"github.com/gpufleet/terraform-provider-gpu/internal/conformance"
	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Fixture is a machine with the production backend on it, for the conformance suite
// and for tests of the backend's own. The records are kept in the fleet.
type Fixture struct {
	Fleet   *others.Fleet
	Host    *simulated.Host
	Machine *Machine
	Backend *hyperv.Backend
}

var (
	_ conformance.Guests   = (*Fixture)(nil)
	_ conformance.Devices  = (*Fixture)(nil)
	_ conformance.Laggards = (*Fixture)(nil)
)

// NewFixture makes a machine of a host and connects the backend to it: through the
// machine's own door, or through COM.
func NewFixture(t *testing.T, initial gpu.Host, connect func(*testing.T, *Machine) hyperv.WMI) *Fixture {
	t.Helper()
	fleet, err := others.InMemory(gpu.Snapshot{Hosts: []gpu.Host{initial}})
	if err != nil {
		t.Fatal(err)
	}
	return FixtureOn(t, fleet, initial.Name, connect)
}

// FixtureOn is NewFixture for a host of a fleet that is there.
func FixtureOn(t *testing.T, fleet *others.Fleet, name string, connect func(*testing.T, *Machine) hyperv.WMI) *Fixture {
	t.Helper()
	host, err := fleet.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := New(fleet, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(machine.Wait)
	wmi := connect(t, machine)
	t.Cleanup(func() {
		if err := wmi.Close(); err != nil {
			t.Errorf("close the connection: %v", err)
		}
	})
	return &Fixture{Fleet: fleet, Host: host, Machine: machine, Backend: hyperv.New(wmi)}
}

// Directly connects through the machine's own door.
func Directly(_ *testing.T, m *Machine) hyperv.WMI { return m.WMI() }

// HyperV implements conformance.Fixture.
func (f *Fixture) HyperV() backend.HyperV { return f.Backend }

// Store implements conformance.Fixture.
func (f *Fixture) Store() backend.Store { return f.Host }

// ClusterLag implements conformance.Laggards.
func (f *Fixture) ClusterLag(t *testing.T, d time.Duration) {
	t.Helper()
	f.Machine.ClusterLag(d)
	if _, err := f.Backend.Inventory(t.Context()); err != nil { // the cluster learns what is so now
		t.Fatal(err)
	}
}

// SetGuest implements conformance.Guests.
func (f *Fixture) SetGuest(t *testing.T, vmID string, g conformance.Guest) {
	t.Helper()
	guest := simulated.Guest{Locked: g.Locked, NoIntegration: g.NoIntegration, ShutdownMS: int(g.Shutdown.Milliseconds())}
	if g.StartFails {
		guest.StartFails = simulated.StartFailsAlways
	}
	if err := f.Fleet.SetGuest(t.Context(), vmID, guest); err != nil {
		t.Fatal(err)
	}
}

// NeedsForce implements conformance.Devices.
func (f *Fixture) NeedsForce(t *testing.T, gpuID string) {
	t.Helper()
	err := f.Fleet.EditSimulation(t.Context(), f.Host.Name(), func(s *simulated.Simulation) {
		s.GPUs = map[string]simulated.Hidden{gpuID: {NeedsForce: true}}
	})
	if err != nil {
		t.Fatal(err)
	}
}
