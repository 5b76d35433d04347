package hyperv_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// busy is a node of a cluster on which alpha holds a partition, and beta has a GPU of a pool
// and gamma, which is off, a named one.
func busy(t *testing.T) *rig {
	t.Helper()
	const gamma = "33333333-CCCC-4CCC-8CCC-000000000003"
	r := newRig(t, onHost(func(h *gpu.Host) {
		h.VMs = append(h.VMs, gpu.VM{ID: gamma, Name: "gamma", State: gpu.VMOff, Generation: 2, Checkpoints: gpu.CheckpointsDisabled})
	}), inCluster)
	_, pinned := r.backend.AddPartitionAdapter(t.Context(), alpha, pinnedTo(gpuB))
	_, drawn := r.backend.AddDevice(t.Context(), beta, gpu.DeviceAssignment{Pool: "vdi"})
	_, named := r.backend.AddDevice(t.Context(), gamma, gpu.DeviceAssignment{GPU: gpuD})
	r.run(pinned, drawn, named, r.backend.StartVM(t.Context(), alpha), r.backend.StartVM(t.Context(), beta))
	return r
}

// TestEveryQueryOfAnInventoryFailsInTurn: it shows what the others gave. What it lacks is
// unknown and not absent, and is there again with the next inventory.
func TestEveryQueryOfAnInventoryFailsInTurn(t *testing.T) {
	t.Parallel()
	r := busy(t)
	whole := r.host()
	if len(whole.Unknown) > 0 {
		t.Fatal(whole.Unknown)
	}
	faults := map[string]error{
		"denied":  &hyperv.Fault{Code: hyperv.AccessDenied, Text: "Access denied"},
		"failed":  &hyperv.Fault{Code: 0x80041001, Text: "Generic failure"},
		"dropped": &hyperv.Fault{Code: hyperv.ServerUnavail, Text: "The RPC server is unavailable."},
	}
	for name, fault := range faults {
		for at := 1; ; at++ {
			struck := false
			r.wire.change(func(w *wire) {
				w.n, w.fault = 0, func(n int) error {
					if n != at {
						return nil
					}
					struck = true
					return fault
				}
			})
			got, err := r.backend.Inventory(t.Context())
			r.wire.change(func(w *wire) { w.fault = nil })
			if !struck {
				if at < 20 {
					t.Errorf("an inventory makes %d calls", at-1)
				}
				break
			}
			of := fmt.Sprintf("%s, call %d", name, at)
			if err != nil {
				t.Errorf("%s: one call hides the host: %v", of, err)
				continue
			}
			if len(got.Unknown) == 0 {
				// A namespace that is asked again, or what nobody needs.
				if diff := cmp.Diff(whole, got); diff != "" {
					t.Errorf("%s: nothing says that it could not be read:\n%s", of, diff)
				}
				continue
			}
			unknownNotAbsent(t, of, whole, got)
			if again := r.host(); !reflect.DeepEqual(again, whole) {
				t.Errorf("%s: afterwards it shows\n%s", of, cmp.Diff(whole, again))
			}
		}
	}
}

// unknownNotAbsent checks of all that an inventory shows otherwise than a whole one that it
// says so.
func unknownNotAbsent(t *testing.T, of string, whole, got gpu.Host) {
	t.Helper()
	lacks := func(parts ...gpu.Part) bool {
		return slices.ContainsFunc(got.Unknown, func(u gpu.Unknown) bool { return slices.Contains(parts, u.Part) })
	}
	if got.Name != whole.Name && !lacks(gpu.PartHost) {
		t.Errorf("%s: the host is called %q", of, got.Name)
	}
	for _, g := range whole.GPUs {
		now, listed := got.GPU(g.ID)
		if _, unknown := got.UnknownGPU(g.ID); unknown {
			continue
		}
		if !listed {
			t.Errorf("%s: GPU %s is said to be gone: %v", of, g.ID, got.Unknown)
			continue
		}
		if !reflect.DeepEqual(*now, g) && !lacks(gpu.PartPartitions, gpu.PartVMs, gpu.PartDevices) {
			t.Errorf("%s: of GPU %s it says\n%s\nand lacks %v", of, g.ID, cmp.Diff(g, *now), got.Unknown)
		}
		if p := now.Partitionable; p != nil && len(p.Partitions) < len(g.Partitionable.Partitions) {
			if _, unknown := got.Concerning("", []string{g.ID}, gpu.PartPartitions, gpu.PartVMs); !unknown {
				t.Errorf("%s: partitions of GPU %s are said to be free", of, g.ID)
			}
		}
	}
	for _, vm := range whole.VMs {
		now, listed := got.VM(vm.ID)
		if _, unknown := got.Concerning(vm.ID, nil, gpu.PartVMs, gpu.PartDevices, gpu.PartCluster); unknown {
			continue
		}
		if !listed || !reflect.DeepEqual(*now, vm) {
			t.Errorf("%s: VM %s is not as it is, and it lacks %v", of, vm.Name, got.Unknown)
		}
	}
	if !reflect.DeepEqual(got.Pools, whole.Pools) && !lacks(gpu.PartPools) {
		t.Errorf("%s: the pools are %v, and it lacks %v", of, got.Pools, got.Unknown)
	}
	if !reflect.DeepEqual(got.Cluster, whole.Cluster) && !lacks(gpu.PartCluster) {
		t.Errorf("%s: the cluster is %v, and it lacks %v", of, got.Cluster, got.Unknown)
	}
	if !reflect.DeepEqual(got.Policies, whole.Policies) && !lacks(gpu.PartPolicies) {
		t.Errorf("%s: the policies are %v, and it lacks %v", of, got.Policies, got.Unknown)
	}
}

// TestChangesRefuseOnlyWhatTheyConcern: with one class that cannot be read, each operation
// either is what it always is or refuses, and one that refuses has touched nothing.
func TestChangesRefuseOnlyWhatTheyConcern(t *testing.T) {
	t.Parallel()
	// What each class is needed for, by a part of the operation's name.
	for class, needs := range map[string][]gpu.Part{
		"StdRegProv.GetDWORDValue": {}, "Win32_VideoController": {gpu.PartDevices}, "MSCluster_Node": {gpu.PartCluster},
		"Msvm_GpuPartition": {gpu.PartPartitions}, "Msvm_ResourcePool": {gpu.PartPools}, "Msvm_GpuPartitionSettingData": {gpu.PartVMs},
		"Msvm_MemorySettingData": {},
	} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inCluster)
			before := r.host()
			r.machine.Deny(class)
			has := func(p gpu.Part) bool { return slices.Contains(needs, p) }
			for _, op := range []struct {
				name    string
				refuses bool
				do      func() error
			}{
				{"count", has(gpu.PartPartitions), func() error { return r.backend.SetPartitionCount(t.Context(), gpuA, 8) }},
				{
					"dismount", has(gpu.PartPartitions) || has(gpu.PartDevices), func() error { return r.backend.DismountDevice(t.Context(), gpuB, true) },
				},
				{"adapter", has(gpu.PartVMs), func() error {
					_, err := r.backend.AddPartitionAdapter(t.Context(), alpha, gpu.PartitionAdapter{})
					return err
				}},
				{
					"members", has(gpu.PartPools) || has(gpu.PartDevices), func() error {
						return r.backend.SetPoolMembers(t.Context(), "vdi", []string{gpuC, gpuD})
					},
				},
			} {
				err := op.do()
				if (err != nil) != op.refuses {
					t.Errorf("%s: %v", op.name, err)
				}
				if op.refuses {
					refuses(t, err, backend.Unavailable, "0x80041003")
				}
			}
			if len(needs) > 0 && slices.Contains(needs, gpu.PartVMs) {
				r.machine.Allow(class)
				if now := r.host(); !reflect.DeepEqual(now.VMs, before.VMs) {
					t.Errorf("a refused call changed VMs: %s", cmp.Diff(before.VMs, now.VMs))
				}
			}
		})
	}
}
