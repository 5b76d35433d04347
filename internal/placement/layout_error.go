package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Fault is a kind of what is wrong with a layout. Of several the first one here decides what to do.
type Fault int

// The faults of a layout of MIG, and of one of vGPUs.
const (
	MIGUnknownProfile Fault = iota + 1 // the GPU does not offer the profile
	MIGInUse                           // instances in use stand where others are wanted, or are not wanted at all
	MIGTooMany                         // more instances of a profile than an empty GPU takes
	MIGStart                           // a placement where its profile may not begin
	MIGOverlap                         // two placements that want the same memory slice
	MIGNoRoom                          // an empty GPU has not the slices or media engines, or not where the profiles may begin

	VGPUUnsupported // the GPU's driver makes no vGPUs
	VGPUUnknownType // the GPU does not offer the type
	VGPUBeside      // two types that no GPU has beside each other
	VGPUProfile     // a MIG-backed type of which nobody tells the GPU instance profile
	VGPUInMIGMode   // the GPU is in MIG mode, in which it only has MIG-backed vGPUs
	VGPUNoMode      // heterogeneous mode is wanted, and there is none
	VGPUSizes       // frame buffer sizes differ, and there is no heterogeneous mode
	VGPUSizesMode   // frame buffer sizes differ, which requires heterogeneous mode
	VGPUUntold      // nobody tells how many the GPU takes
	VGPUCapacity    // more than an empty GPU takes
	VGPUCount       // a number below zero
	VGPUFunction    // a function that the GPU has not, or that another vGPU is on
	VGPUTaken       // virtual functions that NVIDIA's driver has not are wanted
	VGPUHeld        // vGPUs that would have to be removed, and are held
	VGPUReset       // MIG mode changes with a reset, which is not allowed
	VGPUBusy        // processes use a GPU whose functions or MIG mode are switched
)

// LayoutError is why a GPU cannot have a layout.
type LayoutError struct {
	Faults []Fault
	// By are those who are in the way: processes, VMs or containers.
	By []string
	// Fix is what to do about it, "" where the fault alone tells.
	Fix   string
	texts []string
}

func (e *LayoutError) Error() string { return strings.Join(e.texts, "\n") }

// First is the fault that decides what to do.
func (e *LayoutError) First() Fault { return slices.Min(e.Faults) }

// FaultOf is the first fault of an error, 0 if it is none of a layout.
func FaultOf(err error) Fault {
	e, ok := errors.AsType[*LayoutError](err)
	if !ok {
		return 0
	}
	return e.First()
}

func unfit(f Fault, format string, args ...any) *LayoutError {
	return &LayoutError{Faults: []Fault{f}, texts: []string{fmt.Sprintf(format, args...)}}
}

// add gathers what is wrong with a layout.
func (e *LayoutError) add(f Fault, format string, args ...any) {
	e.Faults, e.texts = append(e.Faults, f), append(e.texts, fmt.Sprintf(format, args...))
}

func (e *LayoutError) err() error {
	if len(e.Faults) == 0 {
		return nil
	}
	return e
}

// addUnknown names what a GPU offers in place of a profile, or of a type.
func (e *LayoutError) addUnknown(f Fault, kind, name string, offered []string) {
	text := "none"
	if len(offered) > 0 {
		text = words.JoinAll(offered)
	}
	e.add(f, "there is no %s %s: the GPU offers %s", kind, name, text)
}

func (e *LayoutError) addProfile(name string, profiles []gpu.MIGProfile) {
	e.addUnknown(MIGUnknownProfile, "profile", name, words.Each(profiles, func(p gpu.MIGProfile) string { return p.Name }))
}

// addTooMany compares numbers of instances with what an empty GPU takes. A profile
// whose maximum is not known is bounded by its placements alone.
func (e *LayoutError) addTooMany(profiles []gpu.MIGProfile, counts map[string]int) {
	for i := range profiles {
		if p := &profiles[i]; p.Max > 0 && counts[p.Name] > p.Max {
			e.Fix = cmp.Or(e.Fix, fmt.Sprintf("Write at most %d for %s.", p.Max, p.Name))
			e.add(MIGTooMany, "%s of %s, but the GPU takes %d at most", words.Plural(counts[p.Name], "instance"), p.Name, p.Max)
		}
	}
}

// addMedia names the instances of which at most one may stand.
func (e *LayoutError) addMedia(profiles []gpu.MIGProfile, counts map[string]int) {
	var wanted []string
	for i := range profiles {
		// Two of a kind that excludes itself are one too many; more say nothing more.
		for range min(counts[profiles[i].Name], 2) {
			wanted = append(wanted, profiles[i].Name)
		}
	}
	var clash []string
	for i, p := range wanted {
		if slices.ContainsFunc(slices.Concat(wanted[:i], wanted[i+1:]), func(o string) bool { return mediaOf(p).excludes(mediaOf(o)) }) {
			clash = append(clash, p)
		}
	}
	if len(clash) > 0 {
		slices.Sort(clash)
		e.add(MIGNoRoom, "a GPU has media engines for one instance with +me, or gives all of them to one with +me.all beside which only "+
			"instances with -me stand; wanted are %s", words.JoinAll(clash))
	}
}

// instancesInUse are in the way. Beside those in use free memory slices are left, and other wanted
// instances take need of them: when there are enough, they are scattered. need is 0 for instances
// that are not wanted at all.
func instancesInUse(blocking []MIGInstance, free, need int) *LayoutError {
	who := words.Each(blocking, func(b MIGInstance) string { return fmt.Sprintf("%s at %d (%s)", b.Profile, b.Start, b.Held) })
	text := ""
	if need > 0 {
		text = fmt.Sprintf("; beside what is in use %s %s free, ", words.Plural(free, "memory slice"), words.Verb(free, "is", "are"))
		if need > free {
			text += fmt.Sprintf("and %d are needed", need)
		} else {
			text += "which would be enough if they lay together"
		}
	}
	e := unfit(MIGInUse, "%s in use %s the way: %s%s", words.Plural(len(blocking), "instance"), words.Verb(len(blocking), "is in", "are in"),
		words.JoinAll(who), text)
	e.By = words.Each(blocking, func(b MIGInstance) string { return b.Held })
	return e
}

// vgpusHeld would have to be removed: clears is true when no vGPU at all may be there, for a change of
// mode.
func vgpusHeld(held []gpu.VGPUInstance, clears bool) *LayoutError {
	who := words.Each(held, func(in gpu.VGPUInstance) string {
		return fmt.Sprintf("%s %s is held by %s", in.Type, functionText(in.Function), in.HeldBy())
	})
	text := words.Plural(len(held), "vGPU") + " in use " + words.Verb(len(held), "is", "are") + " in the way: "
	if clears {
		text = "the modes of the GPU change only without vGPUs: "
	}
	e := unfit(VGPUHeld, "%s", text+words.JoinAll(who))
	e.By = words.Each(held, func(in gpu.VGPUInstance) string { return in.HeldBy() })
	return e
}

// busyWhile says who uses a GPU of which something is switched, which takes it idle.
func busyWhile(what string, on bool, by []string) *LayoutError {
	e := unfit(VGPUBusy, "the GPU's %s switched %s only while nothing uses it, and it is in use by %s", what, onOff(on), words.JoinAll(by))
	e.By = by
	return e
}

// NeedsReset says that the MIG mode of a GPU changes with a reset.
func NeedsReset(on bool) error {
	return unfit(VGPUReset, "turning its MIG mode %s requires a reset of this GPU", onOff(on))
}

func noVGPUs() error { return unfit(VGPUUnsupported, "the GPU's driver on the host offers no vGPUs") }

func sharesInMIGMode() error {
	return unfit(VGPUInMIGMode, "the GPU is in MIG mode, in which it has no vGPUs that share it by time slices")
}

func noSuchProfile(t *gpu.VGPUType) error {
	return unfit(VGPUProfile, "vGPU type %s is MIG-backed, and the GPU offers no instance profile %q for it", t.Name, t.MIGProfile)
}

func noRoomForInstances(wanted []vgpuDemand, err error) error {
	return unfit(VGPUCapacity, "%s: the GPU has no room for their GPU instances: %s", demandsText(wanted), err)
}

func vgpusUntold(wanted string) error {
	return unfit(VGPUUntold, "how many %s the GPU takes cannot be determined: in heterogeneous mode it depends on where they are placed, or "+
		"the driver does not report it", wanted)
}

// sizesDiffer says of vGPUs of several frame buffer sizes what they lack on a GPU.
func sizesDiffer(g *gpu.GPU, wanted []vgpuDemand) error {
	switch {
	case !mixedSizes(wanted):
		return noHeterogeneousMode()
	case !mixes(g):
		return unfit(VGPUSizes, "%s differ in frame buffer size, and the GPU or its driver has no heterogeneous mode for that",
			demandsText(wanted))
	}
	return unfit(VGPUSizesMode, "%s differ in frame buffer size, which requires heterogeneous mode", demandsText(wanted))
}

func noHeterogeneousMode() error {
	return unfit(VGPUNoMode, "the GPU or its driver has no heterogeneous mode")
}

// spanText is "3g.40gb at 4 (slices 4 to 7)".
func spanText(p gpu.MIGPlacement, size int) string {
	if size == 1 {
		return fmt.Sprintf("%s at %d", p.Profile, p.Start)
	}
	return fmt.Sprintf("%s at %d (slices %d to %d)", p.Profile, p.Start, p.Start, p.Start+size-1)
}

func startsText(starts []int) string { return words.JoinAll(words.Each(starts, strconv.Itoa)) }

func functionText(function int) string {
	if function == gpu.Itself {
		return "on the GPU itself"
	}
	return fmt.Sprintf("on virtual function %d", function)
}

func onOff(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }
