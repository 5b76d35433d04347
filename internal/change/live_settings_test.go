package change_test

import (
	"math"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// GPUs of a pool are compared by pool and number, however many somebody wrote: no list is made of them.
func TestOnlyLiveSettingsOfAPool(t *testing.T) {
	t.Parallel()
	shut, save := gpu.StopShutDown, gpu.StopSave
	draws := func(pool string, count int, stop *gpu.StopAction) gpu.Assignment {
		return gpu.Assignment{
			Kind: gpu.AssignPool, VM: "avd-01", VMID: "1", Pool: &gpu.PoolWant{ID: "hv01/" + pool, Name: pool, Count: count},
			Settings: gpu.VMSettings{AutomaticStopAction: stop},
		}
	}
	partition := gpu.Assignment{
		Kind: gpu.AssignPartition, VM: "avd-01", VMID: "1", Partition: &gpu.PartitionWant{}, Settings: gpu.VMSettings{AutomaticStopAction: &save},
	}
	for name, x := range map[string]struct {
		prior, want gpu.Assignment
		live        bool
	}{
		"a setting":                  {draws("render", 2, &save), draws("RENDER", 2, &shut), true},
		"one GPU, not said and said": {draws("render", 0, &save), draws("render", 1, &shut), true},
		"nothing":                    {draws("render", 2, &save), draws("render", 2, &save), false},
		"another pool":               {draws("render", 2, &save), draws("other", 2, &shut), false},
		"more GPUs":                  {draws("render", 1, &save), draws("render", 2, &shut), false},
		"a GPU less":                 {draws("render", 2, &save), draws("render", 1, &shut), false},
		"far too many":               {draws("render", 1, &save), draws("render", math.MaxInt, &shut), false},
		"from far too many":          {draws("render", math.MaxInt, &save), draws("render", 1, &shut), false},
		"far too many as before":     {draws("render", math.MaxInt, &save), draws("render", math.MaxInt, &shut), true},
		"a pool for a partition":     {partition, draws("render", math.MaxInt, &shut), false},
		"a partition for a pool":     {draws("render", math.MaxInt, &save), partition, false},
	} {
		if got := change.OnlyLiveSettings(x.prior, x.want); got != x.live {
			t.Errorf("%s: %v, want %v", name, got, x.live)
		}
	}
}
