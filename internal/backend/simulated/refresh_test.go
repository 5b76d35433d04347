package simulated_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What is read again is what an inventory shows, but for VMs that were not asked for and that hold what they held: these are as
// they were, also where others have changed them.
func TestARefreshIsTheInventoryButForOtherVMs(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, 6)
	host := hostOf(t, fleet, "hv01")
	rnd := rand.New(rand.NewPCG(1, 2))
	before, old := inventory(t, fleet, "hv01"), 0
	for range 150 {
		for range rnd.IntN(4) { // whoever does it, and whatever the host says to it
			vm := before.VMs[rnd.IntN(len(before.VMs))]
			switch rnd.IntN(5) {
			case 0:
				_, _ = host.AddPartitionAdapter(t.Context(), vm.ID, gpu.PartitionAdapter{})
			case 1:
				_ = host.StartVM(t.Context(), vm.ID)
			case 2:
				_ = host.TurnOffVM(t.Context(), vm.ID)
			case 3:
				if len(vm.PartitionAdapters) > 0 {
					_ = host.RemovePartitionAdapter(t.Context(), vm.ID, vm.PartitionAdapters[0].ID)
				}
			case 4:
				_ = host.SetPartitionCount(t.Context(), gpu1, []int{4, 8}[rnd.IntN(2)])
			}
		}
		asked := before.VMs[rnd.IntN(len(before.VMs))].ID
		got, done, err := host.Refresh(t.Context(), before, backend.Objects{VMs: []string{asked}})
		if err != nil || !done {
			t.Fatalf("nothing was read: %v", err)
		}
		want := inventory(t, fleet, "hv01")
		for i := range want.VMs {
			was, _ := before.VM(want.VMs[i].ID)
			if vm := want.VMs[i].ID; vm != asked && holds(&before, vm) == holds(&want, vm) && !cmp.Equal(*was, want.VMs[i]) {
				want.VMs[i] = *was
				old++
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-inventory +refresh:\n%s", diff)
		}
		before = got
	}
	if old == 0 {
		t.Error("no VM was ever as it had been")
	}
	whole := backend.Objects{GPUs: []string{gpu1}}
	if _, done, err := host.Refresh(t.Context(), before, whole); done || err != nil {
		t.Errorf("of a GPU, whose partitions any VM may hold, something was read: %v", err)
	}
	run(t, fleet.RemoveGPU(t.Context(), "hv01", gpu2))
	if _, done, err := host.Refresh(t.Context(), before, backend.Objects{VMs: []string{vmID(1)}}); done || err != nil {
		t.Errorf("a host that lost a GPU was not left to an inventory: %v", err)
	}
}

// holds lists on which GPUs a VM has partitions.
func holds(h *gpu.Host, vm string) (on string) {
	for _, g := range h.GPUs {
		if g.Partitionable != nil && slices.ContainsFunc(g.Partitionable.Partitions, func(p gpu.Partition) bool { return p.VMID == vm }) {
			on += g.ID
		}
	}
	return on
}
