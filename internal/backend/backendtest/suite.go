// Package backendtest is the conformance suite of all Hyper-V backends: what a host
// answers and, above all, what it looks like afterwards. The simulated host passes
// it, and so must whatever talks to a real one; a scenario that the two would answer
// differently does not belong here.
//
// A scenario reads as a sentence: given a host, first some history, do one thing,
// then see what the inventory shows. Scenarios lie in one file per subject.
package backendtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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

// Factory makes a fixture of a host. Every scenario has its own.
type Factory func(t *testing.T, initial gpu.Host) Fixture

// limit bounds each scenario.
const limit = 30 * time.Second

// scenario is one sentence about a backend.
type scenario struct {
	name string
	// given changes the standard host before it exists.
	given []given
	// with arranges what an inventory does not show.
	with []arrangement
	// first must succeed; it is the history.
	first []action
	// do is what is tried.
	do action
	// again is true when the same call once more must succeed and change nothing.
	again bool
	// fails is how it is refused; empty when it must succeed. A refusal leaves the
	// host as it was, unless leaves is true.
	fails  backend.Code
	leaves bool
	// saying are words that a refusal must contain, so that a person knows what to do.
	saying []string
	// then is what the host looks like.
	then []check
}

type (
	given       func(*gpu.Host)
	arrangement func(*testing.T, Fixture)
	action      func(context.Context, *bench) error
	check       func(*testing.T, *bench)
)

// bench is a scenario that runs.
type bench struct {
	Fixture
	before, after gpu.Host
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
	count := 0
	for _, subject := range subjects {
		t.Run(subject.name, func(t *testing.T) {
			for _, s := range subject.scenarios {
				count++
				t.Run(s.name, func(t *testing.T) { s.run(t, factory) })
			}
		})
	}
	t.Logf("conformance: %d scenarios", count)
}

type subject struct {
	name      string
	scenarios []scenario
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

func (s scenario) run(t *testing.T, factory Factory) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	host := standardHost()
	for _, g := range s.given {
		g(&host)
	}
	b := &bench{Fixture: factory(t, host)}
	for _, arrange := range s.with {
		arrange(t, b.Fixture)
	}
	for i, step := range s.first {
		if err := step(ctx, b); err != nil {
			t.Fatalf("history, step %d: %v", i+1, err)
		}
	}
	b.before = b.look(ctx, t)
	err := s.do(ctx, b)
	b.after = b.look(ctx, t)
	s.judge(t, b, err)

	if s.again {
		if err := s.do(ctx, b); err != nil {
			t.Errorf("the second time: %v", err)
		}
		sameHost(t, "the second time changed the host", b.after, b.look(ctx, t))
	}
	for _, then := range s.then {
		then(t, b)
	}
	sane(t, b.after)
}

// judge compares the answer with the one that the scenario expects.
func (s scenario) judge(t *testing.T, b *bench, err error) {
	t.Helper()
	if s.fails == "" {
		if err != nil {
			t.Fatalf("must succeed: %v", err)
		}
		return
	}
	wantRefusal(t, err, s.fails, s.saying)
	if !s.leaves {
		sameHost(t, "a refused call changed the host", b.before, b.after)
	}
}

// wantRefusal compares a refusal with the one that is expected. It must contain words
// by which a person knows what to do.
func wantRefusal(t *testing.T, err error, code backend.Code, saying []string) {
	t.Helper()
	refusal, ok := errors.AsType[*backend.Error](err)
	if !ok {
		t.Fatalf("must be refused as %s, got %v", code, err)
	}
	if refusal.Code != code {
		t.Errorf("refused as %s, want %s: %v", refusal.Code, code, err)
	}
	if refusal.Op == "" || refusal.Object == "" {
		t.Errorf("the refusal does not say what was tried on what: %#v", refusal)
	}
	for _, word := range saying {
		if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(word)) {
			t.Errorf("the refusal does not say %q: %v", word, err)
		}
	}
}

// look reads the host, which must work in every scenario.
func (b *bench) look(ctx context.Context, t *testing.T) gpu.Host {
	t.Helper()
	host, err := b.HyperV().Inventory(ctx)
	if err != nil {
		t.Fatalf("inventory: %v", err)
	}
	return host
}

func sameHost(t *testing.T, complaint string, before, after gpu.Host) {
	t.Helper()
	if diff := cmp.Diff(before, after, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-before +after):\n%s", complaint, diff)
	}
}
