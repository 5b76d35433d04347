package fakewmi

import (
	"context"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/others"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func entityOperations() map[string]operation {
	return map[string]operation{
		"Enable":              (*invocation).enable,
		"Disable":             (*invocation).disable,
		"GetDeviceProperties": (*invocation).deviceProperties,
	}
}

// entity is the device that a call is about.
func (c *invocation) entity() (device, error) {
	for _, d := range c.devices() {
		if gpu.SameID(d.instance, c.target.text("DeviceID")) {
			return d, nil
		}
	}
	return device{}, refuse(rvFailed, "the device is gone")
}

// notDisableable is what Plug and Play says of a device that cannot be disabled.
const notDisableable = 0x28 // CR_NOT_DISABLEABLE

// disable stops the host's driver for a device. One that something uses is disabled at
// the next reboot and works until then.
func (c *invocation) disable() error {
	d, err := c.entity()
	if err != nil {
		return err
	}
	if d.gpu == nil || d.gpu.Dismounted {
		return refuse(notDisableable, "the device cannot be disabled")
	}
	inUse := d.gpu.HostDisplay || c.machine.faults.isBusy(d.gpu.ID) || (d.gpu.Partitionable != nil && len(d.gpu.Partitionable.Partitions) > 0)
	problem := disabledProblem
	if inUse {
		problem = restartProblem
	}
	if problemOf(d.gpu) != problemDisabled {
		if err := setProblem(c.ctx, c.machine.fleet, c.host.Name, d.gpu.ID, problem); err != nil {
			return err
		}
	}
	return c.out.Set("rebootNeeded", inUse)
}

// enable starts the host's driver for a device, or takes back that it will be disabled.
func (c *invocation) enable() error {
	d, err := c.entity()
	if err != nil {
		return err
	}
	if d.gpu != nil && (d.problem == problemDisabled || d.problem == problemRestart) {
		if err := setProblem(c.ctx, c.machine.fleet, c.host.Name, d.gpu.ID, ""); err != nil {
			return err
		}
	}
	return c.out.Set("rebootNeeded", false)
}

// setProblem writes a GPU's problem into the fleet, where other processes see it too.
func setProblem(ctx context.Context, fleet *others.Fleet, host, gpuID, problem string) error {
	return fleet.Edit(ctx, func(s *gpu.Snapshot) error {
		for i := range s.Hosts {
			if !gpu.SameID(s.Hosts[i].Name, host) {
				continue
			}
			if g, ok := s.Hosts[i].GPU(gpuID); ok {
				g.Problem = problem
				return nil
			}
		}
		return fmt.Errorf("host %s has no GPU %s any more", host, gpuID)
	})
}

// Types of the values of device properties (DEVPROP_TYPE).
const (
	typeEmpty      = 0
	typeUint32     = 7
	typeBoolean    = 17
	typeString     = 18
	typeStringList = 8210
)

// propertyKeys are the keys that a device has a value or no value for. A caller gets
// nothing at all for another.
var propertyKeys = []string{
	"DEVPKEY_Device_LocationPaths", "DEVPKEY_Device_DriverVersion", "DEVPKEY_Device_DeviceDesc", "DEVPKEY_Device_ProblemCode",
	"DEVPKEY_PciDevice_DeviceType", "DEVPKEY_PciDevice_RequiresReservedMemoryRegion", "DEVPKEY_PciDevice_BaseClass",
	"DEVPKEY_PciDevice_AcsCompatibleUpHierarchy",
}

// deviceProperties answers with an object for each key, of a class that depends on the
// type of its value. All keys are meant when none is given.
func (c *invocation) deviceProperties() error {
	d, err := c.entity()
	if err != nil {
		return err
	}
	wanted := c.in.texts("devicePropertyKeys")
	if wanted == nil {
		wanted = propertyKeys
	}
	var out []*Object
	for _, key := range wanted {
		if o := c.deviceProperty(&d, key); o != nil {
			out = append(out, o)
		}
	}
	return c.out.Set("deviceProperties", out)
}

func (c *invocation) deviceProperty(d *device, key string) *Object {
	common := fields{"DeviceID": d.instance, "KeyName": key, "Type": typeEmpty}
	text := func(s string) *Object {
		if s == "" {
			return c.embed("Win32_PnPDeviceProperty", common)
		}
		return c.embed("Win32_PnPDevicePropertyString", common, fields{"Type": typeString, "Data": s})
	}
	number := func(n uint64, known bool) *Object {
		if !known {
			return c.embed("Win32_PnPDeviceProperty", common)
		}
		return c.embed("Win32_PnPDevicePropertyUint32", common, fields{"Type": typeUint32, "Data": n})
	}
	onPCI := d.bus() != ""
	switch key {
	case "DEVPKEY_Device_LocationPaths":
		if len(d.locations) == 0 {
			return c.embed("Win32_PnPDeviceProperty", common)
		}
		return c.embed("Win32_PnPDevicePropertyStringArray", common, fields{"Type": typeStringList, "Data": d.locations})
	case "DEVPKEY_Device_DriverVersion":
		return text(d.driver)
	case "DEVPKEY_Device_DeviceDesc":
		return text(d.name)
	case "DEVPKEY_Device_ProblemCode":
		return number(uint64(d.problem), d.problem != problemNone)
	case "DEVPKEY_PciDevice_DeviceType":
		return number(d.kind, onPCI)
	case "DEVPKEY_PciDevice_RequiresReservedMemoryRegion":
		if !onPCI {
			return c.embed("Win32_PnPDeviceProperty", common)
		}
		reserved := d.gpu != nil && c.machine.faults.isReserved(d.gpu.ID)
		return c.embed("Win32_PnPDevicePropertyBoolean", common, fields{"Type": typeBoolean, "Data": reserved})
	case "DEVPKEY_PciDevice_AcsCompatibleUpHierarchy":
		return number(1, onPCI)
	case "DEVPKEY_PciDevice_BaseClass":
		const displayBase = 3
		return number(displayBase, onPCI && d.pciClass == displayCode)
	default:
		return nil
	}
}
