package timeslice

import (
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// FuzzList reads what nvidia-smi may list.
func FuzzList(f *testing.F) {
	for _, s := range []string{
		"", "|   0     Timeslice      Default      |", "| 99999999999999999999 Timeslice Short |", "Invalid argument: -l",
		"|1|time-slice|LONG|\n|1|timeslice|short|",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for index, slice := range parseList(text) {
			if index < 0 || !slices.Contains(gpu.TimeSlices(), slice) {
				t.Errorf("%q has GPU %d with %q", text, index, slice)
			}
		}
	})
}
