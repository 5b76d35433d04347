package slurm

import (
	"slices"
	"testing"
)

func TestNamesOfNodes(t *testing.T) {
	for list, want := range map[string][]string{
		"n1": {"n1"}, "n[08-10],m": {"n08", "n09", "n10", "m"}, "r[1-2]n[1-2]": {"r[1-2]n[1-2]"},
	} {
		if got := namesOf(list); !slices.Equal(got, want) {
			t.Errorf("%s: %v", list, got)
		}
	}
}
