package fakewmi

import (
	"context"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

func deviceOperations() map[string]operation {
	return map[string]operation{
		"DismountAssignableDevice": (*invocation).dismountDevice,
		"MountAssignableDevice":    (*invocation).mountDevice,
	}
}

// gpuBy finds a GPU by its instance path or its location path. Both must fit when both
// are given.
func (c *invocation) gpuBy(instance, location string) (*gpu.GPU, error) {
	if instance == "" && location == "" {
		return nil, refuse(rvInvalidParameter, "neither an instance path nor a location path")
	}
	for i := range c.host.GPUs {
		g := &c.host.GPUs[i]
		if (instance == "" || strings.EqualFold(instance, instancePath(g))) && (location == "" || gpu.SameID(location, g.ID)) {
			return g, nil
		}
	}
	return nil, refuse(rvFileNotFound, "there is no device %s %s", instance, location)
}

// dismountDevice gives a device up. It must have been disabled before.
func (c *invocation) dismountDevice() error {
	s, err := c.embedded(c.in.text("DismountSettingData"), "Msvm_AssignableDeviceDismountSettingData")
	if err != nil {
		return err
	}
	g, err := c.gpuBy(s.text("DeviceInstancePath"), s.text("DeviceLocationPath"))
	if err != nil {
		return err
	}
	if g.Dismounted {
		return refuse(rvInvalidState, "the device is dismounted")
	}
	// What is not said is TRUE.
	acs, saysACS := s.flag("RequireAcsSupport")
	mitigations, saysMitigations := s.flag("RequireDeviceMitigations")
	force := saysACS && !acs && saysMitigations && !mitigations
	engine, fleet, host, id, problem := c.machine.host, c.machine.fleet, c.host.Name, g.ID, problemOf(g)
	dismounted := onBus("PCIP", g)
	return c.job(jobMountDevice, func(ctx context.Context, out *Object) error {
		if problem != problemDisabled {
			return refuse(rvInvalidState, "the device is in use by the host's driver: disable it first")
		}
		if err := engine.DismountDevice(ctx, id, force); err != nil {
			return err
		}
		if err := setProblem(ctx, fleet, host, id, ""); err != nil {
			return err
		}
		return out.Set("DismountedDeviceInstancePath", dismounted)
	})
}

// mountDevice gives a device back. It comes back as it was given up: disabled.
func (c *invocation) mountDevice() error {
	g, err := c.gpuBy(c.in.text("DeviceInstancePath"), c.in.text("DeviceLocationPath"))
	if err != nil {
		return err
	}
	if !g.Dismounted {
		return refuse(rvInvalidState, "the device is not dismounted")
	}
	engine, fleet, host, id := c.machine.host, c.machine.fleet, c.host.Name, g.ID
	mounted := onBus("PCI", g)
	return c.job(jobMountDevice, func(ctx context.Context, out *Object) error {
		if err := engine.MountDevice(ctx, id); err != nil {
			return err
		}
		if err := setProblem(ctx, fleet, host, id, disabledProblem); err != nil {
			return err
		}
		return out.Set("MountedDeviceInstancePath", mounted)
	})
}
