//go:build linux && cgo

package nvidia

import (
	"context"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

var _ backend.VMs = (*Backend)(nil)

// ReadVM reads a VM of libvirt, and which of its devices are vGPUs of the host: no other device is anybody's to take.
func (b *Backend) ReadVM(ctx context.Context, vmID string) (gpu.VM, error) {
	const op = "read the VM"
	host, err := b.Inventory(ctx)
	if err != nil {
		return gpu.VM{}, err
	}
	vm, ok := host.VM(vmID)
	if !ok {
		if u, unknown := host.UnknownPart(gpu.PartVGPUs); unknown {
			return gpu.VM{}, complete(ctx, refuse(backend.Unavailable, "%s", u.Why), op, "VM "+vmID)
		}
		return gpu.VM{}, complete(ctx, refuse(backend.NotFound, "libvirt has no such VM"), op, "VM "+vmID)
	}
	if vm.State == gpu.VMRunning {
		vm.State, err = libvirt.State(ctx, b.opt.Libvirt, vmID)
	}
	return *vm, complete(ctx, err, op, "VM "+vmID)
}

// AddDevice writes a vGPU into the definition of a VM that is off. libvirt would take one that is not there, or that another VM has.
func (b *Backend) AddDevice(ctx context.Context, vmID string, d gpu.DeviceAssignment) (string, error) {
	const op = "give the VM a vGPU"
	fail := func(err error) (string, error) { return "", complete(ctx, err, op, "VM "+vmID) }
	switch {
	case d.VGPU == nil || d.Pool != "":
		return fail(refuse(backend.NotSupported, "VMs of this host get vGPUs only"))
	case !strings.HasPrefix(d.ID, gpu.AliasPrefix):
		return fail(refuse(backend.InvalidParameter, "the alias %q does not begin with %s", d.ID, gpu.AliasPrefix))
	}
	host, err := b.Inventory(ctx)
	if err != nil {
		return "", err
	}
	in, there := host.VGPUOf(&d)
	if !there {
		return fail(refuse(backend.NotFound, "there is no vGPU %s on function %d of GPU %s", d.VGPU.Type, d.VGPU.Function, d.GPU))
	}
	device := gpu.HostDevice{Alias: d.ID, UUID: in.UUID}
	if in.UUID == "" {
		device.Address = in.Address
	}
	if err := libvirt.Attach(ctx, b.opt.Libvirt, vmID, device); err != nil {
		return fail(err)
	}
	return d.ID, nil
}

// RemoveDevice takes a device out of the definition of a VM that is off.
func (b *Backend) RemoveDevice(ctx context.Context, vmID, deviceID string) error {
	return complete(ctx, libvirt.Detach(ctx, b.opt.Libvirt, vmID, deviceID), "take the vGPU from the VM", "VM "+vmID)
}

// ShutDownVM asks the guest to shut down. None of libvirt's answers that it is in use: there is nothing to force.
func (b *Backend) ShutDownVM(ctx context.Context, vmID string, _ bool) error {
	return complete(ctx, libvirt.ShutDown(ctx, b.opt.Libvirt, vmID), "shut the VM down", "VM "+vmID)
}

// TurnOffVM cuts the power.
func (b *Backend) TurnOffVM(ctx context.Context, vmID string) error {
	return complete(ctx, libvirt.TurnOff(ctx, b.opt.Libvirt, vmID), "turn the VM off", "VM "+vmID)
}

// StartVM starts the VM.
func (b *Backend) StartVM(ctx context.Context, vmID string) error {
	return complete(ctx, libvirt.Start(ctx, b.opt.Libvirt, vmID), "start the VM", "VM "+vmID)
}
