package change

import (
	"reflect"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TestNoCellIsEmpty holds the table of operations: what each needs is there.
func TestNoCellIsEmpty(t *testing.T) {
	t.Parallel()
	for op, of := range rows {
		refreshes := op == OpRefreshDevices // device nodes, which no inventory has and nothing puts back
		for question, empty := range map[string]bool{
			"who does it?": of.by == "", "what is it called?": of.text == nil, "what does it disturb?": of.disrupts == nil,
			"what puts it back?": of.inverse == nil && !refreshes, "what does it make of a host?": of.project == nil && !refreshes,
			"what does an inventory show of it?": of.shows == nil && !refreshes,
			// of the whole host
			"which fields does it need?": of.needs == nil && !refreshes && op != OpDrainNode && op != OpResumeNode,
			// of pools and devices, which say it
			"what does it make of its GPU?":   of.notes == nil && slices.Contains(of.needs, "gpu") && op != OpDismount && op != OpMount,
			"why does its VM have to be off?": of.whyOff == nil && slices.Contains(of.needs, "vm") && op != OpStopVM && op != OpStartVM,
		} {
			if empty {
				t.Errorf("%s: %s", op, question)
			}
		}
	}
}

// TestNothingOfAKindIsMissing holds the table of kinds of layouts.
func TestNothingOfAKindIsMissing(t *testing.T) {
	t.Parallel()
	for _, name := range gpu.Kinds() {
		of, ok := kinds[name]
		if !ok {
			t.Errorf("there is no kind %s", name)
		}
		for v, i := reflect.ValueOf(of), 0; i < v.NumField(); i++ {
			if v.Field(i).IsZero() && v.Field(i).Kind() != reflect.Bool {
				t.Errorf("%s: %s is missing", name, v.Type().Field(i).Name)
			}
		}
	}
}
