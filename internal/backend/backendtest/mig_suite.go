package backendtest

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

// RunMIG runs all scenarios of Multi-Instance GPU on the fixtures of a backend.
func RunMIG(t *testing.T, factory MIGFactory) {
	t.Helper()
	count := 0
	for _, subject := range migSubjects() {
		t.Run(subject.name, func(t *testing.T) {
			for _, s := range subject.scenarios {
				count++
				t.Run(s.name, func(t *testing.T) { s.run(t, factory) })
			}
		})
	}
	t.Logf("conformance: %d scenarios", count)
}

type migSubject struct {
	name      string
	scenarios []migScenario
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

// migScenario is one sentence about a backend, see scenario.
type migScenario struct {
	name string
	// given changes the standard host before it exists.
	given []given
	// with arranges what an inventory does not show.
	with []migArrangement
	// first must succeed; it is the history.
	first []migAction
	// do is what is tried.
	do migAction
	// again is true when the same call once more must succeed and change nothing.
	again bool
	// fails is how it is refused; empty when it must succeed. A refusal leaves the host
	// as it was.
	fails backend.Code
	// saying are words that a refusal must contain, and naming are processes of which it
	// must contain the name and the id.
	saying, naming []string
	// then is what the host looks like.
	then []migCheck
}

type (
	migArrangement func(*testing.T, MIGFixture)
	migAction      func(context.Context, *migBench) error
	migCheck       func(*testing.T, *migBench)
)

// migBench is a scenario that runs.
type migBench struct {
	MIGFixture
	t             *testing.T
	pids          map[string]int
	before, after gpu.Host
}

func (s migScenario) run(t *testing.T, factory MIGFactory) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	host := standardMIGHost()
	for _, g := range s.given {
		g(&host)
	}
	b := &migBench{MIGFixture: factory(t, host), t: t, pids: map[string]int{}}
	for _, arrange := range s.with {
		arrange(t, b.MIGFixture)
	}
	for i, step := range s.first {
		if err := step(ctx, b); err != nil {
			t.Fatalf("history, step %d: %v", i+1, err)
		}
	}
	b.before = b.look(ctx)
	err := s.do(ctx, b)
	b.after = b.look(ctx)
	s.judge(t, b, err)

	if s.again {
		if err := s.do(ctx, b); err != nil {
			t.Errorf("the second time: %v", err)
		}
		sameHost(t, "the second time changed the host", b.after, b.look(ctx))
	}
	for _, then := range s.then {
		then(t, b)
	}
	saneMIG(t, b.after)
}

func (s migScenario) judge(t *testing.T, b *migBench, err error) {
	t.Helper()
	if s.fails == "" {
		if err != nil {
			t.Fatalf("must succeed: %v", err)
		}
		return
	}
	wantRefusal(t, err, s.fails, append(b.named(s.naming), s.saying...))
	sameHost(t, "a refused call changed the host", b.before, b.after)
}

// look reads the host, which must work in every scenario.
func (b *migBench) look(ctx context.Context) gpu.Host {
	b.t.Helper()
	host, err := b.MIG().Inventory(ctx)
	if err != nil {
		b.t.Fatalf("inventory: %v", err)
	}
	return host
}
