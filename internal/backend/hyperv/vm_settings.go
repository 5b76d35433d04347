package hyperv

import (
	"context"
	"errors"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// ApplyVMSettings writes the settings that are not nil and differ, all of them or none:
// those of the VM first, then the cluster's, and the VM's are put back when the
// cluster refuses.
func (b *Backend) ApplyVMSettings(ctx context.Context, vmID string, s gpu.VMSettings) error {
	return b.changeVM(ctx, "write the VM's settings", vmID, func(v *view, vm *gpu.VM) error {
		values, err := settingValues(s)
		if err != nil {
			return err
		}
		m := v.machine(vm)
		if s.OfflineAction != nil {
			if err := v.knows(vmID, nil, gpu.PartCluster); err != nil {
				return err
			}
		}
		if s.OfflineAction != nil && m.resource == "" {
			return refuse(backend.NotSupported, "an offline action belongs to the cluster resource of a VM, and the VM is not clustered")
		}
		change := vm.Settings.Differs(s)
		if change.NeedOff() {
			if err := mustBeOff(vm); err != nil {
				return err
			}
		}
		offline := change.OfflineAction
		change.OfflineAction = nil
		if err := b.writeSettings(ctx, m, change); err != nil {
			return err
		}
		if offline == nil {
			return nil
		}
		if err := b.writeOfflineAction(ctx, m, values.offline); err != nil {
			return b.restoreSettings(ctx, m, vm.Settings.Only(change), err)
		}
		return nil
	})
}

// writeOfflineAction writes a private property of the VM's cluster resource, and looks
// whether the cluster took it (assumption hyperv-offline-action-write).
func (b *Backend) writeOfflineAction(ctx context.Context, m *machine, action int32) error {
	if err := b.wmi.Put(ctx, MSCluster, m.resource, map[string]any{
		"PrivateProperties": map[string]any{"OfflineAction": action},
	}); err != nil {
		return err
	}
	row, err := b.wmi.Get(ctx, MSCluster, m.resource, "PrivateProperties")
	if err != nil {
		return err
	}
	if now := row.Row("PrivateProperties").Uint("OfflineAction"); now != uint64(action) {
		return refuse(backend.Failed, "the cluster took the offline action %d and still has %d", action, now)
	}
	return nil
}

func (b *Backend) restoreSettings(ctx context.Context, m *machine, before gpu.VMSettings, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := b.writeSettings(ctx, m, before); err != nil {
		return aftermath(ctx, cause, "the VM's other settings could not be put back", err)
	}
	return cause
}

// values are settings as Windows writes them.
type values struct {
	stop    uint64
	offline int32
}

func settingValues(s gpu.VMSettings) (values, error) {
	var out values
	for _, space := range []*gpu.Bytes{s.LowMemoryMappedIOSpace, s.HighMemoryMappedIOSpace} {
		if space != nil && *space%gpu.MiB != 0 {
			return out, refuse(backend.InvalidParameter, "memory-mapped IO space is given in whole megabytes, not %d bytes", *space)
		}
	}
	if s.AutomaticStopAction != nil {
		n, ok := numberOf(stopActions, *s.AutomaticStopAction)
		if !ok {
			return out, refuse(backend.InvalidParameter, "there is no automatic stop action %q", *s.AutomaticStopAction)
		}
		out.stop = n
	}
	if s.OfflineAction != nil {
		n, ok := numberOf(offlineActions, *s.OfflineAction)
		if !ok {
			return out, refuse(backend.InvalidParameter, "there is no offline action %q", *s.OfflineAction)
		}
		out.offline = int32(n)
	}
	return out, nil
}

func numberOf[T comparable](names map[uint64]T, name T) (uint64, bool) {
	for n, s := range names {
		if s == name {
			return n, true
		}
	}
	return 0, false
}

// writeSettings patches the VM's settings, which go back as a whole.
func (b *Backend) writeSettings(ctx context.Context, m *machine, s gpu.VMSettings) error {
	if s.Empty() {
		return nil
	}
	values, err := settingValues(s)
	if err != nil {
		return err
	}
	text, err := b.wmi.Text(ctx, Virtualization, m.settings)
	if err != nil {
		return err
	}
	e, err := parseEmbedded(text)
	if err != nil {
		return err
	}
	if s.LowMemoryMappedIOSpace != nil {
		e.set("LowMmioGapSize", uint64(*s.LowMemoryMappedIOSpace/gpu.MiB))
	}
	if s.HighMemoryMappedIOSpace != nil {
		e.set("HighMmioGapSize", uint64(*s.HighMemoryMappedIOSpace/gpu.MiB))
	}
	if s.GuestControlledCache != nil {
		e.set("GuestControlledCacheTypes", *s.GuestControlledCache)
	}
	if s.AutomaticStopAction != nil {
		e.set("AutomaticShutdownAction", values.stop)
	}
	err = b.manage(ctx, "ModifySystemSettings", map[string]any{"SystemSettings": e.String()})
	if !errors.Is(err, errJobGone) {
		return err
	}
	row, lookErr := b.wmi.Get(ctx, Virtualization, m.settings, settingProperties...)
	if lookErr != nil {
		return lookErr
	}
	if now := settingsOf(row); !now.Differs(s).Empty() {
		return refuse(backend.Failed, "%v; the VM does not have the settings", err)
	}
	return nil
}
