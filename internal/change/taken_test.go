package change_test

import (
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What people have taken since a change was cut off is not put back: a VM that they have started, paused or saved keeps what
// it has, and so does whoever holds a partition, a GPU or draws from a pool.
func TestWhatIsTakenSinceStays(t *testing.T) {
	t.Parallel()
	is := func(state gpu.VMState, devices ...gpu.DeviceAssignment) *gpu.Host {
		g := gpu.GPU{ID: "g", Partitionable: &gpu.Partitionable{Count: 4}}
		if state == gpu.VMRunning {
			g.Partitionable.Partitions = []gpu.Partition{{ID: 1, VMID: "vm"}}
		}
		return &gpu.Host{
			GPUs: []gpu.GPU{g}, Pools: []gpu.Pool{{Name: "p", GPUs: []string{"h"}}},
			VMs: []gpu.VM{{ID: "vm", State: state, Devices: devices}},
		}
	}
	drawn, whole := gpu.DeviceAssignment{GPU: "h", Pool: "p"}, gpu.DeviceAssignment{GPU: "g"}
	for name, c := range map[string]struct {
		back           change.Step
		device         []gpu.DeviceAssignment
		off, on, saved bool
	}{
		"a start":             {back: change.Step{Op: change.OpStartVM, VM: "vm"}, on: true, saved: true},
		"a stop":              {back: change.Step{Op: change.OpStopVM, VM: "vm"}, saved: true},
		"an adapter":          {back: change.Step{Op: change.OpRemoveAdapters, VM: "vm"}, on: true, saved: true},
		"of a VM that is not": {back: change.Step{Op: change.OpRemoveAdapters, VM: "gone"}},
		"a count":             {back: change.Step{Op: change.OpSetPartitionCount, GPU: "g", Count: 2}, on: true},
		"the count as it is":  {back: change.Step{Op: change.OpSetPartitionCount, GPU: "g", Count: 4}},
		"a pool in use": {
			back: change.Step{Op: change.OpDeletePool, Pool: "p"}, device: []gpu.DeviceAssignment{drawn}, off: true, on: true, saved: true,
		},
		"a pool": {back: change.Step{Op: change.OpDeletePool, Pool: "p"}},
		"a member in use": {
			back: change.Step{Op: change.OpSetPoolMembers, Pool: "p"}, device: []gpu.DeviceAssignment{drawn}, on: true, saved: true,
		},
		"a member that stays": {
			back: change.Step{Op: change.OpSetPoolMembers, Pool: "p", GPUs: []string{"h"}}, device: []gpu.DeviceAssignment{drawn},
		},
		"a GPU of a VM": {back: change.Step{Op: change.OpMount, GPU: "g"}, device: []gpu.DeviceAssignment{whole}, on: true, saved: true},
		"a GPU":         {back: change.Step{Op: change.OpMount, GPU: "g"}},
	} {
		for state, want := range map[gpu.VMState]bool{gpu.VMOff: c.off, gpu.VMRunning: c.on, gpu.VMSaved: c.saved, gpu.VMPaused: c.saved} {
			if got := c.back.TakenSince(is(state, c.device...)); got != want {
				t.Errorf("%s, while the VM is %s: taken since is %t, want %t", name, state, got, want)
			}
		}
	}
}
