package rules

import (
	"errors"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// VGPUUnsupportedError is a GPU whose driver makes no vGPUs.
type VGPUUnsupportedError struct{}

func (*VGPUUnsupportedError) Error() string { return "the GPU's driver on the host offers no vGPUs" }

// VGPUUnknownTypeError is a type of vGPU that the GPU does not offer.
type VGPUUnknownTypeError struct {
	Type    string
	Offered []string
}

func (e *VGPUUnknownTypeError) Error() string {
	if len(e.Offered) == 0 {
		return fmt.Sprintf("there is no vGPU type %s: the GPU offers none", e.Type)
	}
	return fmt.Sprintf("there is no vGPU type %s: the GPU offers %s", e.Type, joinAll(e.Offered))
}

// VGPUMIGBackedError is a type that lives in MIG instances.
type VGPUMIGBackedError struct {
	Type, Profile string
}

func (e *VGPUMIGBackedError) Error() string {
	return fmt.Sprintf("vGPU type %s is MIG-backed (it lives in an instance of %s), and only types that share the GPU by time slices can be made", e.Type, e.Profile)
}

// VGPUMIGModeError is a GPU in MIG mode, which only has MIG-backed vGPUs.
type VGPUMIGModeError struct{}

func (*VGPUMIGModeError) Error() string {
	return "the GPU is in MIG mode, in which it has no vGPUs that share it by time slices"
}

// VGPUCountError is a number of vGPUs below zero.
type VGPUCountError struct {
	Type  string
	Count int
}

func (e *VGPUCountError) Error() string {
	return fmt.Sprintf("%d vGPUs of %s cannot be made", e.Count, e.Type)
}

// VGPUSizesError is a heterogeneous mode that is missing for vGPUs of different frame
// buffer sizes, or wanted of a GPU that does not have it.
type VGPUSizesError struct {
	Wanted           string
	Mixed, Supported bool
}

func (e *VGPUSizesError) Error() string {
	switch {
	case !e.Mixed:
		return "the GPU or its driver has no heterogeneous mode"
	case !e.Supported:
		return fmt.Sprintf("%s differ in frame buffer size, and the GPU or its driver has no heterogeneous mode for that", e.Wanted)
	}
	return fmt.Sprintf("%s differ in frame buffer size, which takes heterogeneous mode", e.Wanted)
}

// VGPUCapacityError is more vGPUs than an empty GPU takes. One of the limits is set.
type VGPUCapacityError struct {
	Wanted    string
	Max       int       // vGPUs of the type, or of the size
	Functions int       // virtual functions, one for each vGPU
	Need, Has gpu.Bytes // frame buffer
	Untold    bool      // how many the GPU takes cannot be told
}

func (e *VGPUCapacityError) Error() string {
	switch {
	case e.Untold:
		return fmt.Sprintf("how many %s the GPU takes cannot be told, since in heterogeneous mode it depends on where they lie, or since the driver does not say", e.Wanted)
	case e.Functions > 0:
		return fmt.Sprintf("%s, but each takes a virtual function and the GPU has %d", e.Wanted, e.Functions)
	case e.Max > 0:
		return fmt.Sprintf("%s, but the GPU takes %d at most", e.Wanted, e.Max)
	}
	return fmt.Sprintf("%s take %s together, but the GPU has %s for vGPUs", e.Wanted, e.Need, e.Has)
}

// VGPUFunctionError is a function that the GPU has not, or that another vGPU is on.
type VGPUFunctionError struct {
	Place     gpu.VGPUPlace
	Other     string // the type of the other vGPU
	Functions int
}

func (e *VGPUFunctionError) Error() string {
	if e.Other != "" {
		return fmt.Sprintf("%s and %s cannot both be %s", e.Place.Type, e.Other, functionText(e.Place.Function))
	}
	return fmt.Sprintf("%s cannot be %s: the GPU has %s", e.Place.Type, functionText(e.Place.Function), plural(e.Functions, "virtual function"))
}

// VGPUHeldError is vGPUs that would have to be removed and that are held.
type VGPUHeldError struct {
	Held []gpu.VGPUInstance
	// Clears is true when no vGPU at all may be there, for a change of mode.
	Clears bool
}

func (e *VGPUHeldError) Error() string {
	who := make([]string, len(e.Held))
	for i, in := range e.Held {
		who[i] = fmt.Sprintf("%s %s is held by %s", in.Type, functionText(in.Function), in.Holder)
	}
	if e.Clears {
		return "the modes of the GPU change only without vGPUs: " + joinAll(who)
	}
	return plural(len(e.Held), "vGPU") + " in use " + verb(len(e.Held), "is", "are") + " in the way: " + joinAll(who)
}

func functionText(function int) string {
	if function == gpu.Itself {
		return "on the GPU itself"
	}
	return fmt.Sprintf("on virtual function %d", function)
}

// VGPUBusyError is processes that use a GPU whose virtual functions are switched.
type VGPUBusyError struct {
	By []string
	On bool
}

func (e *VGPUBusyError) Error() string {
	return fmt.Sprintf("the GPU's virtual functions are switched %s only while nothing uses it, and it is in use by %s", map[bool]string{true: "on", false: "off"}[e.On], joinAll(e.By))
}

// VGPUFinding words an error of LayOutVGPU or FollowVGPU as a finding of the rule that it
// violates. Who wants the layout, where and at which level is the caller's to add.
func VGPUFinding(err error) Finding {
	f := Finding{
		Rule: "vgpu-type-offered", Path: "vgpu", Title: "The GPU does not offer this type of vGPU",
		Found: sentence(err), Fix: "Write a type that the GPU offers, or leave it out of `selector`.",
	}
	var (
		unsupported *VGPUUnsupportedError
		unknown     *VGPUUnknownTypeError
		backed      *VGPUMIGBackedError
		mode        *VGPUMIGModeError
		sizes       *VGPUSizesError
		capacity    *VGPUCapacityError
		count       *VGPUCountError
		held        *VGPUHeldError
		busy        *VGPUBusyError
	)
	switch {
	case errors.As(err, &unsupported):
		f.Path, f.Title = "selector", "The GPU has no vGPUs"
		f.Fix = "Install NVIDIA's vGPU driver on the host and enable SR-IOV in the server's firmware, or leave the GPU out of `selector`."
	case errors.As(err, &unknown): // as above
	case errors.As(err, &backed):
		f.Title, f.Fix = "MIG-backed vGPUs cannot be made", "Write a type that shares the GPU by time slices: its name has one number, as in L40S-12Q."
	case errors.As(err, &mode):
		f.Path, f.Title = "selector", "The GPU is in MIG mode"
		f.Fix = "Turn MIG mode off on the GPU, or leave it out of `selector`."
	case errors.As(err, &sizes):
		f.Rule, f.Title = "vgpu-same-framebuffer", "vGPUs of different sizes need heterogeneous mode"
		f.Fix = "Write types of one frame buffer size; their series (Q, A, B, C) may differ."
		if sizes.Supported {
			f.Fix = "Leave `heterogeneous` out or write true, or write types of one frame buffer size."
		} else if !sizes.Mixed {
			f.Title, f.Fix = "The GPU has no heterogeneous mode", "Leave `heterogeneous` out."
		}
	case errors.As(err, &capacity), errors.As(err, &count):
		f.Rule, f.Title, f.Fix = "vgpu-capacity", "The GPU does not take that many vGPUs", "Ask for fewer or smaller vGPUs."
		if capacity != nil && capacity.Untold {
			f.Title, f.Fix = "How many vGPUs are wanted has to be said", "Write `count`."
		}
	case errors.As(err, &held):
		f.Rule, f.Title = "vgpu-in-use", "vGPUs in use are in the way"
		f.Fix = "Shut the VMs down and take the vGPUs from them, or keep these vGPUs in the layout. No setting removes a vGPU in use."
	case errors.As(err, &busy):
		f.Rule, f.Title = "vgpu-in-use", "Processes use GPUs whose virtual functions are switched"
		f.Fix = "Stop these processes first. A systemd unit that only watches GPUs can be named in `quiesce_units`: it is stopped for the change and started again."
	}
	return f
}
