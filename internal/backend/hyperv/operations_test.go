package hyperv_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// operation is one of the backend's, with what it is tried on and what it leaves.
type operation struct {
	name string
	// in says that the host is in a cluster.
	in bool
	// given changes the host before it exists.
	given func(*gpu.Host)
	do    func(context.Context, *hyperv.Backend) error
	// done tells whether the host is as the operation leaves it.
	done func(gpu.Host) bool
	// method is what it calls, and class whose that is.
	class, method string
	// adds says that each call adds one more.
	adds bool
	// void methods have no return value, and immediate ones no job.
	void, immediate bool
	// power operations do not read the host first.
	power bool
}

func (o operation) rig(t *testing.T) *rig {
	t.Helper()
	var change []func(*gpu.Snapshot)
	if o.in {
		change = append(change, inCluster)
	}
	if o.given != nil {
		change = append(change, onHost(o.given))
	}
	return newRig(t, change...)
}

// The settings that alpha is given to be changed or removed.
const (
	adapterID = "AAAAAAAA-0000-4000-8000-000000000001"
	deviceID  = "BBBBBBBB-0000-4000-8000-000000000001"
)

func withAdapter(h *gpu.Host) { h.VMs[0].PartitionAdapters = []gpu.PartitionAdapter{{ID: adapterID}} }

func withDevice(h *gpu.Host) { h.VMs[0].Devices = []gpu.DeviceAssignment{{ID: deviceID, Pool: "vdi"}} }

func running(h *gpu.Host) { h.VMs[0].State = gpu.VMRunning }

func pinnedTo(gpuID string) gpu.PartitionAdapter { return gpu.PartitionAdapter{PinnedGPU: gpuID} }

func ptr[T any](v T) *T { return &v }

var (
	someQuotas   = gpu.Quotas{VRAM: gpu.Quota{Min: ptr(uint64(1000)), Max: ptr(uint64(4000)), Optimal: ptr(uint64(4000))}}
	someSettings = gpu.VMSettings{
		LowMemoryMappedIOSpace: ptr(3072 * gpu.MiB), HighMemoryMappedIOSpace: ptr(33280 * gpu.MiB),
		GuestControlledCache: ptr(true), AutomaticStopAction: ptr(gpu.StopTurnOff),
	}
)

// the VM and the GPU of a host that is known to have them.

func vmOf(h gpu.Host, id string) gpu.VM {
	if vm, ok := h.VM(id); ok {
		return *vm
	}
	return gpu.VM{}
}

func gpuOf(h gpu.Host, id string) gpu.GPU {
	if g, ok := h.GPU(id); ok {
		return *g
	}
	return gpu.GPU{}
}

const (
	management = "Msvm_VirtualSystemManagementService"
	poolsClass = "Msvm_ResourcePoolConfigurationService"
	assignable = "Msvm_AssignableDeviceService"
)

// operations are all of the backend's that change a host.
func operations() []operation {
	count := func(h gpu.Host) bool {
		g := gpuOf(h, gpuA)
		return g.Partitionable != nil && g.Partitionable.Count == 8
	}
	adapters := func(n int) func(gpu.Host) bool {
		return func(h gpu.Host) bool { return len(vmOf(h, alpha).PartitionAdapters) == n }
	}
	devices := func(n int) func(gpu.Host) bool {
		return func(h gpu.Host) bool { return len(vmOf(h, alpha).Devices) == n }
	}
	is := func(state gpu.VMState) func(gpu.Host) bool {
		return func(h gpu.Host) bool { return vmOf(h, alpha).State == state }
	}
	return []operation{
		{
			name: "set the partition count", class: "Msvm_PartitionableGpu", method: "Put", void: true, immediate: true, done: count,
			do: func(ctx context.Context, b *hyperv.Backend) error { return b.SetPartitionCount(ctx, gpuA, 8) },
		},
		{
			name: "add an adapter", class: management, method: "AddResourceSettings", done: adapters(1), adds: true,
			do: func(ctx context.Context, b *hyperv.Backend) error {
				_, err := b.AddPartitionAdapter(ctx, alpha, pinnedTo(gpuB))
				return err
			},
		},
		{
			name: "set quotas", class: management, method: "ModifyResourceSettings", given: withAdapter,
			do: func(ctx context.Context, b *hyperv.Backend) error {
				return b.SetPartitionQuotas(ctx, alpha, adapterID, someQuotas)
			},
			done: func(h gpu.Host) bool {
				vm := vmOf(h, alpha)
				return len(vm.PartitionAdapters) == 1 && vm.PartitionAdapters[0].Quotas.Equal(someQuotas)
			},
		},
		{
			name: "remove an adapter", class: management, method: "RemoveResourceSettings", given: withAdapter, done: adapters(0),
			do: func(ctx context.Context, b *hyperv.Backend) error {
				return b.RemovePartitionAdapter(ctx, alpha, adapterID)
			},
		},
		{
			name: "dismount a device", class: assignable, method: "DismountAssignableDevice",
			do:   func(ctx context.Context, b *hyperv.Backend) error { return b.DismountDevice(ctx, gpuA, false) },
			done: func(h gpu.Host) bool { return gpuOf(h, gpuA).Dismounted && gpuOf(h, gpuA).Problem == "" },
		},
		{
			name: "mount a device", class: assignable, method: "MountAssignableDevice",
			do:   func(ctx context.Context, b *hyperv.Backend) error { return b.MountDevice(ctx, gpuD) },
			done: func(h gpu.Host) bool { return !gpuOf(h, gpuD).Dismounted && gpuOf(h, gpuD).Problem == "" },
		},
		{
			name: "create a pool", class: poolsClass, method: "CreatePool",
			do:   func(ctx context.Context, b *hyperv.Backend) error { return b.CreatePool(ctx, "new") },
			done: func(h gpu.Host) bool { return len(h.Pools) == 2 },
		},
		{
			name: "set members", class: poolsClass, method: "ModifyPoolResources",
			do: func(ctx context.Context, b *hyperv.Backend) error {
				return b.SetPoolMembers(ctx, "vdi", []string{gpuC, gpuD})
			},
			done: func(h gpu.Host) bool { return slices.Equal(h.Pools[0].GPUs, []string{gpuC, gpuD}) },
		},
		{
			name: "delete a pool", class: poolsClass, method: "DeletePool",
			do:   func(ctx context.Context, b *hyperv.Backend) error { return b.DeletePool(ctx, "vdi") },
			done: func(h gpu.Host) bool { return len(h.Pools) == 0 },
		},
		{
			name: "assign a pool", class: management, method: "AddResourceSettings", done: devices(1), adds: true,
			do: func(ctx context.Context, b *hyperv.Backend) error {
				_, err := b.AddDevice(ctx, alpha, gpu.DeviceAssignment{Pool: "vdi"})
				return err
			},
		},
		{
			name: "take a device away", class: management, method: "RemoveResourceSettings", given: withDevice, done: devices(0),
			do: func(ctx context.Context, b *hyperv.Backend) error { return b.RemoveDevice(ctx, alpha, deviceID) },
		},
		{
			name: "write settings", class: management, method: "ModifySystemSettings",
			do:   func(ctx context.Context, b *hyperv.Backend) error { return b.ApplyVMSettings(ctx, alpha, someSettings) },
			done: func(h gpu.Host) bool { return vmOf(h, alpha).Settings.Differs(someSettings).Empty() },
		},
		{
			name: "write the offline action", class: "MSCluster_Resource", method: "Put", in: true, void: true, immediate: true,
			do: func(ctx context.Context, b *hyperv.Backend) error {
				return b.ApplyVMSettings(ctx, alpha, gpu.VMSettings{OfflineAction: ptr(gpu.OfflineForcedShutdown)})
			},
			done: func(h gpu.Host) bool {
				a := vmOf(h, alpha).Settings.OfflineAction
				return a != nil && *a == gpu.OfflineForcedShutdown
			},
		},
		{
			name: "shut down", class: "Msvm_ShutdownComponent", method: "InitiateShutdown", immediate: true,
			power: true, given: running, done: is(gpu.VMOff),
			do: func(ctx context.Context, b *hyperv.Backend) error { return b.ShutDownVM(ctx, alpha, false) },
		},
		{
			name: "turn off", class: "Msvm_ComputerSystem", method: "RequestStateChange", power: true, given: running, done: is(gpu.VMOff),
			do: func(ctx context.Context, b *hyperv.Backend) error { return b.TurnOffVM(ctx, alpha) },
		},
		{
			name: "start", class: "Msvm_ComputerSystem", method: "RequestStateChange", power: true, done: is(gpu.VMRunning),
			do: func(ctx context.Context, b *hyperv.Backend) error { return b.StartVM(ctx, alpha) },
		},
		{
			name: "bring online", class: "MSCluster_ResourceGroup", method: "BringOnline", in: true, power: true,
			void: true, immediate: true, done: is(gpu.VMRunning),
			do: func(ctx context.Context, b *hyperv.Backend) error { return b.StartVM(ctx, alpha) },
		},
		{
			name: "drain the node", class: "MSCluster_Node", method: "Pause", in: true, power: true, void: true, immediate: true,
			do:   func(ctx context.Context, b *hyperv.Backend) error { return b.DrainNode(ctx) },
			done: func(h gpu.Host) bool { return h.NodeState() == gpu.NodePaused },
		},
		{
			name: "resume the node", class: "MSCluster_Node", method: "Resume", in: true, power: true, void: true, immediate: true,
			given: func(h *gpu.Host) { h.Cluster.Nodes[0].State = gpu.NodePaused },
			do:    func(ctx context.Context, b *hyperv.Backend) error { return b.ResumeNode(ctx) },
			done:  func(h gpu.Host) bool { return h.NodeState() == gpu.NodeUp },
		},
	}
}

// settled waits until the host is as the operation leaves it: what was begun ends.
func (r *rig) settled(o operation) {
	r.Helper()
	r.machine.Wait()
	if host := r.host(); !o.done(host) {
		r.Errorf("the host is not as it should be: GPUs %+v, VMs %+v, pools %+v", host.GPUs, host.VMs, host.Pools)
	}
}

// Every operation does what the other tests let fail, with jobs and without.
func TestOperations(t *testing.T) {
	t.Parallel()
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			for _, synchronous := range []bool{false, true} {
				r := o.rig(t)
				if synchronous {
					r.machine.Synchronous(o.method)
				}
				if o.done(r.host()) {
					t.Fatal("the host is as it should be before")
				}
				r.run(o.do(t.Context(), r.backend))
				r.settled(o)
				if o.adds {
					continue
				}
				r.run(o.do(t.Context(), r.backend)) // it is as asked
				r.settled(o)
			}
		})
	}
}
