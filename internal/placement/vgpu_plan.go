package placement

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// VGPUPlan is the smallest change that gives a GPU a layout of vGPUs. What is removed goes
// first, then the modes change, then the rest is made.
type VGPUPlan struct {
	Keep, Remove, Create []gpu.VGPUPlace
	// FunctionsOn and Heterogeneous are the modes that the GPU is to be in.
	FunctionsOn, Heterogeneous bool
	// MIG is what becomes of MIG mode and of the GPU instances that vGPUs live in; nil where
	// neither is the subject.
	MIG *VGPUInstances
}

// VGPUInstances are MIG mode, and the GPU instances, for vGPUs.
type VGPUInstances struct {
	Enable bool
	MIGPlan
}

// SetsMode tells whether MIG mode has to be set, be it only that another one is pending.
func (p VGPUPlan) SetsMode(g *gpu.GPU) bool {
	return p.MIG != nil && (g.MIG.Enabled != p.MIG.Enable || g.MIG.Pending != p.MIG.Enable)
}

// turnsMode tells whether the mode in force changes.
func (p VGPUPlan) turnsMode(g *gpu.GPU) bool { return p.MIG != nil && g.MIG.Enabled != p.MIG.Enable }

// Resets tells whether that takes a reset of the GPU.
func (p VGPUPlan) Resets(g *gpu.GPU) bool { return p.turnsMode(g) && g.MIG.NeedsReset }

// Cycles tells whether functions that are on are turned off for a while: MIG mode is not
// switched with them.
func (p VGPUPlan) Cycles(g *gpu.GPU) bool {
	return p.turnsMode(g) && g.VGPU.FunctionsOn && p.FunctionsOn
}

// Switches tells whether virtual functions or MIG mode are switched, which nobody may use the
// GPU for.
func (p VGPUPlan) Switches(g *gpu.GPU) bool {
	return p.FunctionsOn != g.VGPU.FunctionsOn || p.turnsMode(g)
}

// Changes tells whether a GPU is not yet as planned.
func (p VGPUPlan) Changes(g *gpu.GPU) bool {
	return len(p.Remove)+len(p.Create) > 0 || p.Switches(g) || p.Heterogeneous != g.VGPU.Heterogeneous ||
		p.SetsMode(g) || p.MIG != nil && p.MIG.Changes()
}

// Layout is what the GPU has after the plan.
func (p VGPUPlan) Layout() gpu.Layout {
	out := gpu.Layout{
		VGPU: &gpu.VGPUState{FunctionsOn: p.FunctionsOn, Heterogeneous: p.Heterogeneous, Places: sortPlaces(slices.Concat(p.Keep, p.Create))},
	}
	if p.MIG != nil && p.MIG.Enable {
		out.MIG = &gpu.MIGState{Enabled: true, Placements: p.MIG.Layout()}
	}
	return out
}

// LayOutVGPU plans a layout on a GPU as it is now. What is of a wanted type stays where it
// is, what is held before the rest; what is missing goes to the first free functions.
// Processes of units that are stopped meanwhile are not in the way. MIG mode that an earlier
// layout has turned on, which is given, is turned off for vGPUs that share the GPU by time slices.
func LayOutVGPU(g *gpu.GPU, l *gpu.VGPULayout, given gpu.Layout, quiesced ...string) (VGPUPlan, error) {
	t, err := ResolveVGPU(g, l)
	if err != nil {
		return VGPUPlan{}, err
	}
	var mig *instancesWish
	switch ours := given.MIG != nil && given.MIG.Enabled; {
	case t.instances != nil:
		mig = &instancesWish{enable: true, plan: func(have []MIGInstance) (MIGPlan, error) { return PlaceMIG(MIGProfiles(g), have, t.instances) }}
	case inMIGMode(g) && ours:
		mig = follows(g, gpu.MIGState{})
	case inMIGMode(g):
		return VGPUPlan{}, sharesInMIGMode()
	}
	return planVGPU(g, gpu.VGPUState{FunctionsOn: t.functionsOn, Heterogeneous: t.heterogeneous, Places: arrangeVGPUs(g, t.wanted, given)},
		mig, quiesced)
}

// instancesWish is a wanted MIG mode, and how instances that there are become those of it.
type instancesWish struct {
	enable bool
	plan   func(have []MIGInstance) (MIGPlan, error)
}

func follows(g *gpu.GPU, s gpu.MIGState) *instancesWish {
	return &instancesWish{
		enable: s.Enabled, plan: func(have []MIGInstance) (MIGPlan, error) { return FollowMIG(MIGProfiles(g), have, s.Placements) },
	}
}

// FollowVGPU plans modes and vGPUs at given places, as they were before or are declared, and
// MIG mode with its instances where they are the subject.
func FollowVGPU(g *gpu.GPU, l gpu.Layout, quiesced ...string) (VGPUPlan, error) {
	if g.VGPU == nil {
		return VGPUPlan{}, noVGPUs()
	}
	s := *l.VGPU
	var mig *instancesWish
	if l.MIG != nil && g.MIG != nil {
		mig = follows(g, *l.MIG)
	} else if changes := len(s.Places) > 0 || s.FunctionsOn != g.VGPU.FunctionsOn; changes && inMIGMode(g) {
		return VGPUPlan{}, sharesInMIGMode()
	}
	if s.Heterogeneous && !g.VGPU.Heterogeneous && !mixes(g) {
		return VGPUPlan{}, noHeterogeneousMode()
	}
	s.Places = slices.Clone(s.Places)
	for i := range s.Places {
		s.Places[i].Type = vgpuTypeName(g.VGPU, s.Places[i].Type)
	}
	if err := checkPlaces(g, s, l.MIG); err != nil {
		return VGPUPlan{}, err
	}
	return planVGPU(g, s, mig, quiesced)
}

// checkPlaces tells whether the vGPUs of a state can be beside each other on a GPU. A type
// that is not offered stands where it is already.
func checkPlaces(g *gpu.GPU, s gpu.VGPUState, mig *gpu.MIGState) error {
	var (
		v      = g.VGPU
		fault  gpu.Refusal
		wanted []vgpuDemand
	)
	for i, p := range s.Places {
		t, ok := v.Offers(p.Type)
		there := slices.ContainsFunc(v.Instances, func(in gpu.VGPUInstance) bool { return sameVGPU(v, in.VGPUPlace, p) })
		switch {
		case !ok && !there:
			addUnknown(&fault, VGPUUnknownType, "vGPU type", p.Type, vgpuTypeNames(v))
		case ok:
			same := slices.IndexFunc(wanted, func(d vgpuDemand) bool { return d.typ.Name == t.Name })
			if same < 0 {
				wanted, same = append(wanted, vgpuDemand{typ: t}), len(wanted)
			}
			wanted[same].count++
		}
		if (p.Function == gpu.Itself) != (v.Functions == 0) || p.Function >= v.Functions && p.Function != gpu.Itself {
			add(&fault, VGPUFunction, "%s cannot be %s: the GPU has %s", p.Type, functionText(p.Function),
				words.Plural(v.Functions, "virtual function"))
		}
		if f, taken := v.TakenAt(p.Function); taken && s.FunctionsOn {
			add(&fault, VGPUTaken, "%s cannot be %s: %s", p.Type, functionText(p.Function), f)
		}
		if o := slices.IndexFunc(s.Places[:i], func(o gpu.VGPUPlace) bool { return o.Function == p.Function }); o >= 0 &&
			p.Function != gpu.Itself {
			add(&fault, VGPUFunction, "%s and %s cannot both be %s", p.Type, s.Places[o].Type, functionText(p.Function))
		}
	}
	if fault.Fault != 0 || len(wanted) == 0 {
		return fault.Err()
	}
	if sharedAlike(&fault, wanted); fault.Fault != 0 {
		return fault.Err()
	}
	if wanted[0].typ.MIGProfile != "" {
		return haveInstances(g, wanted, mig)
	}
	if !s.Heterogeneous && mixedSizes(wanted) {
		return sizesDiffer(g, wanted)
	}
	return vgpuRoom(v, wanted)
}

// haveInstances tells whether there are GPU instances for MIG-backed vGPUs.
func haveInstances(g *gpu.GPU, wanted []vgpuDemand, mig *gpu.MIGState) error {
	profiles, have := MIGProfiles(g), map[string]int{}
	if mig != nil {
		for _, p := range mig.Placements {
			have[p.Profile]++
		}
	}
	for _, d := range wanted {
		if _, ok := findProfile(profiles, d.typ.MIGProfile); !ok {
			return noSuchProfile(&d.typ)
		}
	}
	need, err := vgpuInstances(profiles, wanted)
	for _, name := range slices.Sorted(maps.Keys(need)) {
		if need[name] > have[name] {
			return noRoomForInstances(wanted, fmt.Sprintf("of %s there are %d, and %d are needed", name, have[name], need[name]))
		}
	}
	return err
}

// inMIGMode tells whether a GPU is in MIG mode, now or with the next reset.
func inMIGMode(g *gpu.GPU) bool { return g.MIG != nil && (g.MIG.Enabled || g.MIG.Pending) }

// planVGPU leads a GPU to a state. All modes change only while the GPU has no vGPU, and the
// mode of mixed sizes and the GPU instances end with the functions.
func planVGPU(g *gpu.GPU, to gpu.VGPUState, mig *instancesWish, quiesced []string) (VGPUPlan, error) {
	p := VGPUPlan{FunctionsOn: to.FunctionsOn, Heterogeneous: to.Heterogeneous}
	if mig != nil {
		p.MIG = &VGPUInstances{Enable: mig.enable}
	}
	clears := p.Switches(g) || g.VGPU.Heterogeneous != to.Heterogeneous
	var held []gpu.VGPUInstance
	left := slices.Clone(to.Places)
	for _, in := range byFunction(g) {
		i := slices.IndexFunc(left, func(w gpu.VGPUPlace) bool { return sameVGPU(g.VGPU, in.VGPUPlace, w) })
		if i >= 0 && !clears {
			p.Keep = append(p.Keep, in.VGPUPlace)
			left = slices.Delete(left, i, i+1)
			continue
		}
		p.Remove = append(p.Remove, in.VGPUPlace)
		if in.HeldBy() != "" {
			held = append(held, in)
		}
	}
	if len(held) > 0 {
		return VGPUPlan{}, vgpusHeld(held, clears)
	}
	if by := Users(g, quiesced); p.Switches(g) && len(by) > 0 {
		if p.turnsMode(g) {
			return VGPUPlan{}, busyWhile("MIG mode is", mig.enable, by)
		}
		return VGPUPlan{}, busyWhile("virtual functions are", to.FunctionsOn, by)
	}
	p.Create = left
	if mig != nil {
		var err error
		if p.MIG.MIGPlan, err = p.instances(g, mig, quiesced); err != nil {
			return VGPUPlan{}, err
		}
	}
	identify(g, p.Keep, p.Create)
	// The largest go first: small ones in between would leave no room for them.
	slices.SortStableFunc(p.Create, func(a, b gpu.VGPUPlace) int {
		return cmp.Or(cmp.Compare(frameBuffer(g.VGPU, b.Type), frameBuffer(g.VGPU, a.Type)), cmp.Compare(a.Function, b.Function))
	})
	slices.Reverse(p.Remove)
	return p, nil
}

// instances plans the GPU instances. Those stay first of all that vGPUs live in which stay, and
// always those of vGPUs that are held; a vGPU that loses its instance is made again in another.
func (p *VGPUPlan) instances(g *gpu.GPU, mig *instancesWish, quiesced []string) (MIGPlan, error) {
	have := runIn(g, quiesced)
	if p.Switches(g) { // which takes them all
		plan, err := mig.plan(nil)
		for _, in := range have {
			plan.Remove = append(plan.Remove, in.MIGPlacement)
		}
		return plan, err
	}
	var stay, held []gpu.VGPUInstance
	for _, in := range g.VGPU.Instances {
		if slices.Contains(p.Keep, in.VGPUPlace) {
			stay = append(stay, in)
			if in.HeldBy() != "" {
				held = append(held, in)
			}
		}
	}
	plan, err := mig.plan(livedIn(g, have, stay))
	if err != nil {
		plan, err = mig.plan(livedIn(g, have, held))
	}
	if err != nil {
		if r := gpu.RefusalOf(err); r.Fault == MIGInUse {
			r.Fault, r.Fix = VGPUInstancesHeld, "stop what uses it first"
		}
		return MIGPlan{}, err
	}
	for _, in := range stay {
		if slices.ContainsFunc(plan.Remove, func(at gpu.MIGPlacement) bool { return mayLiveIn(g, in, at) }) {
			p.Keep = slices.DeleteFunc(p.Keep, func(k gpu.VGPUPlace) bool { return k == in.VGPUPlace })
			p.Remove, p.Create = append(p.Remove, in.VGPUPlace), append(p.Create, in.VGPUPlace)
		}
	}
	return plan, nil
}

// livedIn marks the GPU instances of some vGPUs as held by them.
func livedIn(g *gpu.GPU, have []MIGInstance, by []gpu.VGPUInstance) []MIGInstance {
	out := slices.Clone(have)
	for i := range out {
		for _, in := range by {
			if out[i].Held == "" && mayLiveIn(g, in, out[i].MIGPlacement) {
				out[i].Held = cmp.Or(in.HeldBy(), "vGPU "+in.Type)
			}
		}
	}
	return out
}

// mayLiveIn tells whether a vGPU lives in the GPU instance at a place, or may do so where the
// driver does not tell (assumption linux-vgpu-instance-id).
func mayLiveIn(g *gpu.GPU, in gpu.VGPUInstance, at gpu.MIGPlacement) bool {
	if in.GPUInstance == nil {
		t, ok := g.VGPU.Offers(in.Type)
		return !ok || t.MIGProfile == at.Profile
	}
	return slices.ContainsFunc(g.MIG.Instances, func(i gpu.GPUInstance) bool { return i.ID == *in.GPUInstance && i.Placement() == at })
}

func byFunction(g *gpu.GPU) []gpu.VGPUInstance {
	return slices.SortedStableFunc(slices.Values(g.VGPU.Instances), func(a, b gpu.VGPUInstance) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.UUID, b.UUID))
	})
}

func frameBuffer(v *gpu.VGPU, name string) gpu.Bytes {
	t, _ := v.Offers(name)
	return t.FrameBuffer
}

// arrangeVGPUs finds places for what is wanted. What an earlier layout gave and a reboot took goes back to where
// it was: VMs name their vGPUs by the place.
func arrangeVGPUs(g *gpu.GPU, wanted []vgpuDemand, given gpu.Layout) []gpu.VGPUPlace {
	now := byFunction(g)
	slices.SortStableFunc(now, func(a, b gpu.VGPUInstance) int { return cmp.Compare(min(len(b.HeldBy()), 1), min(len(a.HeldBy()), 1)) })
	var out []gpu.VGPUPlace
	missing := slices.Clone(wanted)
	for _, in := range now {
		i := slices.IndexFunc(missing, func(d vgpuDemand) bool { return d.count > 0 && sameVGPUType(g.VGPU, in.Type, d.typ.Name) })
		if i >= 0 {
			missing[i].count--
			out = append(out, in.VGPUPlace)
		}
	}
	for _, p := range lostPlaces(g.VGPU, given, out) {
		i := slices.IndexFunc(missing, func(d vgpuDemand) bool { return d.count > 0 && sameVGPUType(g.VGPU, p.Type, d.typ.Name) })
		if i >= 0 {
			missing[i].count--
			out = append(out, p)
		}
	}
	for _, d := range missing {
		for range d.count {
			out = append(out, gpu.VGPUPlace{Type: d.typ.Name, Function: freeFunction(g.VGPU, out)})
		}
	}
	return out
}

// lostPlaces are those of an earlier layout that no vGPU is at which stays.
func lostPlaces(v *gpu.VGPU, given gpu.Layout, stay []gpu.VGPUPlace) []gpu.VGPUPlace {
	if given.VGPU == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(given.VGPU.Places), func(p gpu.VGPUPlace) bool {
		_, taken := v.TakenAt(p.Function)
		return taken || (p.Function == gpu.Itself) != (v.Functions == 0) || p.Function >= max(v.Functions, 1) ||
			slices.ContainsFunc(stay, func(o gpu.VGPUPlace) bool {
				return o.Function == p.Function && (p.Function != gpu.Itself || gpu.SameID(o.UUID, p.UUID))
			})
	})
}

// freeFunction is the first without a vGPU; vgpuRoom has made sure that there is one.
func freeFunction(v *gpu.VGPU, used []gpu.VGPUPlace) int {
	if v.Functions == 0 {
		return gpu.Itself
	}
	i := 0
	free := func() bool {
		_, taken := v.TakenAt(i)
		return !taken && !slices.ContainsFunc(used, func(p gpu.VGPUPlace) bool { return p.Function == i })
	}
	for !free() {
		i++
	}
	return i
}

// sameVGPU tells whether two places are one. Not every host gives vGPUs a UUID.
func sameVGPU(v *gpu.VGPU, a, b gpu.VGPUPlace) bool {
	return a.Function == b.Function && sameVGPUType(v, a.Type, b.Type) && (a.UUID == "" || b.UUID == "" || gpu.SameID(a.UUID, b.UUID))
}

func sortPlaces(places []gpu.VGPUPlace) []gpu.VGPUPlace {
	slices.SortFunc(places, func(a, b gpu.VGPUPlace) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Type, b.Type), cmp.Compare(a.UUID, b.UUID))
	})
	return places
}

// identify gives each vGPU without one a UUID that is the same whenever it is made again,
// so that the virtual machines that name it find it after a reboot.
func identify(g *gpu.GPU, kept, places []gpu.VGPUPlace) {
	for i := range places {
		for n := 0; places[i].UUID == ""; n++ {
			id := vgpuUUID(g.ID, places[i].Function, n)
			if !slices.ContainsFunc(slices.Concat(kept, places), func(o gpu.VGPUPlace) bool { return gpu.SameID(o.UUID, id) }) {
				places[i].UUID = id
			}
		}
	}
}

// vgpuNamespace is the project's for UUIDs of mediated devices, made once at random.
var vgpuNamespace = [16]byte{0x5f, 0x0e, 0x5d, 0x3a, 0x91, 0x6c, 0x4b, 0x0e, 0x8d, 0x27, 0x3c, 0x4a, 0x77, 0x1b, 0xe2, 0x90}

// vgpuUUID is the name-based UUID (RFC 9562, version 5) of the n-th vGPU of a function.
func vgpuUUID(id string, function, n int) string {
	hash := sha1.New()
	hash.Write(vgpuNamespace[:])
	fmt.Fprintf(hash, "%s/%d/%d", strings.ToUpper(id), function, n)
	u := hash.Sum(nil)[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
