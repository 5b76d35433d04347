package hyperv_test

import (
	"fmt"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// crowded adds VMs until there are n, each with an adapter and a device of the pool.
func crowded(n int) func(*gpu.Snapshot) {
	return onHost(func(h *gpu.Host) {
		for i := len(h.VMs); i < n; i++ {
			id := fmt.Sprintf("44444444-DDDD-4DDD-8DDD-%012d", i)
			h.VMs = append(h.VMs, gpu.VM{
				ID: id, Name: fmt.Sprintf("vm-%03d", i), State: gpu.VMOff, Generation: 2, Clustered: true,
				PartitionAdapters: []gpu.PartitionAdapter{{ID: fmt.Sprintf("AAAAAAAA-1111-4111-8111-%012d", i), PinnedGPU: gpuA}},
				Devices:           []gpu.DeviceAssignment{{ID: fmt.Sprintf("BBBBBBBB-1111-4111-8111-%012d", i), Pool: "vdi"}},
			})
		}
	})
}

// The host is read in one pass: how many calls that takes does not depend on its VMs, and what is
// made of the answers grows with them and not with their square. Allocations are counted: they are
// the same on a busy machine.
func TestCallsOfAnInventory(t *testing.T) {
	counts, allocated := map[int]int{}, map[int]float64{}
	for _, n := range []int{3, 75, 300} {
		r := newRig(t, crowded(n), inCluster)
		host := r.host()
		last := host.VMs[len(host.VMs)-1]
		if len(host.VMs) != n || len(last.PartitionAdapters) != 1 || last.PartitionAdapters[0].PinnedGPU != gpuA ||
			len(last.Devices) != 1 || !last.Clustered {
			t.Fatalf("of %d VMs there are %d, the last is %+v", n, len(host.VMs), last)
		}
		counts[n] = r.wire.queries + r.wire.others
		t.Logf("%d VMs: %d queries and %d other calls", n, r.wire.queries, r.wire.others)
		allocated[n] = testing.AllocsPerRun(1, func() { r.host() })
	}
	if counts[3] != counts[300] || counts[3] != counts[75] {
		t.Errorf("an inventory takes %d calls for 3 VMs, %d for 75 and %d for 300", counts[3], counts[75], counts[300])
	}
	if allocated[300] > 8*allocated[75] { // it was 6.2, with what the fixture does for it; the square of four times as many is 16
		t.Errorf("an inventory makes %.0f allocations for 75 VMs and %.0f for four times as many", allocated[75], allocated[300])
	}
}

// inBigCluster makes hv01 a node of a cluster in which another node has n VMs.
func inBigCluster(n int) func(*gpu.Snapshot) {
	return func(s *gpu.Snapshot) {
		inCluster(s)
		for i := range n {
			s.Hosts[1].VMs = append(s.Hosts[1].VMs, gpu.VM{
				ID: fmt.Sprintf("55555555-EEEE-4EEE-8EEE-%012d", i), Name: fmt.Sprintf("other-%03d", i), State: gpu.VMOff,
				Generation: 2, Clustered: true,
			})
		}
	}
}

// cost is what operations read.
func (r *rig) cost(do func()) (queries, rows int, whole map[string]int) {
	r.Helper()
	r.wire.change(func(w *wire) { w.queries, w.read, w.whole = 0, 0, map[string]int{} })
	do()
	r.wire.mu.Lock()
	defer r.wire.mu.Unlock()
	return r.wire.queries, r.wire.read, r.wire.whole
}

// A change reads what it needs by key: what it costs does not hang on the VMs of the host,
// nor on those of the cluster.
func TestAChangeReadsWhatItNeeds(t *testing.T) {
	t.Parallel()
	type figures struct{ queries, rows int }
	of := map[string]map[int]figures{}
	for _, n := range []int{3, 300} {
		r := newRig(t, crowded(n), inBigCluster(2*n/3))
		vm := r.host().VMs[1].ID // without an adapter
		var id string
		measure := func(what string, do func() error) {
			queries, rows, whole := r.cost(func() { r.run(do()) })
			if of[what] == nil {
				of[what] = map[int]figures{}
			}
			of[what][n] = figures{queries, rows}
			for _, class := range []string{
				"Msvm_ComputerSystem", "Msvm_GpuPartitionSettingData", "MSCluster_Resource", "Win32_DeviceMemoryAddress",
			} {
				if whole[class] > 0 {
					t.Errorf("%s reads all of %s", what, class)
				}
			}
		}
		add := func(a gpu.PartitionAdapter) func() error {
			return func() (err error) {
				id, err = r.backend.AddPartitionAdapter(t.Context(), vm, a)
				return err
			}
		}
		measure("start", func() error { return r.backend.StartVM(t.Context(), vm) })
		measure("shut down", func() error { return r.backend.ShutDownVM(t.Context(), vm, true) })
		measure("add an adapter", add(gpu.PartitionAdapter{}))
		measure("set its quotas", func() error { return r.backend.SetPartitionQuotas(t.Context(), vm, id, someQuotas) })
		measure("remove it", func() error { return r.backend.RemovePartitionAdapter(t.Context(), vm, id) })
		measure("add a pinned adapter", add(pinnedTo(gpuB)))
		measure("write settings", func() error { return r.backend.ApplyVMSettings(t.Context(), vm, withOfflineAction()) })
		measure("assign a pool", func() error {
			_, err := r.backend.AddDevice(t.Context(), vm, gpu.DeviceAssignment{Pool: "vdi"})
			return err
		})
		measure("set a count", func() error { return r.backend.SetPartitionCount(t.Context(), gpuA, 8) })
	}
	for what, by := range of {
		t.Logf("%s: %+v", what, by[300])
		polls := 4 // of jobs and of VMs on their way, which depend on the clock
		if d := by[300].rows - by[3].rows; d < -polls || d > polls {
			t.Errorf("%s reads %d rows with 3 VMs and %d with 300", what, by[3].rows, by[300].rows)
		}
		if by[300].queries > 8+polls {
			t.Errorf("%s takes %d queries", what, by[300].queries)
		}
	}
	for _, what := range []string{"add an adapter", "add a pinned adapter"} {
		if n := of[what][300].queries; n > 8 {
			t.Errorf("%s takes %d queries", what, n)
		}
	}
}

// A run of many changes does not read the host again and again: neither 16 counts nor 100
// adapters read all VMs, the cluster or the memory of all devices even once.
func TestManyChangesReadLittle(t *testing.T) {
	t.Parallel()
	r := newRig(t, crowded(12), inBigCluster(20))
	host := r.host()
	_, full, _ := r.cost(func() { r.host() })
	queries, rows, whole := r.cost(func() {
		for i := range 16 {
			r.run(r.backend.SetPartitionCount(t.Context(), []string{gpuA, gpuB}[i%2], []int{8, 4}[i/2%2]))
		}
		for i := range 100 {
			_, err := r.backend.AddPartitionAdapter(t.Context(), host.VMs[i%len(host.VMs)].ID, gpu.PartitionAdapter{})
			r.run(err)
		}
	})
	for _, class := range []string{
		"Msvm_ComputerSystem", "Msvm_VirtualSystemSettingData", "MSCluster_Resource", "MSCluster_ResourceToPossibleOwner",
		"Win32_DeviceMemoryAddress",
	} {
		if whole[class] > 0 {
			t.Errorf("all of %s was read %d times", class, whole[class])
		}
	}
	t.Logf("116 changes: %d queries, %d rows; an inventory has %d rows", queries, rows, full)
	if rows > 3000 { // about ten for each change, and one more for each adapter that a VM has
		t.Errorf("they read %d rows", rows)
	}
}
