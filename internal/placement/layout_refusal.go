package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

func unfit(f gpu.Fault, format string, args ...any) *gpu.Refusal {
	var r gpu.Refusal
	add(&r, f, format, args...)
	return &r
}

// add gathers what is wrong with a layout.
func add(r *gpu.Refusal, f gpu.Fault, format string, args ...any) {
	r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...))
	if r.Fault == 0 || f < r.Fault {
		r.Fault, r.Code = f, cmp.Or(codes[f], gpu.InvalidParameter)
	}
}

// addUnknown names what a GPU offers in place of a profile, or of a type.
func addUnknown(r *gpu.Refusal, f gpu.Fault, kind, name string, offered []string) {
	text := "none"
	switch {
	case len(offered) > words.Listed:
		text = words.Some(name, offered)
	case len(offered) > 0:
		text = words.JoinAll(offered)
	}
	r.Meant = cmp.Or(r.Meant, words.DidYouMean(name, offered))
	add(r, f, "there is no %s %s: the GPU offers %s", kind, name, text)
}

func addProfile(r *gpu.Refusal, name string, profiles []gpu.MIGProfile) {
	addUnknown(r, MIGUnknownProfile, "profile", name, words.Each(profiles, func(p gpu.MIGProfile) string { return p.Name }))
}

// addTooMany compares numbers of instances with what an empty GPU takes. A profile
// whose maximum is not known is bounded by its placements alone.
func addTooMany(r *gpu.Refusal, profiles []gpu.MIGProfile, counts map[string]int) {
	for i := range profiles {
		if p := &profiles[i]; p.Max > 0 && counts[p.Name] > p.Max {
			r.Fix = cmp.Or(r.Fix, fmt.Sprintf("write at most %d for %s", p.Max, p.Name))
			add(r, MIGTooMany, "%s of %s, but the GPU takes %d at most", words.Plural(counts[p.Name], "instance"), p.Name, p.Max)
		}
	}
}

// addMedia names the instances of which at most one may stand.
func addMedia(r *gpu.Refusal, profiles []gpu.MIGProfile, counts map[string]int) {
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
		add(r, MIGNoRoom, "a GPU has media engines for one instance with +me, or gives all of them to one with +me.all beside which only "+
			"instances with -me stand; wanted are %s", words.JoinAll(clash))
	}
}

// instancesInUse are in the way. Beside those in use free memory slices are left, and other wanted
// instances take need of them: when there are enough, they are scattered. need is 0 for instances
// that are not wanted at all.
func instancesInUse(blocking []MIGInstance, free, need int) *gpu.Refusal {
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
	return unfit(MIGInUse, "%s in use %s the way: %s%s", words.Plural(len(blocking), "instance"), words.Verb(len(blocking), "is in", "are in"),
		words.JoinAll(who), text).Or("stop what uses them first").
		HeldBy(words.Each(blocking, func(b MIGInstance) string { return b.Held })...)
}

// vgpusHeld would have to be removed: clears is true when no vGPU at all may be there, for a change of
// mode.
func vgpusHeld(held []gpu.VGPUInstance, clears bool) *gpu.Refusal {
	who := words.Each(held, func(in gpu.VGPUInstance) string {
		return fmt.Sprintf("%s %s is held by %s", in.Type, functionText(in.Function), in.HeldBy())
	})
	text := words.Plural(len(held), "vGPU") + " in use " + words.Verb(len(held), "is", "are") + " in the way: "
	if clears {
		text = "the modes of the GPU change only without vGPUs: "
	}
	return unfit(VGPUHeld, "%s", text+words.JoinAll(who)).
		Or("stop what uses it first, and take the vGPUs from the definitions of VMs").
		HeldBy(words.Each(held, func(in gpu.VGPUInstance) string { return in.HeldBy() })...)
}

// busyWhile says who uses a GPU of which something is switched, which takes it idle.
func busyWhile(what string, on bool, by []string) *gpu.Refusal {
	return unfit(VGPUBusy, "the GPU's %s switched %s only while nothing uses it, and it is in use by %s", what, onOff(on), words.JoinAll(by)).
		Or("stop what uses it first").HeldBy(by...)
}

// NeedsReset says that the MIG mode of a GPU changes with a reset.
func NeedsReset(on bool) error {
	return unfit(VGPUReset, "turning its MIG mode %s requires a reset of this GPU", onOff(on)).
		Or("allow it with max_disruption = \"gpu_reset\"").Unless(gpu.DisruptGPUReset)
}

func noVGPUs() error { return unfit(VGPUUnsupported, "the GPU's driver on the host offers no vGPUs") }

func sharesInMIGMode() error {
	return unfit(VGPUInMIGMode, "the GPU is in MIG mode, in which it has no vGPUs that share it by time slices").
		Or("turn MIG mode off first")
}

func noSuchProfile(t *gpu.VGPUType) error {
	return unfit(VGPUProfile, "vGPU type %s is MIG-backed, and the GPU offers no instance profile %q for it", t.Name, t.MIGProfile)
}

func noRoomForInstances(wanted []vgpuDemand, first string, more ...string) error {
	r := unfit(VGPUCapacity, "%s: the GPU has no room for their GPU instances: %s", demandsText(wanted), first)
	r.Reasons = append(r.Reasons, more...)
	return r
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
