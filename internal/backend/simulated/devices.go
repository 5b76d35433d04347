package simulated

import (
	"context"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A dismounted device leaves the PCI bus of Windows and appears under PCIP.
const (
	mountedPrefix    = `PCI\`
	dismountedPrefix = `PCIP\`
)

// DismountDevice takes a GPU from the host.
func (h *Host) DismountDevice(ctx context.Context, gpuID string, force bool) error {
	return h.do(ctx, call{op: OpDismountDevice, gpu: gpuID}, func(r *record) error {
		g, ok := r.GPU(gpuID)
		switch {
		case !ok:
			return refuse(backend.NotFound, "the host has no such GPU")
		case g.Dismounted:
			return nil
		case g.HostDisplay:
			return refuse(backend.InUse, "the device drives the host's own display")
		case g.Status == gpu.NotAssignable:
			return refuse(backend.NotSupported, "the device cannot be assigned: old-style PCI device, switch port, or the like")
		}
		if p := g.Partitionable; p != nil && len(p.Partitions) > 0 {
			return refuse(backend.InUse, "partitions are assigned to %s", r.holders(p))
		}
		hidden := r.Simulation.hidden(g.ID)
		if hidden.NeedsForce && !force {
			return refuse(backend.NotSupported, "the device has no mitigation driver or lies behind a switch without access control services")
		}
		hidden.Partitionable, g.Partitionable = g.Partitionable, nil
		r.Simulation.setHidden(g.ID, hidden)
		g.Dismounted = true
		g.InstancePath = swapPrefix(g.InstancePath, mountedPrefix, dismountedPrefix)
		return nil
	})
}

// MountDevice gives a GPU back to the host.
func (h *Host) MountDevice(ctx context.Context, gpuID string) error {
	return h.do(ctx, call{op: OpMountDevice, gpu: gpuID}, func(r *record) error {
		g, ok := r.GPU(gpuID)
		if !ok {
			return refuse(backend.NotFound, "the host has no such GPU")
		}
		if !g.Dismounted {
			return nil
		}
		if pool, ok := r.poolOf(g.ID); ok {
			return refuse(backend.InUse, "the device is a member of pool %s", pool)
		}
		// Hyper-V can be brought to mount a device that a VM which is off still names,
		// and that VM then does not start. Microsoft's order is to take it from the VM
		// first; a backend makes sure of it.
		if vm, ok := r.assignee(g.ID); ok {
			return refuse(backend.InUse, "the device is assigned to VM %s", vm)
		}
		hidden := r.Simulation.hidden(g.ID)
		g.Partitionable, hidden.Partitionable = hidden.Partitionable, nil
		r.Simulation.setHidden(g.ID, hidden)
		g.Dismounted = false
		g.InstancePath = swapPrefix(g.InstancePath, dismountedPrefix, mountedPrefix)
		return nil
	})
}

func swapPrefix(path, from, to string) string {
	if len(path) >= len(from) && strings.EqualFold(path[:len(from)], from) {
		return to + path[len(from):]
	}
	return path
}

// AddDevice gives a VM a GPU of a pool or a named one.
func (h *Host) AddDevice(ctx context.Context, vmID string, d gpu.DeviceAssignment) (string, error) {
	id := newGUID()
	err := h.do(ctx, call{op: OpAddDevice, vm: vmID, gpu: d.GPU, pool: d.Pool}, func(r *record) error {
		if r.Platform == gpu.Linux {
			id = d.ID
			return r.attach(vmID, d)
		}
		vm, err := r.vmThatIsOff(vmID)
		if err != nil {
			return err
		}
		if (d.Pool == "") == (d.GPU == "") {
			return refuse(backend.InvalidParameter, "a device comes from a pool or is named, one of the two")
		}
		if err := r.policyGate(); err != nil {
			return err
		}
		added := gpu.DeviceAssignment{ID: id}
		if d.Pool != "" {
			added.Pool, err = r.poolToDrawFrom(d.Pool)
		} else {
			added.GPU, err = r.deviceToAssign(vm, d.GPU)
		}
		if err != nil {
			return err
		}
		vm.Devices = append(vm.Devices, added)
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

func (r *record) poolToDrawFrom(name string) (string, error) {
	pool, ok := r.Pool(name)
	if !ok {
		return "", refuse(backend.NotFound, "the host has no pool %s", name)
	}
	return pool.Name, nil
}

// deviceToAssign checks a device that is named. A VM that is off and names it too is
// no obstacle: who starts first gets it.
func (r *record) deviceToAssign(vm *gpu.VM, gpuID string) (string, error) {
	g, ok := r.GPU(gpuID)
	if !ok {
		return "", refuse(backend.NotFound, "the host has no GPU %s", gpuID)
	}
	if !g.Dismounted {
		return "", refuse(backend.InvalidState, "GPU %s is not dismounted from the host", g.ID)
	}
	if holder, ok := r.wholeHolder(g.ID); ok {
		return "", refuse(backend.InUse, "GPU %s is held by VM %s", g.ID, holder)
	}
	for _, d := range vm.Devices {
		if d.Pool == "" && gpu.SameID(d.GPU, g.ID) {
			return "", refuse(backend.InUse, "the VM has GPU %s already", g.ID)
		}
	}
	return g.ID, nil
}

// RemoveDevice takes a device setting from a VM.
func (h *Host) RemoveDevice(ctx context.Context, vmID, deviceID string) error {
	return h.do(ctx, call{op: OpRemoveDevice, vm: vmID}, func(r *record) error {
		if r.Platform == gpu.Linux {
			return r.detach(vmID, deviceID)
		}
		vm, err := r.vm(vmID)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return gpu.SameID(d.ID, deviceID) })
		if i < 0 {
			return nil
		}
		if vm, err = r.vmThatIsOff(vmID); err != nil {
			return err
		}
		vm.Devices = slices.Delete(vm.Devices, i, i+1)
		if len(vm.Devices) == 0 {
			vm.Devices = nil
		}
		return nil
	})
}

// wholeHolder names the VM that has a device in its hands now.
func (r *record) wholeHolder(gpuID string) (string, bool) {
	for i := range r.VMs {
		vm := &r.VMs[i]
		if vm.State != gpu.VMOff && vm.State != gpu.VMSaved && hasDevice(vm, gpuID) {
			return vm.Name, true
		}
	}
	return "", false
}

// assignee names the VM that a device is assigned to, whether it runs or not.
func (r *record) assignee(gpuID string) (string, bool) {
	for i := range r.VMs {
		if hasDevice(&r.VMs[i], gpuID) {
			return r.VMs[i].Name, true
		}
	}
	return "", false
}

func hasDevice(vm *gpu.VM, gpuID string) bool {
	return slices.ContainsFunc(vm.Devices, func(d gpu.DeviceAssignment) bool { return gpu.SameID(d.GPU, gpuID) })
}

// refreshStatuses brings the assigned status of all GPUs up to date, in the order in
// which Windows Admin Center asks. That a device is not assignable at all is a
// property of the hardware and stays. Linux hosts have no such status.
func (r *record) refreshStatuses() {
	for i := range r.HostDevices {
		d := &r.HostDevices[i]
		if at := slices.IndexFunc(r.VMs, func(vm gpu.VM) bool { return isOf(d, &vm) }); at >= 0 {
			d.State = r.VMs[at].State
		}
	}
	if r.Platform != gpu.HyperV {
		return
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		_, taken := r.assignee(g.ID)
		switch {
		case taken:
			g.Status = gpu.Assigned
		case g.Dismounted:
			g.Status = gpu.ReadyForDDA
		case g.Partitionable != nil && g.Partitionable.Paravirtual:
			g.Status = gpu.Paravirtualization
		case g.Partitionable != nil:
			g.Status = gpu.Partitioned
		case g.Status != gpu.NotAssignable:
			g.Status = gpu.ReadyForDDA
		}
	}
}
