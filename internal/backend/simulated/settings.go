package simulated

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Memory-mapped IO space of a VM that nobody gave more.
const (
	defaultLowMMIO  = 128 * gpu.MiB
	defaultHighMMIO = 512 * gpu.MiB
)

// ApplyVMSettings writes the settings that are not nil, all of them or none.
func (h *Host) ApplyVMSettings(ctx context.Context, vmID string, s gpu.VMSettings) error {
	return h.do(ctx, call{op: OpApplyVMSettings, vm: vmID}, func(r *record) error {
		vm, err := r.vm(vmID)
		if err != nil {
			return err
		}
		if err := checkSettings(vm, s); err != nil {
			return err
		}
		change := vm.Settings.Differs(s)
		hardware := change.LowMemoryMappedIOSpace != nil || change.HighMemoryMappedIOSpace != nil || change.GuestControlledCache != nil
		if hardware {
			if vm, err = r.vmThatIsOff(vmID); err != nil {
				return err
			}
		}
		vm.Settings = vm.Settings.Overlay(clone(change))
		return nil
	})
}

func checkSettings(vm *gpu.VM, s gpu.VMSettings) error {
	if s.OfflineAction != nil && !vm.Clustered {
		return refuse(backend.NotSupported, "an offline action belongs to the cluster resource of a VM, and the VM is not clustered")
	}
	for _, space := range []*gpu.Bytes{s.LowMemoryMappedIOSpace, s.HighMemoryMappedIOSpace} {
		// LowMmioGapSize and HighMmioGapSize count megabytes.
		if space != nil && *space%gpu.MiB != 0 {
			return refuse(backend.InvalidParameter, "memory-mapped IO space is given in whole megabytes, not %d bytes", *space)
		}
	}
	if a := s.AutomaticStopAction; a != nil {
		switch *a {
		case gpu.StopTurnOff, gpu.StopSave, gpu.StopShutDown:
		default:
			return refuse(backend.InvalidParameter, "there is no automatic stop action %q", *a)
		}
	}
	if a := s.OfflineAction; a != nil {
		switch *a {
		case gpu.OfflineTurnOff, gpu.OfflineSave, gpu.OfflineShutDown, gpu.OfflineForcedShutdown:
		default:
			return refuse(backend.InvalidParameter, "there is no offline action %q", *a)
		}
	}
	return nil
}
