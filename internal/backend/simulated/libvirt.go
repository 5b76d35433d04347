package simulated

import (
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// A VM of a Linux host is libvirt's: which vGPUs it has stands in its definition, which names devices that may be there or not and
// that others may name too. Only a start takes them.

// attach writes a vGPU into the definition of a VM.
func (r *record) attach(vmID string, d gpu.DeviceAssignment) error {
	vm, err := r.vmThatIsOff(vmID)
	if err != nil {
		return err
	}
	switch {
	case d.VGPU == nil || d.Pool != "":
		return refuse(backend.NotSupported, "VMs of this host get vGPUs only")
	case !strings.HasPrefix(d.ID, gpu.AliasPrefix):
		return refuse(backend.InvalidParameter, "the alias %q does not begin with %s", d.ID, gpu.AliasPrefix)
	case vm.Transient:
		return refuse(backend.InvalidState, "the VM is transient and has no stored definition")
	}
	in, there := r.VGPUOf(&d)
	if !there {
		return refuse(backend.NotFound, "GPU %s has no %s", d.GPU, vgpuText(*d.VGPU))
	}
	for _, x := range r.devicesOf(vm) {
		switch {
		case x.Alias == d.ID && x.Names(in):
			return nil
		case x.Alias == d.ID:
			return refuse(backend.InUse, "the VM has another device of the alias %s", d.ID)
		case x.Names(in):
			return refuse(backend.InUse, "the device is already in the domain configuration")
		}
	}
	added := gpu.HostDevice{VM: vm.Name, VMID: vm.ID, State: vm.State, UUID: in.UUID, Alias: d.ID}
	if in.UUID == "" {
		added.Address = in.Address
	}
	r.HostDevices = append(r.HostDevices, added)
	return nil
}

// detach takes a device out of the definition of a VM.
func (r *record) detach(vmID, id string) error {
	vm, err := r.vm(vmID)
	if err != nil {
		return err
	}
	of := func(d gpu.HostDevice) bool { return isOf(&d, vm) && gpu.SameID(d.ID(), id) }
	if !slices.ContainsFunc(r.HostDevices, of) {
		return nil
	}
	if _, err := r.vmThatIsOff(vmID); err != nil {
		return err
	}
	r.HostDevices = slices.DeleteFunc(r.HostDevices, of)
	return nil
}

func isOf(d *gpu.HostDevice, vm *gpu.VM) bool {
	return gpu.SameID(d.VMID, vm.ID) || d.VMID == "" && gpu.SameID(d.VM, vm.Name)
}

// devicesOf are the devices that the definition of a VM names.
func (r *record) devicesOf(vm *gpu.VM) []gpu.HostDevice {
	return slices.DeleteFunc(slices.Clone(r.HostDevices), func(d gpu.HostDevice) bool { return !isOf(&d, vm) })
}

// takeVGPUs has a VM that starts hold what its definition names.
func (r *record) takeVGPUs(vm *gpu.VM) error {
	var takes []*gpu.VGPUInstance
	for _, d := range r.devicesOf(vm) {
		i := slices.IndexFunc(r.GPUs, func(g gpu.GPU) bool { return g.VGPU != nil && named(g.VGPU, d) != nil })
		if i < 0 {
			return refuse(backend.Failed, "device not found: the host has no vGPU %s%s", d.UUID, d.Address)
		}
		in := named(r.GPUs[i].VGPU, d)
		if in.Holder != "" {
			return refuse(backend.InUse, "%s is in use by driver QEMU, domain %s", vgpuText(in.VGPUPlace), strings.TrimPrefix(in.Holder, "VM "))
		}
		takes = append(takes, in)
	}
	for _, in := range takes {
		in.Holder = "VM " + vm.Name
	}
	return nil
}

func named(v *gpu.VGPU, d gpu.HostDevice) *gpu.VGPUInstance {
	i := slices.IndexFunc(v.Instances, func(in gpu.VGPUInstance) bool { return d.Names(&in) })
	if i < 0 {
		return nil
	}
	return &v.Instances[i]
}

// leaveVGPUs has a VM that goes off hold none any more.
func (r *record) leaveVGPUs(vm *gpu.VM) {
	for i := range r.GPUs {
		if v := r.GPUs[i].VGPU; v != nil {
			for j := range v.Instances {
				if v.Instances[j].Holder == "VM "+vm.Name {
					v.Instances[j].Holder = ""
				}
			}
		}
	}
}
