package hyperv

import (
	"cmp"
	"context"
	"errors"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// ApplyVMSettings writes the settings that are not nil and differ, all of them or none:
// those of the VM first, then the cluster's, and the VM's are put back when the
// cluster refuses.
func (b *Backend) ApplyVMSettings(ctx context.Context, vmID string, s gpu.VMSettings) error {
	return b.changeVM(ctx, "write the VM's settings", vmID, need{vms: []string{vmID}}, func(v *view, vm *gpu.VM) error {
		_, action, err := asWritten(s)
		if err != nil {
			return err
		}
		m := v.machine(vm)
		var resource Row
		if s.OfflineAction != nil {
			if resource, err = b.clustered(ctx, vmID, vm.Name); err != nil {
				return err
			}
			if resource.Path == "" {
				if _, err := b.clusterName(ctx); err != nil {
					return err
				}
				return refuse(backend.NotSupported, "an offline action belongs to the cluster resource of a VM, and the VM is not clustered")
			}
			vm.Settings.OfflineAction = offlineAction(resource)
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
		if err := b.writeOfflineAction(ctx, resource.Path, action); err != nil {
			return b.restoreSettings(ctx, m, vm.Settings.Only(change), err)
		}
		return nil
	})
}

// writeOfflineAction writes a private property of the VM's cluster resource, and looks
// whether the cluster took it (assumption hyperv-offline-action-write). What it has then
// decides: a resource that is online answers that the value was stored with an error
// (ERROR_RESOURCE_PROPERTIES_STORED, 5024).
func (b *Backend) writeOfflineAction(ctx context.Context, resource string, action int32) error {
	err := b.wmi.Put(ctx, MSCluster, resource, map[string]any{"PrivateProperties": map[string]any{"OfflineAction": action}})
	if _, answered := errors.AsType[*Fault](err); err != nil && !answered {
		return err
	}
	row, lookErr := b.wmi.Get(ctx, MSCluster, resource, "PrivateProperties")
	if lookErr != nil {
		return cmp.Or(err, lookErr)
	}
	if now := row.Row("PrivateProperties").Uint("OfflineAction"); now != uint64(action) {
		return cmp.Or(err, refuse(backend.Failed, "the cluster took the offline action %d and still has %d", action, now))
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

// asWritten are settings as Windows writes them: the VM's own by their properties, and the
// action that is the cluster's.
func asWritten(s gpu.VMSettings) (own map[string]any, offline int32, err error) {
	own = map[string]any{}
	for _, space := range []struct {
		property string
		size     *gpu.Bytes
	}{{"LowMmioGapSize", s.LowMemoryMappedIOSpace}, {"HighMmioGapSize", s.HighMemoryMappedIOSpace}} {
		if space.size == nil {
			continue
		}
		if *space.size%gpu.MiB != 0 {
			return nil, 0, refuse(backend.InvalidParameter, "memory-mapped IO space is given in whole megabytes, not %d bytes", *space.size)
		}
		own[space.property] = uint64(*space.size / gpu.MiB)
	}
	if s.GuestControlledCache != nil {
		own["GuestControlledCacheTypes"] = *s.GuestControlledCache
	}
	if s.AutomaticStopAction != nil {
		n, ok := numberOf(stopActions, *s.AutomaticStopAction)
		if !ok {
			return nil, 0, refuse(backend.InvalidParameter, "there is no automatic stop action %q", *s.AutomaticStopAction)
		}
		own["AutomaticShutdownAction"] = uint16(n)
	}
	if s.OfflineAction != nil {
		n, ok := numberOf(offlineActions, *s.OfflineAction)
		if !ok {
			return nil, 0, refuse(backend.InvalidParameter, "there is no offline action %q", *s.OfflineAction)
		}
		offline = int32(n)
	}
	return own, offline, nil
}

func numberOf[T comparable](names map[uint64]T, name T) (uint64, bool) {
	for n, s := range names {
		if s == name {
			return n, true
		}
	}
	return 0, false
}

// writeSettings writes the settings that are asked for and no others, and looks whether the
// VM has them then.
func (b *Backend) writeSettings(ctx context.Context, m *machine, s gpu.VMSettings) error {
	if s.Empty() {
		return nil
	}
	own, _, err := asWritten(s)
	if err != nil {
		return err
	}
	e := newEmbedded("Msvm_VirtualSystemSettingData")
	e.set("InstanceID", keyOf(m.settings, "InstanceID"))
	for _, property := range settingProperties {
		if value, asked := own[property]; asked {
			e.set(property, value)
		}
	}
	obstacle := func(context.Context) error { return nil }
	if s.NeedOff() {
		obstacle = b.unlessOff(keyOf(m.path, "Name"))
	}
	err = b.manage(ctx, "ModifySystemSettings", map[string]any{"SystemSettings": e.String()}, obstacle)
	if looked(err) != nil {
		return err
	}
	row, lookErr := b.wmi.Get(ctx, Virtualization, m.settings, settingProperties...)
	if lookErr != nil {
		return lookErr
	}
	switch now := settingsOf(row); {
	case now.Differs(s).Empty():
		return nil
	case err != nil:
		return refuse(backend.Failed, "%v; the VM does not have the settings", err)
	default:
		return refuse(backend.Failed, "the host took the settings, and the VM does not have them")
	}
}
