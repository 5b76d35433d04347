package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// VGPU is the vGPU face of a GPU. It is there only on hosts with NVIDIA's vGPU driver.
type VGPU struct {
	// Functions is how many SR-IOV virtual functions the GPU has when they are on, 0 for a
	// GPU whose vGPUs lie on the GPU itself.
	Functions   int  `json:"functions,omitempty"`
	FunctionsOn bool `json:"functions_on,omitempty"`
	// Heterogeneous is the mode in which vGPUs of different frame buffer sizes share the GPU.
	Heterogeneous          bool           `json:"heterogeneous,omitempty"`
	HeterogeneousSupported bool           `json:"heterogeneous_supported,omitempty"`
	Types                  []VGPUType     `json:"types,omitempty"`
	Instances              []VGPUInstance `json:"instances,omitempty"`
	// Taken are the virtual functions that NVIDIA's driver has not, as one that libvirt gave to a VM with
	// managed='yes': no vGPU can be made there.
	Taken []TakenFunction `json:"taken,omitempty"`
}

// TakenFunction is a virtual function that takes no vGPU, and who has it.
type TakenFunction struct {
	Function int    `json:"function"`
	Address  string `json:"address,omitempty"`
	// Driver is the kernel's that has it, "vfio-pci"; "" is none.
	Driver string `json:"driver,omitempty"`
	// Holder and NamedBy are as those of a vGPU.
	Holder  string   `json:"holder,omitempty"`
	NamedBy []string `json:"named_by,omitempty"`
}

func (f *TakenFunction) String() string {
	text := fmt.Sprintf("virtual function %d is without a driver", f.Function)
	if f.Driver != "" {
		text = fmt.Sprintf("virtual function %d is bound to %s in place of NVIDIA's driver", f.Function, f.Driver)
	}
	if who := heldBy(f.Holder, f.NamedBy); who != "" {
		text += ", by " + who
	}
	return text
}

// TakenAt finds a virtual function that takes no vGPU.
func (v *VGPU) TakenAt(function int) (*TakenFunction, bool) {
	for i := range v.Taken {
		if v.Taken[i].Function == function {
			return &v.Taken[i], true
		}
	}
	return nil, false
}

// VGPUType is a type of vGPU that a GPU offers.
type VGPUType struct {
	Name        string `json:"name"` // "L40S-12Q", without the vendor
	FrameBuffer Bytes  `json:"frame_buffer"`
	// Max is how many of it one GPU takes, MaxPerVM how many one VM.
	Max      int `json:"max"`
	MaxPerVM int `json:"max_per_vm,omitempty"`
	// MIGProfile is the GPU instance profile of a MIG-backed type, "" of a time-sliced one.
	MIGProfile string `json:"mig_profile,omitempty"`
}

// Itself is the function of a vGPU that lies on the GPU and on no virtual function.
const Itself = -1

// VGPUPlace is one wanted or existing vGPU.
type VGPUPlace struct {
	Type string `json:"type"`
	// Function is the index of the virtual function, -1 for the GPU itself.
	Function int `json:"function"`
	// UUID is that of a mediated device; "" where a vGPU has none.
	UUID string `json:"uuid,omitempty"`
}

// VGPUInstance is one vGPU and who holds it.
type VGPUInstance struct {
	VGPUPlace
	// Address is the PCI address that a VM is given, of the function or of the GPU.
	Address string `json:"address,omitempty"`
	// GPUInstance is the id of the GPU instance that it lives in, nil where it lives in none
	// or the driver does not tell.
	GPUInstance *int   `json:"gpu_instance,omitempty"`
	Holder      string `json:"holder,omitempty"` // "VM web-01", "process 4711 (qemu-kvm)"
	// NamedBy are VMs without it, whose next start needs it, each with its state: "VM web-01 (off)".
	NamedBy []string `json:"named_by,omitempty"`
}

// HeldBy is who has the vGPU or needs it at the next start, by whom it is neither removed nor made
// another one; "" is nobody.
func (in *VGPUInstance) HeldBy() string { return heldBy(in.Holder, in.NamedBy) }

func heldBy(holder string, namedBy []string) string {
	if holder == "" {
		return strings.Join(namedBy, ", ")
	}
	return strings.Join(append([]string{holder}, namedBy...), ", ")
}

// HostDevice is a device of its host that the definition of a VM names, whether the VM runs or not and
// whether the device is there or not.
type HostDevice struct {
	VM    string  `json:"vm"` // name
	VMID  string  `json:"vm_id,omitempty"`
	State VMState `json:"state"`
	// Address is that of a PCI function, "0000:41:00.4".
	Address string `json:"address,omitempty"`
	// UUID is that of a mediated device.
	UUID string `json:"uuid,omitempty"`
	// Alias is the name that whoever wrote the device has given it; assignments begin theirs with AliasPrefix.
	Alias string `json:"alias,omitempty"`
	// Managed is true where libvirt takes the device from its driver for the VM, by which a vGPU is lost.
	Managed bool `json:"managed,omitempty"`
}

// AliasPrefix begins the aliases of devices that assignments write. libvirt keeps only those of users that begin with ua-.
const AliasPrefix = "ua-gpu-"

// ID is by what a device is told from the others of its VM: its alias, or else what it is.
func (d *HostDevice) ID() string { return cmp.Or(d.Alias, d.UUID, d.Address) }

// VMManager runs the VMs of a Linux host.
type VMManager struct {
	// Name is "libvirt", or whoever manages libvirt's VMs in its place, "kubevirt".
	Name string `json:"name"`
	// Version is "11.3.0"; "" where it is not told.
	Version string `json:"version,omitempty"`
}

// Libvirt is the VM manager whose VMs are given vGPUs.
const Libvirt = "libvirt"

// AttachVGPUs notes of each VM of a Linux host the vGPUs that its definition names, and of those that are gone the ones that an
// assignment wrote.
func (h *Host) AttachVGPUs() {
	for i := range h.VMs {
		vm := &h.VMs[i]
		vm.Devices = nil
		for j := range h.HostDevices {
			d := &h.HostDevices[j]
			if !SameID(d.VMID, vm.ID) && (d.VMID != "" || !SameID(d.VM, vm.Name)) {
				continue
			}
			d.VMID, d.State = vm.ID, vm.State
			if is := (DeviceAssignment{ID: d.ID()}); h.resolve(d, &is) || strings.HasPrefix(d.Alias, AliasPrefix) {
				vm.Devices = append(vm.Devices, is)
			}
		}
	}
}

// resolve finds the vGPU that a device is.
func (h *Host) resolve(d *HostDevice, is *DeviceAssignment) bool {
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.VGPU == nil {
			continue
		}
		for j := range g.VGPU.Instances {
			if in := &g.VGPU.Instances[j]; d.Names(in) {
				place := in.VGPUPlace
				is.GPU, is.VGPU = g.ID, &place
				return true
			}
		}
	}
	return false
}

// is reports whether the device is a mediated one of a UUID, or where that is "" the function at an address.
func (d *HostDevice) is(uuid, address string) bool {
	if uuid != "" {
		return SameID(d.UUID, uuid)
	}
	return d.Address != "" && SameID(d.Address, address)
}

// NameVGPUs notes of each vGPU the VMs that name it and have it not: those that do not run, and where
// nobody has it those that run. What the GPUs have in common with another host is not changed.
func (h *Host) NameVGPUs() {
	for i := range h.GPUs {
		if h.GPUs[i].VGPU == nil {
			continue
		}
		v := *h.GPUs[i].VGPU
		v.Instances = slices.Clone(v.Instances)
		for j := range v.Instances {
			in := &v.Instances[j]
			in.NamedBy = h.namers(in.UUID, in.Address, in.Holder)
		}
		v.Taken = slices.Clone(v.Taken)
		for j := range v.Taken {
			f := &v.Taken[j]
			f.NamedBy = h.namers("", f.Address, f.Holder)
		}
		h.GPUs[i].VGPU = &v
	}
}

func (h *Host) namers(uuid, address, holder string) []string {
	var out []string
	for i := range h.HostDevices {
		d := &h.HostDevices[i]
		if idle := d.State == VMOff || d.State == VMSaved; d.is(uuid, address) && (idle || holder == "") {
			out = append(out, fmt.Sprintf("VM %s (%s)", d.VM, d.State))
		}
	}
	return out
}

// Names reports whether the definition of a VM that has the device names a vGPU.
func (d *HostDevice) Names(in *VGPUInstance) bool { return d.is(in.UUID, in.Address) }

// IsOf reports whether the definition of a VM names the device, by the VM's id or name.
func (d *HostDevice) IsOf(vm string) bool {
	return vm != "" && (SameID(d.VMID, vm) || SameID(d.VM, vm))
}

// VGPUOf finds the vGPU that an assignment has, as the host has it now.
func (h *Host) VGPUOf(d *DeviceAssignment) (*VGPUInstance, bool) {
	if d == nil {
		return nil, false
	}
	g, ok := h.GPU(d.GPU)
	if !ok || g.VGPU == nil {
		return nil, false
	}
	for i := range g.VGPU.Instances {
		if in := &g.VGPU.Instances[i]; d.IsVGPU(g.ID, in.VGPUPlace) {
			return in, true
		}
	}
	return nil, false
}

// VGPULayout is a wanted set of vGPUs for each of some GPUs. Exactly one of Type and
// Types is set; neither means none.
type VGPULayout struct {
	Type string `json:"type,omitempty"`
	// Count is nil for as many of the type as the GPU takes.
	Count *int           `json:"count,omitempty"`
	Types map[string]int `json:"types,omitempty"`
	// Heterogeneous is nil for on when the types differ in size, else as the GPU has it.
	Heterogeneous *bool `json:"heterogeneous,omitempty"`
}

// VGPUCounts is how many vGPUs there are of each type.
func VGPUCounts(places []VGPUPlace) map[string]int {
	out := map[string]int{}
	for _, p := range places {
		out[p.Type]++
	}
	return out
}

// Offers finds a type by its name, with or without the vendor and the GPU's name.
func (v *VGPU) Offers(name string) (VGPUType, bool) {
	i := slices.IndexFunc(v.Types, func(t VGPUType) bool { return SameID(t.Name, name) || SameID("NVIDIA "+t.Name, name) })
	if i < 0 {
		return VGPUType{}, false
	}
	return v.Types[i], true
}
