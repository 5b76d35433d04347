package fit_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/fit"
)

// Units that differ by a few MiB are not taken for one.
func TestUnitsThatDifferLittle(t *testing.T) {
	t.Parallel()
	hosts, err := fit.Hosts(hostsOf("", 1, 2, "H100 80GB HBM3"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := fit.Solve(hosts, []fit.Demand{
		{Name: "a", Count: 1, Kind: fit.Shares, MemoryMiB: 40_960}, {Name: "b", Count: 1, Kind: fit.Shares, MemoryMiB: 40_961},
	}, fit.Options{})
	if err != nil || got.GPUs != 2 {
		t.Errorf("81,921 MiB go onto %d GPUs of 81,920: %v", got.GPUs, err)
	}
}
