package conformance

import (
	"context"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// MIGFixture is a Linux host with NVIDIA GPUs that stands as a scenario wants it. Its
// methods beside MIG are what others do on the host; they end the test when they fail.
type MIGFixture interface {
	// MIG is the backend. It is asked for anew for every call, so that a fixture may open
	// it again after a reboot.
	MIG() backend.MIG

	// StartProcess has a process compute on a GPU, or in its GPU instance at a place: on
	// that instance's first compute instance. It returns the process id.
	StartProcess(t *testing.T, gpuID string, at *gpu.MIGPlacement, name string) int
	// StopProcess ends a process.
	StopProcess(t *testing.T, pid int)

	// CreateOutside is somebody else who makes a GPU instance with one compute instance
	// that fills it, and DestroyOutside one who removes both.
	CreateOutside(t *testing.T, gpuID string, p gpu.MIGPlacement)
	DestroyOutside(t *testing.T, gpuID string, p gpu.MIGPlacement)
	// HalfMake leaves a GPU instance without a compute instance, as one who was
	// interrupted does.
	HalfMake(t *testing.T, gpuID string, p gpu.MIGPlacement)

	// Divide leaves a GPU instance with one compute instance of a number of slices.
	Divide(t *testing.T, gpuID string, p gpu.MIGPlacement, slices int)

	// Reboot starts the host again.
	Reboot(t *testing.T)
}

// MIGWatchers is a fixture that can say which units keep GPUs open without computing on
// them, as DCGM does. Scenarios that need it are skipped on others.
type MIGWatchers interface {
	// HoldGPUs has a unit that runs keep all GPUs of the host open for as long as it
	// runs. No unit does so unless this is said.
	HoldGPUs(t *testing.T, unit string)
}

// MIGFactory makes a fixture of a host. Every scenario has its own. The host has no
// instances and no processes yet. A GPU may be in MIG mode, or have one pending, from the
// start; the host's units run.
type MIGFactory func(t *testing.T, initial gpu.Host) MIGFixture

type (
	migScenario    = scenarioOn[*migBench]
	migSubject     = subjectOn[*migBench]
	migArrangement = arrangementOn[*migBench]
	migAction      = actionOn[*migBench]
	migCheck       = checkOn[*migBench]
)

// migBench is a scenario that runs.
type migBench struct {
	MIGFixture
	record
	// sharing is nil in the suite of MIG alone.
	sharing SharingFixture
}

// Inventory reads the host.
func (b *migBench) Inventory(ctx context.Context) (gpu.Host, error) { return b.MIG().Inventory(ctx) }

func (b *migBench) sane(t *testing.T, h gpu.Host) {
	t.Helper()
	saneMIG(t, h)
	saneSharing(t, h)
}

// RunMIG runs all scenarios of Multi-Instance GPU on the fixtures of a backend.
func RunMIG(t *testing.T, factory MIGFactory) {
	t.Helper()
	runSubjects(t, migSubjects(), standardMIGHost, func(t *testing.T, h gpu.Host) *migBench {
		t.Helper()
		return &migBench{MIGFixture: factory(t, h), record: newRecord(t)}
	})
}

func migSubjects() []migSubject {
	return []migSubject{
		{"inventory", migInventoryScenarios()},
		{"mode", migModeScenarios()},
		{"create", migCreateScenarios()},
		{"destroy", migDestroyScenarios()},
		{"neighbours", migNeighbourScenarios()},
		{"reboot", migRebootScenarios()},
		{"units", migUnitScenarios()},
		{"errors", migErrorScenarios()},
		{"concurrency", migConcurrencyScenarios()},
	}
}
