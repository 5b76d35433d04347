package change_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestEveryOpIsWhole makes a step of every operation that is declared and wants all that the
// rest relies on: a row, words for people, something that the host then shows, and something
// that puts it back. A forgotten operation would otherwise pass the comparison of what was
// wanted with what came of it.
func TestEveryOpIsWhole(t *testing.T) {
	t.Parallel()
	declared := ops(t)
	slices.Sort(declared)
	if rows := change.Ops(); !slices.Equal(rows, declared) {
		t.Fatalf("there are rows for %q, and %q are declared", rows, declared)
	}
	texts := map[string]change.Op{}
	for _, op := range declared {
		if op == change.OpRefreshDevices {
			continue // it shows nothing and takes nothing back
		}
		shows, putsBack := false, false
		for _, c := range opCases[op] {
			host := c.on()
			if c.edit != nil {
				c.edit(&host)
			}
			c.step.Op = op
			steps := []change.Step{c.step}
			if err := c.step.Validate(); err != nil {
				t.Errorf("%s: %v", op, err)
			}
			text := c.step.String()
			if other, taken := texts[text]; text == string(op) || taken && other != op {
				t.Errorf("%s is %q to people, and so is %s", op, text, other)
			}
			texts[text] = op
			if !slices.Contains(gpu.Disruptions(), c.step.Disrupts()) {
				t.Errorf("%s disturbs %q", op, c.step.Disrupts())
			}
			undo, after := change.Schedule(host, steps)
			for _, f := range change.Observe(&host, steps) {
				if f.Value == "missing" && strings.HasPrefix(f.Name, "VM ") {
					t.Errorf("%s: there is no such VM", c.step)
				}
			}
			shows = shows || len(change.Verify(&after, &host, steps)) > 0
			putsBack = putsBack || len(undo[0]) > 0
		}
		if !shows {
			t.Errorf("%s: no inventory shows that it was done: project and observe", op)
		}
		if !putsBack {
			t.Errorf("%s: nothing puts it back", op)
		}
	}
}
