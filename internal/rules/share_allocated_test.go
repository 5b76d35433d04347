package rules_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// TestAllocated counts what shares have of a device, also of one whose memory nobody knows:
// an instance that is gone, of a profile that the GPU does not list.
func TestAllocated(t *testing.T) {
	t.Parallel()
	known, gone := gpu.MIGPlacement{Profile: "3g.40gb", Start: 0}, gpu.MIGPlacement{Profile: "9g.99gb", Start: 4}
	h := shareServer(h100(migGPU0, known), freeGPU(migGPU1))
	has(h, "vdi", into(share("a", 0), known), into(share("b", 0), gone), onto(share("c", 0), migGPU1))
	for at, want := range map[*gpu.MIGPlacement]float64{&known: 1, &gone: 1, nil: 0} {
		if got := placement.Allocated(h, gpu.SharedDevice{GPU: migGPU0, Instance: at}); got != want {
			t.Errorf("allocated of %v is %v, and %v was wanted", at, got, want)
		}
	}
	if got := placement.Allocated(h, gpu.SharedDevice{GPU: migGPU1}); got != 1 {
		t.Errorf("allocated of a whole GPU is %v, and 1 was wanted", got)
	}
}
