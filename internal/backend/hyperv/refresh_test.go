package hyperv_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What is read again is the host as a whole inventory shows it, whatever others do to it
// meanwhile: all but the settings of VMs that hold nothing and were not asked for.
func TestRefreshIsTheInventory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 1))
			given := []func(*gpu.Snapshot){crowded(6), onHost(func(h *gpu.Host) { h.VMs[0].Clustered = false })}
			if seed%2 == 0 {
				given = append(given, inCluster)
			}
			r := newRig(t, given...)
			sim, err := r.fleet.Host("hv01")
			r.run(err)
			before := r.host()
			done := 0
			for range 12 {
				for range rnd.IntN(3) { // others, through no agent
					_ = meddle(r, sim, rnd, before)
				}
				vms := []string{before.VMs[rnd.IntN(len(before.VMs))].ID}
				_ = meddle(r, r.backend, rnd, gpu.Host{GPUs: before.GPUs, VMs: only(before, vms), Pools: before.Pools})
				got, ok, err := r.backend.Refresh(t.Context(), before, backend.Objects{VMs: vms})
				r.run(err)
				want := r.host()
				if !ok {
					before = want
					continue
				}
				done++
				holds := slices.Concat(vms, holders(before), holders(want))
				for i := range want.VMs { // what may be old
					if vm := &want.VMs[i]; !slices.Contains(holds, vm.ID) {
						if old, known := before.VM(vm.ID); known {
							*vm = *old
						}
					}
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("after a change of %v:\n%s", vms, d)
				}
				before = got
			}
			if done == 0 {
				t.Error("never anything but the whole host was read")
			}
		})
	}
}

// actor is a host that can be changed, by the agent or behind its back.
type actor interface {
	AddPartitionAdapter(context.Context, string, gpu.PartitionAdapter) (string, error)
	RemovePartitionAdapter(context.Context, string, string) error
	AddDevice(context.Context, string, gpu.DeviceAssignment) (string, error)
	RemoveDevice(context.Context, string, string) error
	StartVM(context.Context, string) error
	TurnOffVM(context.Context, string) error
	SetPartitionCount(context.Context, string, int) error
	DismountDevice(context.Context, string, bool) error
	MountDevice(context.Context, string) error
	SetPoolMembers(context.Context, string, []string) error
	ApplyVMSettings(context.Context, string, gpu.VMSettings) error
}

func only(h gpu.Host, ids []string) []gpu.VM {
	return slices.DeleteFunc(slices.Clone(h.VMs), func(vm gpu.VM) bool { return !slices.Contains(ids, vm.ID) })
}

// holders are the VMs that hold a partition or a GPU of a pool.
func holders(h gpu.Host) []string {
	var out []string
	for _, g := range h.GPUs {
		if g.Partitionable != nil {
			for _, p := range g.Partitionable.Partitions {
				out = append(out, p.VMID)
			}
		}
	}
	for _, vm := range h.VMs {
		if slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return d.GPU != "" }) {
			out = append(out, vm.ID)
		}
	}
	return out
}

// meddle does one thing to a host, which may refuse.
func meddle(r *rig, a actor, rnd *rand.Rand, h gpu.Host) error {
	ctx := r.Context()
	vm := h.VMs[rnd.IntN(len(h.VMs))]
	var err error
	switch rnd.IntN(10) {
	case 0, 1:
		err = a.StartVM(ctx, vm.ID)
	case 2, 3:
		err = a.TurnOffVM(ctx, vm.ID)
	case 4:
		_, err = a.AddPartitionAdapter(ctx, vm.ID, gpu.PartitionAdapter{PinnedGPU: []string{"", gpuA, gpuB}[rnd.IntN(3)]})
	case 5:
		if len(vm.PartitionAdapters) > 0 {
			err = a.RemovePartitionAdapter(ctx, vm.ID, vm.PartitionAdapters[0].ID)
		}
	case 6:
		if len(vm.Devices) > 0 {
			err = a.RemoveDevice(ctx, vm.ID, vm.Devices[0].ID)
		} else {
			_, err = a.AddDevice(ctx, vm.ID, gpu.DeviceAssignment{Pool: "vdi"})
		}
	case 7:
		err = a.SetPartitionCount(ctx, []string{gpuA, gpuB}[rnd.IntN(2)], []int{8, 4, 2}[rnd.IntN(3)])
	case 8:
		err = a.SetPoolMembers(ctx, "vdi", [][]string{{gpuC}, {gpuC, gpuD}, {}}[rnd.IntN(3)])
	case 9:
		if err = a.MountDevice(ctx, gpuB); err == nil && rnd.IntN(2) == 0 {
			err = a.DismountDevice(ctx, gpuB, true)
		}
	}
	return err
}
