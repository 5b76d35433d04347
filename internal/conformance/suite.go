// Package conformance is the conformance suite of all backends: what a host answers and,
// above all, what it looks like afterwards. The simulated host passes it, and so must
// whatever talks to a real one; a scenario that the two would answer differently does not
// belong here.
//
// A scenario reads as a sentence: given a host, first some history, do one thing,
// then see what the inventory shows. Scenarios lie in one file per subject.
package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Fixture is a host that stands as a scenario wants it.
type Fixture interface {
	HyperV() backend.HyperV
	Store() backend.Store
}

// Guests is a fixture that can say how guest operating systems behave. Scenarios
// that need it are skipped on others.
type Guests interface {
	SetGuest(t *testing.T, vmID string, g Guest)
}

// Guest is the behaviour of a VM's operating system.
type Guest struct {
	Locked        bool          // refuses to shut down unless forced
	NoIntegration bool          // never hears that it shall shut down
	Shutdown      time.Duration // time that a shutdown takes
	StartFails    bool          // the VM does not start
}

// Devices is a fixture that can say how a device answers the platform's checks.
type Devices interface {
	// NeedsForce makes a dismount without force fail.
	NeedsForce(t *testing.T, gpuID string)
}

// Laggards is a fixture in a cluster that learns late what became of a VM.
type Laggards interface {
	// ClusterLag is how long the cluster takes a VM for running that has gone off.
	ClusterLag(t *testing.T, d time.Duration)
}

// Factory makes a fixture of a host. Every scenario has its own.
type Factory func(t *testing.T, initial gpu.Host) Fixture

type (
	scenario    = scenarioOn[*bench]
	subject     = subjectOn[*bench]
	arrangement = arrangementOn[*bench]
	action      = actionOn[*bench]
	check       = checkOn[*bench]
)

// bench is a scenario that runs.
type bench struct {
	Fixture
	record
}

// Inventory reads the host.
func (b *bench) Inventory(ctx context.Context) (gpu.Host, error) { return b.HyperV().Inventory(ctx) }

func (b *bench) sane(t *testing.T, h gpu.Host) {
	t.Helper()
	sane(t, h)
}

// Run runs all scenarios on the fixtures of a backend.
func Run(t *testing.T, factory Factory) {
	t.Helper()
	run(t, factory, subjects())
}

// RunStore runs the scenarios of a store alone, for one that stands apart from any
// backend.
func RunStore(t *testing.T, factory Factory) {
	t.Helper()
	run(t, factory, []subject{{"store", storeScenarios()}})
}

func run(t *testing.T, factory Factory, subjects []subject) {
	t.Helper()
	runSubjects(t, subjects, standardHost, func(t *testing.T, h gpu.Host) *bench {
		t.Helper()
		return &bench{Fixture: factory(t, h), record: newRecord(t)}
	})
}

func subjects() []subject {
	return []subject{
		{"inventory", inventoryScenarios()},
		{"partition count", countScenarios()},
		{"adapters", adapterScenarios()},
		{"quotas", quotaScenarios()},
		{"placement", placementScenarios()},
		{"devices", deviceScenarios()},
		{"pools", poolScenarios()},
		{"settings", settingsScenarios()},
		{"power", powerScenarios()},
		{"store", storeScenarios()},
		{"errors", errorScenarios()},
		{"concurrency", concurrencyScenarios()},
	}
}
