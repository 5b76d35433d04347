package rules_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// FuzzTimeOfDay reads the times of maintenance windows.
func FuzzTimeOfDay(f *testing.F) {
	for _, s := range []string{"22:00", "24:00", "24:01", "7:00", "-1:00", "", "00:60"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := rules.ParseTimeOfDay(s)
		if err == nil && (at < 0 || at > rules.EndOfDay || at.String() != s) {
			t.Errorf("%q is %d, %s", s, at, at)
		}
	})
}
