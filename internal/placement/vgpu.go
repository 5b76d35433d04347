package placement

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// vgpuDemand is a wanted number of vGPUs of one type.
type vgpuDemand struct {
	typ   gpu.VGPUType
	count int
}

// VGPUTarget is what a GPU is to have, without saying where.
type VGPUTarget struct {
	functionsOn, heterogeneous bool
	wanted                     []vgpuDemand
	// instances are how many GPU instances of each profile MIG-backed types live in; nil for
	// types that share the GPU by time slices.
	instances map[string]int
}

// HasVGPULayout tells whether a GPU has exactly the wanted vGPUs, wherever they are, and
// the modes for them.
func HasVGPULayout(g *gpu.GPU, l *gpu.VGPULayout) bool {
	t, err := ResolveVGPU(g, l)
	if err != nil || t.functionsOn != g.VGPU.FunctionsOn || t.heterogeneous != g.VGPU.Heterogeneous {
		return false
	}
	missing := len(g.VGPU.Instances)
	for _, d := range t.wanted {
		have := 0
		for i := range g.VGPU.Instances {
			if sameVGPUType(g.VGPU, g.VGPU.Instances[i].Type, d.typ.Name) {
				have++
			}
		}
		if have != d.count {
			return false
		}
		missing -= have
	}
	return missing == 0 && (t.instances == nil || hasInstances(g, t.instances))
}

// hasInstances tells whether a GPU in MIG mode has numbers of instances. Which compute
// instances are in them is the guests' business.
func hasInstances(g *gpu.GPU, want map[string]int) bool {
	have := map[string]int{}
	for i := range g.MIG.Instances {
		have[g.MIG.Instances[i].Profile]++
	}
	return g.MIG.Enabled && g.MIG.Pending && maps.Equal(have, want)
}

// ResolveVGPU works out what a layout means on a GPU, and finds what the GPU can never
// have of it, whoever uses it now.
func ResolveVGPU(g *gpu.GPU, l *gpu.VGPULayout) (VGPUTarget, error) {
	if g.VGPU == nil {
		return VGPUTarget{}, noVGPUs()
	}
	wanted, err := vgpuDemands(g.VGPU, l)
	if err != nil {
		return VGPUTarget{}, err
	}
	if len(wanted) == 0 {
		return VGPUTarget{}, nil
	}
	t := VGPUTarget{functionsOn: g.VGPU.Functions > 0, wanted: wanted}
	if wanted[0].typ.MIGProfile != "" {
		return t, t.inInstances(g, l)
	}
	if i := slices.IndexFunc(wanted, func(d vgpuDemand) bool { return d.typ.FrameBuffer == 0 }); i >= 0 &&
		len(wanted) > 1 && l.Heterogeneous == nil && !g.VGPU.Heterogeneous {
		return VGPUTarget{}, unfit(VGPUSizes, "the driver does not tell the frame buffer size of %s, and so not whether %s differ in it",
			wanted[i].typ.Name, demandsText(wanted))
	}
	t.heterogeneous = mixedSizes(wanted) || g.VGPU.Heterogeneous
	if l.Heterogeneous != nil {
		t.heterogeneous = *l.Heterogeneous
	}
	if t.heterogeneous && !mixes(g) || !t.heterogeneous && mixedSizes(wanted) {
		return VGPUTarget{}, sizesDiffer(g, wanted)
	}
	if l.Type != "" && l.Count == nil {
		if t.heterogeneous {
			return VGPUTarget{}, vgpusUntold(demandsText(wanted))
		}
		wanted[0].count = wanted[0].typ.Max
		if n := g.VGPU.Functions; n > 0 {
			wanted[0].count = min(wanted[0].count, n)
		}
		if wanted[0].count < 1 {
			return VGPUTarget{}, vgpusUntold(wanted[0].typ.Name)
		}
	}
	if err := vgpuRoom(g.VGPU, wanted); err != nil {
		return VGPUTarget{}, err
	}
	return t, nil
}

// mixes tells whether a GPU has heterogeneous mode, as far as it tells: in MIG mode it has not.
func mixes(g *gpu.GPU) bool { return g.VGPU.HeterogeneousSupported || inMIGMode(g) }

// inInstances works out the GPU instances of MIG-backed types, and whether an empty GPU has
// room for them.
func (t *VGPUTarget) inInstances(g *gpu.GPU, l *gpu.VGPULayout) error {
	if l.Heterogeneous != nil && *l.Heterogeneous {
		return unfit(VGPUNoMode,
			"%s live in GPU instances, whose sizes differ without heterogeneous mode, and which a GPU in that mode does not have",
			demandsText(t.wanted))
	}
	profiles := MIGProfiles(g)
	for _, d := range t.wanted {
		if _, ok := findProfile(profiles, d.typ.MIGProfile); !ok || g.MIG == nil {
			return noSuchProfile(&d.typ)
		}
	}
	if l.Type != "" && l.Count == nil {
		d := &t.wanted[0]
		profile, _ := findProfile(profiles, d.typ.MIGProfile)
		d.count = cmp.Or(d.typ.Max, profile.Max)
		if n := g.VGPU.Functions; n > 0 {
			d.count = min(d.count, n)
		}
	}
	if err := vgpuRoom(g.VGPU, t.wanted); err != nil {
		return err
	}
	var err error
	if t.instances, err = vgpuInstances(profiles, t.wanted); err != nil {
		return err
	}
	if _, err := PlaceMIG(profiles, nil, t.instances); err != nil {
		why := gpu.RefusalOf(err).Reasons
		return noRoomForInstances(t.wanted, why[0], why[1:]...)
	}
	return nil
}

// vgpuInstances are the GPU instances that MIG-backed vGPUs live in, by profile. One that takes
// several has only vGPUs of one size, and which of them it gets is the driver's choice: with
// several sizes in such instances nobody could tell how many it takes.
func vgpuInstances(profiles []gpu.MIGProfile, wanted []vgpuDemand) (map[string]int, error) {
	out := map[string]int{}
	first, count := map[string]vgpuDemand{}, map[string]int{}
	for _, d := range wanted {
		name := d.typ.MIGProfile
		profile, _ := findProfile(profiles, name)
		each := perInstance(profile, d.typ)
		if f, more := first[name]; !more {
			first[name] = d
		} else if f.typ.FrameBuffer != d.typ.FrameBuffer && max(each, perInstance(profile, f.typ)) > 1 {
			return nil, unfit(VGPUBeside, notBeside, f.typ.Name, d.typ.Name,
				"an instance of "+name+" takes several vGPUs of one frame buffer size, and the driver chooses which")
		}
		count[name] += d.count
		out[name] = (count[name] + each - 1) / each
	}
	return out, nil
}

// perInstance is how many vGPUs of a type live in one GPU instance of its profile: what the GPU
// takes of the one, by what it takes of the other (assumption linux-vgpu-per-instance).
func perInstance(p *gpu.MIGProfile, t gpu.VGPUType) int {
	return max(1, t.Max/max(1, p.Max))
}

// vgpuDemands gives a layout's names the types that they mean on a GPU, the largest
// first. The count of a layout that leaves it open is 0.
func vgpuDemands(v *gpu.VGPU, l *gpu.VGPULayout) ([]vgpuDemand, error) {
	counts := l.Types
	if l.Type != "" {
		counts = map[string]int{l.Type: 0}
		if l.Count != nil {
			counts[l.Type] = *l.Count
		}
	}
	var (
		out   []vgpuDemand
		fault gpu.Refusal
	)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t, ok := v.Offers(name)
		switch n := counts[name]; {
		case !ok:
			addUnknown(&fault, VGPUUnknownType, "vGPU type", name, vgpuTypeNames(v))
		case n < 0:
			add(&fault, VGPUCount, "%d vGPUs of %s cannot be made", n, t.Name)
		case n == 0 && (l.Type == "" || l.Count != nil): // none of it
		default:
			same := slices.IndexFunc(out, func(d vgpuDemand) bool { return d.typ.Name == t.Name })
			if same < 0 { // else one type under two of its names
				out, same = append(out, vgpuDemand{typ: t}), len(out)
			}
			out[same].count += n
		}
	}
	slices.SortStableFunc(out, func(a, b vgpuDemand) int {
		return cmp.Or(cmp.Compare(b.typ.FrameBuffer, a.typ.FrameBuffer), cmp.Compare(a.typ.Name, b.typ.Name))
	})
	sharedAlike(&fault, out)
	return out, fault.Err()
}

const notBeside = "%s and %s cannot be beside each other on a GPU: %s"

// sharedAlike refuses types that live in GPU instances beside those that share the GPU by time
// slices.
func sharedAlike(fault *gpu.Refusal, wanted []vgpuDemand) {
	backed := func(d vgpuDemand) bool { return d.typ.MIGProfile != "" }
	in, out := slices.IndexFunc(wanted, backed), slices.IndexFunc(wanted, func(d vgpuDemand) bool { return !backed(d) })
	if in >= 0 && out >= 0 {
		add(fault, VGPUBeside, notBeside, wanted[in].typ.Name, wanted[out].typ.Name,
			"the first lives in a GPU instance, the second shares a GPU that is not in MIG mode")
	}
}

const atMost = "%s, but the GPU takes %d at most"

// vgpuRoom compares numbers of vGPUs with what an empty GPU takes.
func vgpuRoom(v *gpu.VGPU, wanted []vgpuDemand) error {
	var (
		fault       gpu.Refusal
		total, most int
		memory      gpu.Bytes
	)
	for _, d := range wanted {
		if d.typ.Max > 0 && d.count > d.typ.Max {
			add(&fault, VGPUCapacity, atMost, demandsText([]vgpuDemand{d}), d.typ.Max)
		}
		total += d.count
		most = max(most, d.typ.Max)
		memory += gpu.Bytes(max(d.count, 0)) * d.typ.FrameBuffer
	}
	if fault.Fault != 0 {
		return fault.Err()
	}
	text := demandsText(wanted)
	backed := len(wanted) > 0 && wanted[0].typ.MIGProfile != ""
	switch usable := usableByVGPUs(v); {
	case v.Functions > 0 && total > v.Functions:
		add(&fault, VGPUCapacity, "%s, but each takes a virtual function and the GPU has %d", text, v.Functions)
	case v.Functions > 0 && total > v.Functions-len(v.Taken):
		add(&fault, VGPUTaken, "%s, but each takes a virtual function and the GPU has %d, of which %s", text, v.Functions,
			words.JoinAll(words.Each(v.Taken, func(f gpu.TakenFunction) string { return f.String() })))
	case backed: // as many as there is room for their instances
	case !mixedSizes(wanted) && most > 0 && total > most:
		add(&fault, VGPUCapacity, atMost, text, most)
	case memory > usable:
		add(&fault, VGPUCapacity, "%s take %s together, but the GPU has %s for vGPUs", text, memory, usable)
	}
	return fault.Err()
}

// usableByVGPUs is the frame buffer that vGPUs can have, as far as the types tell: the
// most that a GPU full of one type gives out.
func usableByVGPUs(v *gpu.VGPU) gpu.Bytes {
	var most gpu.Bytes
	for _, t := range v.Types {
		switch {
		case t.MIGProfile != "":
		case t.Max <= 0 || t.FrameBuffer == 0:
			return math.MaxUint64
		default:
			most = max(most, gpu.Bytes(t.Max)*t.FrameBuffer)
		}
	}
	return most
}

func mixedSizes(wanted []vgpuDemand) bool {
	return slices.ContainsFunc(wanted, func(d vgpuDemand) bool { return d.typ.FrameBuffer != wanted[0].typ.FrameBuffer })
}

// sameVGPUType compares names of types, of which either may be one that the driver does
// not list.
func sameVGPUType(v *gpu.VGPU, a, b string) bool {
	return gpu.SameID(vgpuTypeName(v, a), vgpuTypeName(v, b))
}

func vgpuTypeName(v *gpu.VGPU, name string) string {
	if t, ok := v.Offers(name); ok {
		return t.Name
	}
	return name
}

// vgpuTypeNames are the types that a config may ask for, by size.
func vgpuTypeNames(v *gpu.VGPU) []string {
	types := slices.Clone(v.Types)
	slices.SortStableFunc(types, func(a, b gpu.VGPUType) int {
		return cmp.Or(cmp.Compare(a.FrameBuffer, b.FrameBuffer), cmp.Compare(a.Name, b.Name))
	})
	return words.Each(types, func(t gpu.VGPUType) string { return t.Name })
}

func demandsText(wanted []vgpuDemand) string {
	return strings.Join(words.Each(wanted, func(d vgpuDemand) string {
		if d.count > 0 {
			return fmt.Sprintf("%d × %s", d.count, d.typ.Name)
		}
		return d.typ.Name
	}), ", ")
}

// VGPULayoutText writes a wanted layout: "2 × L40S-12Q, 1 × L40S-24Q".
func VGPULayoutText(l *gpu.VGPULayout) string {
	switch {
	case l.Type != "" && l.Count == nil:
		return "as many " + l.Type + " as it takes"
	case l.Type != "":
		return fmt.Sprintf("%d × %s", *l.Count, l.Type)
	}
	return cmp.Or(countsText(l.Types), "no vGPUs")
}
