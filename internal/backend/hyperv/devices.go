package hyperv

import (
	"context"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const deviceService = "Msvm_AssignableDeviceService"

// DismountDevice disables a device on the host and gives it up. Force leaves out the
// platform's checks of access control services and of a mitigation driver.
func (b *Backend) DismountDevice(ctx context.Context, gpuID string, force bool) error {
	return b.change(ctx, "dismount the device from the host", "GPU "+gpuID,
		need{of: ofVMs | ofGPUs | ofAssignables | ofDisplays | ofAdapters | ofDevices | ofPartitions}, func(v *view) error {
			if err := v.knows("", []string{gpuID}, gpu.PartPartitions, gpu.PartDevices); err != nil {
				return err
			}
			g, ok := v.host.GPU(gpuID)
			switch {
			case !ok:
				return refuse(backend.NotFound, "the host has no such GPU")
			case g.Dismounted:
				return nil
			case g.HostDisplay:
				return refuse(backend.InUse, "the device drives the host's own display")
			case g.Status == gpu.NotAssignable:
				return refuse(backend.NotSupported,
					"the device cannot be assigned: it is an old-style PCI device, a switch port, or needs reserved memory")
			case g.Partitionable != nil && len(g.Partitionable.Partitions) > 0:
				return refuse(backend.InUse, "partitions are assigned to %s", v.holders(g.Partitionable))
			}
			d := v.device(g)
			if !d.disabled {
				if err := b.disable(ctx, d); err != nil {
					return err
				}
			}
			err := looked(b.outlast(ctx, b.dismount(ctx, g, force)))
			if err == nil {
				err = b.until(ctx, "the device is not among those that can be assigned", func() (bool, error) {
					path, err := b.assignable(ctx, g)
					return path != "", err
				})
			}
			if err != nil && !d.disabled {
				return b.giveBack(ctx, g, d, err)
			}
			return err
		})
}

// disable stops the host's driver for a device. A host that wants a reboot to do so
// still uses the device.
func (b *Backend) disable(ctx context.Context, d *device) error {
	reboot, err := b.power(ctx, d, "Disable")
	if err != nil {
		return err
	}
	if reboot {
		return b.enableAgain(ctx, d, refuse(backend.RebootNeeded,
			"Windows can disable the device only with a reboot of the host: something on the host uses it"))
	}
	return nil
}

// enable starts the host's driver for a device.
func (b *Backend) enable(ctx context.Context, d *device) error {
	reboot, err := b.power(ctx, d, "Enable")
	if err == nil && reboot {
		return refuse(backend.RebootNeeded, "the device is back on the host, and Windows can enable it only with a reboot")
	}
	return err
}

// power enables or disables a device.
func (b *Backend) power(ctx context.Context, d *device, method string) (reboot bool, err error) {
	res, err := b.wmi.Invoke(ctx, CIMv2, d.entity, method, nil)
	if err != nil {
		return false, err
	}
	if res.ReturnValue != completed {
		return false, refusedByWindows(method, res.ReturnValue, deviceRight)
	}
	return Row{Values: res.Out}.Bool("RebootNeeded"), nil
}

// asBefore is what a dismount that failed leaves.
const asBefore = "the device is enabled and mounted as before"

// giveBack undoes a dismount that failed. One that was cut off may have ended well all
// the same, and the device is then mounted first.
func (b *Backend) giveBack(ctx context.Context, g *gpu.GPU, d *device, cause error) error {
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	path, err := b.assignable(undo, g)
	switch {
	case err != nil:
		return aftermath(ctx, cause, "what became of the device could not be read", err)
	case path == "":
		return b.enableAgain(ctx, d, cause)
	}
	given := *g
	given.InstancePath = dismountedBus + g.InstancePath[len(hostBus):]
	if err := b.mount(undo, &given); err != nil {
		return aftermath(ctx, cause, "the device could not be mounted again", err)
	}
	return undone(ctx, cause, asBefore)
}

// enableAgain gives a device back to the host's driver after something went wrong.
func (b *Backend) enableAgain(ctx context.Context, d *device, cause error) error {
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := b.enable(undo, d); err != nil {
		return aftermath(ctx, cause, "the device could not be enabled again", err)
	}
	return undone(ctx, cause, asBefore)
}

func (b *Backend) dismount(ctx context.Context, g *gpu.GPU, force bool) error {
	settings := newEmbedded("Msvm_AssignableDeviceDismountSettingData")
	settings.set("DeviceInstancePath", g.InstancePath)
	settings.set("DeviceLocationPath", g.ID)
	settings.set("RequireAcsSupport", !force)
	settings.set("RequireDeviceMitigations", !force)
	return b.call(ctx, deviceService, "DismountAssignableDevice", map[string]any{"DismountSettingData": settings.String()})
}

// assignable is the path of a GPU among the devices that the host has given up.
func (b *Backend) assignable(ctx context.Context, g *gpu.GPU) (string, error) {
	row, err := b.givenUp(ctx, func(row Row) bool {
		return slot(row.String("DeviceInstancePath")) == slot(g.InstancePath) || gpu.SameID(row.String("LocationPath"), g.ID)
	})
	return row.Path, err
}

// givenUp is a device that the host has given up, without a path where there is none.
func (b *Backend) givenUp(ctx context.Context, is func(Row) bool) (Row, error) {
	rows, err := b.wmi.Query(ctx, Virtualization, "SELECT * FROM Msvm_PciExpress", "SystemName", "DeviceInstancePath", "LocationPath")
	if err != nil {
		return Row{}, err
	}
	for _, row := range rows {
		if !guid.MatchString(row.String("SystemName")) && is(row) {
			return row, nil
		}
	}
	return Row{}, nil
}

// MountDevice gives a device back to the host and enables it. That a VM which is off
// still names it is refused too: Hyper-V would mount it, and the VM would not start.
func (b *Backend) MountDevice(ctx context.Context, gpuID string) error {
	return b.change(ctx, "mount the device on the host", "GPU "+gpuID,
		need{of: ofVMs | ofGPUs | ofAssignables | ofDisplays | ofPools | ofDevices}, func(v *view) error {
			if err := v.knows("", []string{gpuID}, gpu.PartPools, gpu.PartDevices); err != nil {
				return err
			}
			g, ok := v.host.GPU(gpuID)
			if !ok {
				// Whatever the device is taken for now, it is where it was recorded.
				row, err := b.givenUp(ctx, func(row Row) bool { return gpu.SameID(row.String("LocationPath"), gpuID) })
				switch instance := row.String("DeviceInstancePath"); {
				case err != nil:
					return err
				case row.Path == "" || !isDismounted(instance):
					return refuse(backend.NotFound, "the host has no such GPU")
				default:
					return b.mount(ctx, &gpu.GPU{ID: row.String("LocationPath"), InstancePath: instance})
				}
			}
			d := v.device(g)
			if !g.Dismounted {
				if !d.disabled {
					return nil
				}
				return b.enable(ctx, d)
			}
			for i := range v.host.Pools {
				if v.host.Pools[i].Has(g.ID) {
					return refuse(backend.InUse, "the device is a member of pool %s", v.host.Pools[i].Name)
				}
			}
			if vm := v.assignee(g.ID, func(*gpu.VM) bool { return true }); vm != nil {
				return refuse(backend.InUse, "the device is assigned to VM %s", vm.Name)
			}
			return b.mount(ctx, g)
		})
}

func (b *Backend) mount(ctx context.Context, g *gpu.GPU) error {
	if err := looked(b.call(ctx, deviceService, "MountAssignableDevice", map[string]any{
		"DeviceInstancePath": g.InstancePath, "DeviceLocationPath": g.ID,
	})); err != nil {
		return err
	}
	// The device comes back as it was given up: disabled.
	back := hostBus + g.InstancePath[len(dismountedBus):]
	return b.until(ctx, "the device has not come back to the host", func() (bool, error) {
		rows, err := b.wmi.Query(ctx, CIMv2, "SELECT * FROM Win32_PnPEntity WHERE DeviceID="+literal(back), "DeviceID", "ConfigManagerErrorCode")
		if err != nil || len(rows) == 0 {
			return false, err
		}
		if rows[0].Uint("ConfigManagerErrorCode") != problemDisabled {
			return true, nil
		}
		return false, b.enable(ctx, &device{entity: rows[0].Path})
	})
}

// assignee is a VM that a GPU is assigned to whole.
func (v *view) assignee(gpuID string, which func(*gpu.VM) bool) *gpu.VM {
	for i := range v.host.VMs {
		vm := &v.host.VMs[i]
		if which(vm) && slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return gpu.SameID(d.GPU, gpuID) }) {
			return vm
		}
	}
	return nil
}

// holdsHardware tells whether a VM has its devices in hand.
func holdsHardware(vm *gpu.VM) bool { return vm.State != gpu.VMOff && vm.State != gpu.VMSaved }

// AddDevice gives a VM a GPU of a pool, by the pool's name, or a particular one, by
// the device's path. Hyper-V decides at the start which of a pool a VM gets.
func (b *Backend) AddDevice(ctx context.Context, vmID string, d gpu.DeviceAssignment) (string, error) {
	var id string
	n := need{of: ofPools | ofDevices, vms: []string{vmID}}
	if d.GPU != "" { // another VM may hold it
		n = need{of: ofGPUs | ofAssignables | ofDisplays | ofPools | ofDevices}
	}
	err := b.changeVM(ctx, "assign a device", vmID, n, func(v *view, vm *gpu.VM) error {
		if err := mustBeOff(vm); err != nil {
			return err
		}
		if (d.Pool == "") == (d.GPU == "") {
			return refuse(backend.InvalidParameter, "a device comes from a pool or is named, one of the two")
		}
		if err := v.knows(vmID, named(d.GPU), gpu.PartPools, gpu.PartDevices); err != nil {
			return err
		}
		settings, err := b.template(ctx, "Msvm_PciExpressSettingData") // assumption hyperv-device-template
		if err != nil {
			return err
		}
		if d.Pool != "" {
			p, ok := v.host.Pool(d.Pool)
			if !ok {
				return refuse(backend.NotFound, "the host has no pool %s", d.Pool)
			}
			settings.set("PoolID", p.Name)
		} else {
			path, err := v.deviceToAssign(vm, d.GPU)
			if err != nil {
				return err
			}
			settings.set("HostResource", []string{path})
		}
		m := v.machine(vm)
		path, err := b.add(ctx, m, "Msvm_PciExpressSettingData", settings, m.devices)
		if err != nil {
			return err
		}
		_, id, _ = settingID(keyOf(path, "InstanceID"))
		return nil
	})
	return id, err
}

// named is a list of a GPU, without one of none.
func named(gpuID string) []string {
	if gpuID == "" {
		return nil
	}
	return []string{gpuID}
}

// deviceToAssign is the path of a device that is named. A VM that is off and names it
// too is no obstacle: who starts first gets it.
func (v *view) deviceToAssign(vm *gpu.VM, gpuID string) (string, error) {
	g, ok := v.host.GPU(gpuID)
	if !ok {
		return "", refuse(backend.NotFound, "the host has no GPU %s", gpuID)
	}
	path := v.device(g).assignable
	if path == "" {
		return "", refuse(backend.InvalidState, "GPU %s is not dismounted from the host", g.ID)
	}
	if holder := v.assignee(g.ID, holdsHardware); holder != nil {
		return "", refuse(backend.InUse, "GPU %s is held by VM %s", g.ID, holder.Name)
	}
	for _, d := range vm.Devices {
		if d.Pool == "" && gpu.SameID(d.GPU, g.ID) {
			return "", refuse(backend.InUse, "the VM has GPU %s already", g.ID)
		}
	}
	return path, nil
}

// RemoveDevice takes a device setting from a VM.
func (b *Backend) RemoveDevice(ctx context.Context, vmID, deviceID string) error {
	return b.changeVM(ctx, "take a device away", vmID, need{of: ofDevices, vms: []string{vmID}}, func(v *view, vm *gpu.VM) error {
		if err := v.knows(vmID, nil, gpu.PartDevices); err != nil {
			return err
		}
		path, ok := v.machine(vm).devices[gpu.FoldID(deviceID)]
		if !ok {
			return nil
		}
		if err := mustBeOff(vm); err != nil {
			return err
		}
		return b.remove(ctx, path)
	})
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
