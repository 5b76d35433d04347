package vgpu

import (
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Shape is how a host makes vGPUs of a GPU.
type Shape string

// Shapes. Whether an SR-IOV GPU has mediated devices or vendor-specific VFIO shows only
// once its virtual functions are on.
const (
	ShapeNone   Shape = ""          // no vGPUs: not such a GPU, or no vGPU Manager
	ShapeOff    Shape = "sriov_off" // SR-IOV, virtual functions off
	ShapeVFIO   Shape = "vfio"      // vendor-specific VFIO on virtual functions
	ShapeMdevVF Shape = "mdev_vf"   // mediated devices on virtual functions
	ShapeMdev   Shape = "mdev"      // mediated devices on the GPU itself
)

// GPU is one physical GPU as the host shows it.
type GPU struct {
	Address string `json:"address"` // of the physical function, "0000:41:00.0"
	// Facts are NVML's. Without it Types are what can be made at the moment, which shrinks as
	// vGPUs are made.
	Facts
	Shape Shape `json:"shape,omitempty"`
	// SRIOV is nil when the GPU has no virtual functions.
	SRIOV *SRIOV `json:"sriov,omitempty"`
	// Functions are those that take vGPUs: the virtual functions, or the GPU itself.
	Functions []Function `json:"functions,omitempty"`
	// HoldersHidden is true when there are processes whose open files cannot be read, so
	// that a vGPU without holders may yet be held.
	HoldersHidden bool `json:"holders_hidden,omitempty"`
}

// SRIOV is how many virtual functions a GPU can have and has.
type SRIOV struct {
	Total   int `json:"total"`
	Enabled int `json:"enabled"`
}

// Heterogeneous is the mode in which vGPUs of several frame buffer sizes share a GPU.
type Heterogeneous struct {
	Supported bool `json:"supported"`
	Enabled   bool `json:"enabled"`
}

// Itself is the index of the function that is the GPU itself.
const Itself = -1

// Function is a PCI function that takes vGPUs.
type Function struct {
	// Index counts virtual functions as the kernel does (virtfn0, virtfn1); [Itself] for
	// the GPU. Unlike the address it is known while the functions are off.
	Index   int    `json:"index"`
	Address string `json:"address"`
	// Creatable is what can be made there now. It is empty where a vGPU already is, and
	// shrinks as others take the GPU's capacity.
	Creatable []Offer `json:"creatable,omitempty"`
	VGPUs     []VGPU  `json:"vgpus,omitempty"`
	// Taken is true of a function that NVIDIA's driver has not: Driver is the one that has it, "" for none.
	Taken  bool   `json:"taken,omitempty"`
	Driver string `json:"driver,omitempty"`
	// Holders have the function open, with or without a vGPU.
	Holders []Holder `json:"holders,omitempty"`
}

// Offer is a type that can be made.
type Offer struct {
	Type      Type `json:"type"`
	Available int  `json:"available"`
}

// VGPU is one vGPU.
type VGPU struct {
	// UUID is the mediated device's; "" with vendor-specific VFIO, where the function's
	// address is what a VM is given.
	UUID    string   `json:"uuid,omitempty"`
	Type    Type     `json:"type"`
	Holders []Holder `json:"holders,omitempty"`
	// Placement is where it is in the frame buffer and Instance the MIG instance that it
	// is in; nil before the driver has decided.
	Placement *int `json:"placement,omitempty"`
	Instance  *int `json:"gpu_instance,omitempty"`
}

// Holder is a process that has a vGPU open.
type Holder struct {
	PID     int    `json:"pid"`
	Command string `json:"command,omitempty"`
	// VM is the virtual machine's name where the process is QEMU's.
	VM string `json:"vm,omitempty"`
}

func (h Holder) String() string {
	process := fmt.Sprintf("PID %d", h.PID)
	if h.Command != "" {
		process = fmt.Sprintf("%s, PID %d", h.Command, h.PID)
	}
	if h.VM != "" {
		return fmt.Sprintf("VM %s (%s)", h.VM, process)
	}
	return "process " + process
}

func holders(hs []Holder) string {
	return strings.Join(words.Each(hs, Holder.String), ", ")
}

// Function finds a function by its index.
func (g *GPU) Function(index int) (*Function, bool) {
	for i := range g.Functions {
		if g.Functions[i].Index == index {
			return &g.Functions[i], true
		}
	}
	return nil, false
}

// VFsOn tells whether the GPU has virtual functions now.
func (g *GPU) VFsOn() bool { return g.SRIOV != nil && g.SRIOV.Enabled > 0 }

// functionName is what errors call a function that may not be there yet.
func (g *GPU) functionName(index int) string {
	switch f, ok := g.Function(index); {
	case ok && index != Itself:
		return "virtual function " + f.Address
	case index != Itself:
		return fmt.Sprintf("virtual function %d", index)
	}
	return "the GPU itself"
}
