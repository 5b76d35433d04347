package change_test

import (
	"math"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What a VM is given is compared by what is asked for: partitions by config, pin and quotas, GPUs by host and id, and those of a pool by
// pool and number, however many somebody wrote: no list is made of them.
func TestOnlyLiveSettings(t *testing.T) {
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
	adapter := func(config, pinned string, most *uint64, stop *gpu.StopAction) gpu.Assignment {
		a := partition
		a.Partition, a.Settings.AutomaticStopAction = &gpu.PartitionWant{
			Config: config, PinnedGPU: pinned, Quotas: gpu.Quotas{VRAM: gpu.Quota{Max: most}},
		}, stop
		return a
	}
	devices := func(host string, stop *gpu.StopAction, ids ...string) gpu.Assignment {
		return gpu.Assignment{
			Kind: gpu.AssignDevice, VM: "avd-01", VMID: "1", Device: &gpu.DeviceWant{Host: host, GPUIDs: ids},
			Settings: gpu.VMSettings{AutomaticStopAction: stop},
		}
	}
	cached := adapter("vdi", "", nil, &shut)
	cached.Settings.GuestControlledCache = new(true)
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
		"of a partition":             {adapter("vdi", "A", new(uint64(5)), &save), adapter("VDI", "a", new(uint64(5)), &shut), true},
		"no setting any more":        {adapter("vdi", "", nil, &save), adapter("vdi", "", nil, nil), true},
		"one that needs the VM off":  {adapter("vdi", "", nil, &save), cached, false},
		"of another config":          {adapter("vdi", "", nil, &save), adapter("other", "", nil, &shut), false},
		"of another GPU":             {adapter("vdi", "A", nil, &save), adapter("vdi", "B", nil, &shut), false},
		"of any GPU":                 {adapter("vdi", "A", nil, &save), adapter("vdi", "", nil, &shut), false},
		"with another quota":         {adapter("vdi", "", new(uint64(5)), &save), adapter("vdi", "", new(uint64(6)), &shut), false},
		"without its quota":          {adapter("vdi", "", new(uint64(5)), &save), adapter("vdi", "", nil, &shut), false},
		"of devices":                 {devices("hv01", &save, "A", "B"), devices("hv01", &shut, "b", "A"), true},
		"a device more":              {devices("hv01", &save, "A"), devices("hv01", &shut, "A", "B"), false},
		"a device less":              {devices("hv01", &save, "A", "B"), devices("hv01", &shut, "A"), false},
		"devices of another host":    {devices("hv01", &save, "A"), devices("hv02", &shut, "A"), false},
		"a device for a partition":   {adapter("vdi", "", nil, &save), devices("hv01", &shut, "A"), false},
	} {
		if got := change.OnlyLiveSettings(x.prior, x.want); got != x.live {
			t.Errorf("%s: %v, want %v", name, got, x.live)
		}
	}
}
