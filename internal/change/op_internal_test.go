package change

import (
	"testing"
)

// TestNoCellIsEmpty holds the table of operations: what each needs is there.
func TestNoCellIsEmpty(t *testing.T) {
	t.Parallel()
	for op, of := range rows {
		switch {
		case of.by == "":
			t.Errorf("%s: who does it?", op)
		case of.disrupts == nil:
			t.Errorf("%s: what does it disturb?", op)
		case of.shows == nil && op != OpRefreshDevices: // device nodes, which no inventory has
			t.Errorf("%s: what does an inventory show of it?", op)
		case of.needs == nil && op != OpRefreshDevices && op != OpDrainNode && op != OpResumeNode: // of the whole host
			t.Errorf("%s: which fields does it need?", op)
		}
	}
}
