package conformance

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// limit bounds each scenario.
const limit = 2 * time.Minute

// scenarioOn is one sentence about a backend, on the bench of its suite.
type scenarioOn[B bencher] struct {
	name string
	// given changes the standard host before it exists.
	given []given
	// with arranges what an inventory does not show.
	with []arrangementOn[B]
	// first must succeed; it is the history.
	first []actionOn[B]
	// do is what is tried.
	do actionOn[B]
	// again is true when the same call once more must succeed and change nothing.
	again bool
	// fails is how it is refused; empty when it must succeed. A refusal leaves the host as
	// it was, unless leaves is true.
	fails  backend.Code
	leaves bool
	// saying are words that a refusal must contain, so that a person knows what to do, and
	// naming are processes of which it must contain the name and the id.
	saying, naming []string
	// then is what the host looks like.
	then []checkOn[B]
}

type (
	given                    func(*gpu.Host)
	arrangementOn[B bencher] func(*testing.T, B)
	actionOn[B bencher]      func(context.Context, B) error
	checkOn[B bencher]       func(*testing.T, B)
)

// bencher is a fixture of a suite on which a scenario runs.
type bencher interface {
	Inventory(context.Context) (gpu.Host, error)
	// sane checks what holds for every host at every moment.
	sane(*testing.T, gpu.Host)
	notes() *record
}

// record is what a scenario notes.
type record struct {
	t             *testing.T
	pids          map[string]int // of processes by name
	before, after gpu.Host
}

func newRecord(t *testing.T) record { return record{t: t, pids: map[string]int{}} }

func (r *record) notes() *record { return r }

// named are the names of processes that the scenario started, and their ids.
func (r *record) named(processes []string) []string {
	var words []string
	for _, p := range processes {
		words = append(words, p, strconv.Itoa(r.pids[p]))
	}
	return words
}

// subjectOn is what some scenarios are about.
type subjectOn[B bencher] struct {
	name      string
	scenarios []scenarioOn[B]
}

// runSubjects runs all scenarios, each on a bench of its own. The host that open gets is a
// standard host as the scenario wants it.
func runSubjects[B bencher](t *testing.T, subjects []subjectOn[B], standard func() gpu.Host, open func(*testing.T, gpu.Host) B) {
	t.Helper()
	count := 0
	for _, subject := range subjects {
		t.Run(subject.name, func(t *testing.T) {
			for _, s := range subject.scenarios {
				count++
				t.Run(s.name, func(t *testing.T) {
					host := standard()
					for _, g := range s.given {
						g(&host)
					}
					s.run(t, open(t, host))
				})
			}
		})
	}
	t.Logf("conformance: %d scenarios", count)
}

func (s scenarioOn[B]) run(t *testing.T, b B) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	for _, arrange := range s.with {
		arrange(t, b)
	}
	for i, step := range s.first {
		if err := step(ctx, b); err != nil {
			t.Fatalf("history, step %d: %v", i+1, err)
		}
	}
	notes := b.notes()
	notes.before = look(ctx, t, b)
	err := s.do(ctx, b)
	notes.after = look(ctx, t, b)
	s.judge(t, notes, err)

	if s.again {
		if err := s.do(ctx, b); err != nil {
			t.Errorf("the second time: %v", err)
		}
		sameHost(t, "the second time changed the host", notes.after, look(ctx, t, b))
	}
	for _, then := range s.then {
		then(t, b)
	}
	b.sane(t, notes.after)
}

// judge compares the answer with the one that the scenario expects.
func (s scenarioOn[B]) judge(t *testing.T, notes *record, err error) {
	t.Helper()
	if s.fails == "" {
		if err != nil {
			t.Fatalf("must succeed: %v", err)
		}
		return
	}
	wantRefusal(t, err, s.fails, append(notes.named(s.naming), s.saying...))
	if !s.leaves {
		sameHost(t, "a refused call changed the host", notes.before, notes.after)
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
func look(ctx context.Context, t *testing.T, b bencher) gpu.Host {
	t.Helper()
	host, err := b.Inventory(ctx)
	if err != nil {
		t.Fatalf("inventory: %v", err)
	}
	host.Stale = nil // derived files follow when they can
	return host
}

func sameHost(t *testing.T, complaint string, before, after gpu.Host) {
	t.Helper()
	if diff := cmp.Diff(before, after, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(gpu.Host{}, "Boot")); diff != "" {
		t.Errorf("%s (-before +after):\n%s", complaint, diff)
	}
}
