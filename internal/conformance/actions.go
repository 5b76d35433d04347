package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What is done to a host.

func setCount(gpuID string, count int) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().SetPartitionCount(ctx, gpuID, count) }
}

func addAdapter(vmID string) action { return addAdapterWith(vmID, gpu.PartitionAdapter{}) }

func addPinnedAdapter(vmID, gpuID string) action {
	return addAdapterWith(vmID, gpu.PartitionAdapter{PinnedGPU: gpuID})
}

func addAdapterWithQuotas(vmID string, q gpu.Quotas) action {
	return addAdapterWith(vmID, gpu.PartitionAdapter{Quotas: q})
}

func addAdapterWith(vmID string, a gpu.PartitionAdapter) action {
	return func(ctx context.Context, b *bench) error {
		id, err := b.HyperV().AddPartitionAdapter(ctx, vmID, a)
		if err != nil {
			return err
		}
		host, err := b.HyperV().Inventory(ctx)
		if err != nil {
			return err
		}
		vm, ok := host.VM(vmID)
		if !ok {
			return fmt.Errorf("VM %s is gone", vmID)
		}
		for _, have := range vm.PartitionAdapters {
			if gpu.SameID(have.ID, id) {
				return nil
			}
		}
		return fmt.Errorf("the VM has no adapter of the returned id %q: %v", id, vm.PartitionAdapters)
	}
}

// adapterID is the id of a VM's n-th adapter.
func (b *bench) adapterID(ctx context.Context, vmID string, n int) (string, error) {
	host, err := b.HyperV().Inventory(ctx)
	if err != nil {
		return "", err
	}
	vm, ok := host.VM(vmID)
	if !ok || n >= len(vm.PartitionAdapters) {
		return "", fmt.Errorf("VM %s has no adapter %d", vmID, n)
	}
	return vm.PartitionAdapters[n].ID, nil
}

func removeAdapter(vmID string, n int) action {
	return func(ctx context.Context, b *bench) error {
		id, err := b.adapterID(ctx, vmID, n)
		if err != nil {
			return err
		}
		return b.HyperV().RemovePartitionAdapter(ctx, vmID, id)
	}
}

func removeAdapterNamed(vmID, id string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().RemovePartitionAdapter(ctx, vmID, id) }
}

func setQuotas(vmID string, q gpu.Quotas) action {
	return func(ctx context.Context, b *bench) error {
		id, err := b.adapterID(ctx, vmID, 0)
		if err != nil {
			return err
		}
		return b.HyperV().SetPartitionQuotas(ctx, vmID, id, q)
	}
}

func setQuotasOf(vmID, adapterID string, q gpu.Quotas) action {
	return func(ctx context.Context, b *bench) error {
		return b.HyperV().SetPartitionQuotas(ctx, vmID, adapterID, q)
	}
}

// vramQuota asks for a partition of a size.
func vramQuota(minimum, optimal, maximum uint64) gpu.Quotas {
	return gpu.Quotas{VRAM: gpu.Quota{Min: &minimum, Optimal: &optimal, Max: &maximum}}
}

func dismount(gpuID string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().DismountDevice(ctx, gpuID, false) }
}

func dismountByForce(gpuID string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().DismountDevice(ctx, gpuID, true) }
}

func mount(gpuID string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().MountDevice(ctx, gpuID) }
}

func createPool(name string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().CreatePool(ctx, name) }
}

func setMembers(name string, gpuIDs ...string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().SetPoolMembers(ctx, name, gpuIDs) }
}

func deletePool(name string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().DeletePool(ctx, name) }
}

func addFromPool(vmID, name string) action { return addDevice(vmID, gpu.DeviceAssignment{Pool: name}) }

func addNamed(vmID, gpuID string) action { return addDevice(vmID, gpu.DeviceAssignment{GPU: gpuID}) }

func addDevice(vmID string, d gpu.DeviceAssignment) action {
	return func(ctx context.Context, b *bench) error {
		id, err := b.HyperV().AddDevice(ctx, vmID, d)
		if err == nil && id == "" {
			return fmt.Errorf("no id for the device setting")
		}
		return err
	}
}

func removeDevice(vmID string, n int) action {
	return func(ctx context.Context, b *bench) error {
		host, err := b.HyperV().Inventory(ctx)
		if err != nil {
			return err
		}
		vm, ok := host.VM(vmID)
		if !ok || n >= len(vm.Devices) {
			return fmt.Errorf("VM %s has no device %d", vmID, n)
		}
		return b.HyperV().RemoveDevice(ctx, vmID, vm.Devices[n].ID)
	}
}

func removeDeviceNamed(vmID, id string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().RemoveDevice(ctx, vmID, id) }
}

func apply(vmID string, s gpu.VMSettings) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().ApplyVMSettings(ctx, vmID, s) }
}

func start(vmID string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().StartVM(ctx, vmID) }
}

func shutDown(vmID string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().ShutDownVM(ctx, vmID, false) }
}

func forceDown(vmID string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().ShutDownVM(ctx, vmID, true) }
}

// within gives an action less time than the scenario has.
func within(d time.Duration, a action) action {
	return func(ctx context.Context, b *bench) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return a(ctx, b)
	}
}

func turnOff(vmID string) action {
	return func(ctx context.Context, b *bench) error { return b.HyperV().TurnOffVM(ctx, vmID) }
}

func nothing(context.Context, *bench) error { return nil }

// each runs actions one after the other and stops at the first that fails.
func each[A ~func(context.Context, B) error, B any](actions ...A) A {
	return func(ctx context.Context, b B) error {
		for _, a := range actions {
			if err := a(ctx, b); err != nil {
				return err
			}
		}
		return nil
	}
}

// withPartition is the common history: a VM that has an adapter and runs.
func withPartition(vmID string) action { return each(addAdapter(vmID), start(vmID)) }

// withPool is a pool with members.
func withPool(name string, gpuIDs ...string) action {
	return each(createPool(name), setMembers(name, gpuIDs...))
}
