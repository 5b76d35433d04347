package placement

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
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
	return fmt.Sprintf("there is no vGPU type %s: the GPU offers %s", e.Type, words.JoinAll(e.Offered))
}

// VGPUBesideError is two types that no GPU has beside each other.
type VGPUBesideError struct {
	First, Second, Why string
}

func (e *VGPUBesideError) Error() string {
	return fmt.Sprintf("%s and %s cannot be beside each other on a GPU: %s", e.First, e.Second, e.Why)
}

// VGPUProfileError is a MIG-backed type of which nobody tells the GPU instance profile.
type VGPUProfileError struct {
	Type, Profile string
}

func (e *VGPUProfileError) Error() string {
	return fmt.Sprintf("vGPU type %s is MIG-backed, and the GPU offers no instance profile %q for it", e.Type, e.Profile)
}

// VGPUResetError is a GPU whose MIG mode changes with a reset, which is not allowed.
type VGPUResetError struct {
	On bool
}

func (e *VGPUResetError) Error() string {
	return fmt.Sprintf("turning its MIG mode %s requires a reset of this GPU", map[bool]string{true: "on", false: "off"}[e.On])
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
	MIGBacked        bool // the types live in GPU instances, each of its own size
}

func (e *VGPUSizesError) Error() string {
	switch {
	case e.MIGBacked:
		return fmt.Sprintf("%s live in GPU instances, whose sizes differ without heterogeneous mode, and which a GPU in that mode does not have", e.Wanted)
	case !e.Mixed:
		return "the GPU or its driver has no heterogeneous mode"
	case !e.Supported:
		return fmt.Sprintf("%s differ in frame buffer size, and the GPU or its driver has no heterogeneous mode for that", e.Wanted)
	}
	return fmt.Sprintf("%s differ in frame buffer size, which requires heterogeneous mode", e.Wanted)
}

// VGPUCapacityError is more vGPUs than an empty GPU takes. One of the limits is set.
type VGPUCapacityError struct {
	Wanted    string
	Max       int       // vGPUs of the type, or of the size
	Functions int       // virtual functions, one for each vGPU
	Need, Has gpu.Bytes // frame buffer
	Instances error     // why their GPU instances have no room
	Untold    bool      // how many the GPU takes cannot be told
}

func (e *VGPUCapacityError) Error() string {
	switch {
	case e.Untold:
		return fmt.Sprintf("how many %s the GPU takes cannot be determined: in heterogeneous mode it depends on where they are placed, or the driver does not report it", e.Wanted)
	case e.Instances != nil:
		return fmt.Sprintf("%s: the GPU has no room for their GPU instances: %s", e.Wanted, e.Instances)
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
	return fmt.Sprintf("%s cannot be %s: the GPU has %s", e.Place.Type, functionText(e.Place.Function), words.Plural(e.Functions, "virtual function"))
}

// VGPUHeldError is vGPUs that would have to be removed and that are held.
type VGPUHeldError struct {
	Held []gpu.VGPUInstance
	// Clears is true when no vGPU at all may be there, for a change of mode.
	Clears bool
}

func (e *VGPUHeldError) Error() string {
	who := words.Each(e.Held, func(in gpu.VGPUInstance) string {
		return fmt.Sprintf("%s %s is held by %s", in.Type, functionText(in.Function), in.Holder)
	})
	if e.Clears {
		return "the modes of the GPU change only without vGPUs: " + words.JoinAll(who)
	}
	return words.Plural(len(e.Held), "vGPU") + " in use " + words.Verb(len(e.Held), "is", "are") + " in the way: " + words.JoinAll(who)
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
	// MIG is true where it is MIG mode that is switched.
	MIG bool
}

func (e *VGPUBusyError) Error() string {
	if e.MIG {
		return fmt.Sprintf("the GPU's MIG mode is switched %s only while nothing uses it, and it is in use by %s", map[bool]string{true: "on", false: "off"}[e.On], words.JoinAll(e.By))
	}
	return fmt.Sprintf("the GPU's virtual functions are switched %s only while nothing uses it, and it is in use by %s", map[bool]string{true: "on", false: "off"}[e.On], words.JoinAll(e.By))
}
