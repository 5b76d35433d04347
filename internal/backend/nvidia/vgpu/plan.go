package vgpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

const opPlan = "plan the vGPUs"

// Plan is the smallest change that gives a GPU a layout, none when it has it. vGPUs of a
// wanted type stay where they are. The order is the only one that works:
//
//	remove vGPUs → MIG instances → heterogeneous mode off → functions off → MIG mode
//	→ functions on → heterogeneous mode on → MIG instances → make vGPUs
//
// since sriov-manage destroys MIG instances and ends heterogeneous mode in both
// directions, and MIG mode does not change while the functions are on. Plan refuses what
// [Check] finds, what would take a vGPU from a process that holds it, and turning
// functions or MIG mode while processes use the GPU.
//
// The empty layout takes down what is there for vGPUs: where the virtual functions are on
// these go, and MIG mode with them. A GPU that only has MIG instances is left alone.
func Plan(g GPU, l Layout) ([]Step, error) {
	if err := l.Validate(); err != nil {
		return nil, refuse(g.Address, opPlan, backend.InvalidParameter, "%v", err)
	}
	if findings := Check(g, l); len(findings) > 0 {
		var all []string
		for _, f := range findings {
			all = append(all, f.Message+" ("+f.Rule+")")
		}
		return nil, refuse(g.Address, opPlan, backend.InvalidParameter, "%s", strings.Join(all, "; "))
	}
	if l.Empty() && !g.VFsOn() && len(g.placed()) == 0 {
		return nil, nil
	}
	wanted, _ := l.resolve(&g)
	t := target{
		vfs:           g.SRIOV != nil && !l.Empty(),
		mig:           migBacked(wanted),
		heterogeneous: !l.Empty() && l.heterogeneous(&g, wanted),
		instances:     map[string]int{},
		vgpus:         arrange(&g, wanted),
	}
	for _, d := range wanted {
		if d.typ.Instance != "" {
			t.instances[d.typ.Instance] += d.typ.instances(d.count)
		}
	}
	return steps(&g, t)
}

// target is the state that a GPU is to be in.
type target struct {
	vfs, mig, heterogeneous bool
	instances               map[string]int
	vgpus                   []placed
}

// placed is a vGPU at its place.
type placed struct {
	spec Spec
	typ  Type
}

// arrange keeps the vGPUs that are of a wanted type, those that are held before others,
// and puts what is missing on the first free functions.
func arrange(g *GPU, wanted []demand) []placed {
	missing := map[int]int{}
	for _, d := range wanted {
		missing[d.typ.ID] += d.count
	}
	now := g.placed()
	slices.SortStableFunc(now, func(a, b existing) int {
		return cmp.Compare(min(len(b.holders), 1), min(len(a.holders), 1))
	})
	var out []placed
	for _, v := range now {
		if missing[v.typ.ID] > 0 {
			missing[v.typ.ID]--
			out = append(out, v.placed)
		}
	}
	for _, d := range wanted {
		for range missing[d.typ.ID] {
			out = append(out, placed{typ: d.typ, spec: Spec{Function: g.free(out), Type: d.typ.ID}})
		}
	}
	return out
}

// free is the first function without a vGPU. There are enough of them: Check counts.
func (g *GPU) free(used []placed) int {
	if g.SRIOV == nil {
		return Itself
	}
	index := 0
	for slices.ContainsFunc(used, func(p placed) bool { return p.spec.Function == index }) {
		index++
	}
	return index
}

// existing is a vGPU that is there.
type existing struct {
	placed
	holders []Holder
}

// placed are the vGPUs that a GPU has, in the order of its functions.
func (g *GPU) placed() []existing {
	var all []existing
	for _, f := range g.Functions {
		for _, v := range f.VGPUs {
			all = append(all, existing{
				placed:  placed{typ: v.Type, spec: Spec{Function: f.Index, UUID: v.UUID, Type: v.Type.ID}},
				holders: v.Holders,
			})
		}
	}
	return all
}

// steps leads a GPU to a target.
func steps(g *GPU, t target) ([]Step, error) {
	g.identify(t.vgpus)
	// The largest go first: small ones in between would leave no room for them.
	slices.SortStableFunc(t.vgpus, func(a, b placed) int {
		return cmp.Or(cmp.Compare(b.typ.FrameBuffer, a.typ.FrameBuffer), cmp.Compare(a.spec.Function, b.spec.Function))
	})
	var (
		modeChange = g.MIG != nil && g.migOn() != t.mig
		off        = g.VFsOn() && (!t.vfs || modeChange)
		on         = t.vfs && (!g.VFsOn() || off)
		turn       = off || on || modeChange
		mixing     = t.heterogeneous && (!g.Heterogeneous.Enabled || on)
		unmixing   = g.Heterogeneous.Enabled && (turn || !t.heterogeneous)
		now        = g.placed()
		gone, stay []existing
	)
	for _, v := range now {
		if off || mixing || unmixing || !slices.ContainsFunc(t.vgpus, func(w placed) bool { return sameVGPU(v.spec, w.spec) }) {
			gone = append(gone, v)
		} else {
			stay = append(stay, v)
		}
	}
	if err := g.inTheWay(gone, turn); err != nil {
		return nil, err
	}

	p := plan{gpu: g}
	for _, v := range slices.Backward(gone) {
		p.remove(v.placed)
	}
	instances := g.instances()
	if turn && len(instances) > 0 {
		p.instances(instances, nil)
		instances = nil
	}
	if unmixing {
		p.turn(OpHeterogeneous, false)
	}
	if off {
		p.turn(OpVFs, false)
	}
	if modeChange {
		p.turn(OpMIGMode, t.mig)
	}
	if on {
		p.turn(OpVFs, true)
	}
	if mixing {
		p.turn(OpHeterogeneous, true)
	}
	if t.mig && !sameCounts(instances, t.instances) {
		p.instances(instances, t.instances)
	}
	for _, w := range t.vgpus {
		if !slices.ContainsFunc(stay, func(v existing) bool { return sameVGPU(v.spec, w.spec) }) {
			p.create(w)
		}
	}
	return p.steps, nil
}

// inTheWay refuses to take vGPUs from those who hold them, and to rebind a GPU that is in
// use.
func (g *GPU) inTheWay(gone []existing, turn bool) error {
	var held []string
	for _, v := range gone {
		if len(v.holders) > 0 {
			held = append(held, fmt.Sprintf("%s on %s is held by %s", v.typ.ShortName(), g.functionName(v.spec.Function), holders(v.holders)))
		}
	}
	for _, f := range g.Functions {
		if turn && len(f.Holders) > 0 && len(f.VGPUs) == 0 {
			held = append(held, fmt.Sprintf("%s is held by %s", g.functionName(f.Index), holders(f.Holders)))
		}
	}
	for _, p := range g.Processes {
		if turn {
			held = append(held, strings.TrimSpace(fmt.Sprintf("the GPU is used by PID %d %s", p.PID, cmp.Or(p.Holder, p.Name))))
		}
	}
	switch {
	case len(held) > 0:
		return refuse(g.Address, opPlan, backend.InUse, "%s; stop that first", strings.Join(held, "; "))
	case g.HoldersHidden && (turn || len(gone) > 0):
		return refuse(g.Address, opPlan, backend.AccessDenied,
			"%d vGPUs must go for this, and who holds them cannot be seen; run as root", len(gone))
	}
	return nil
}

func sameVGPU(a, b Spec) bool {
	return a.Function == b.Function && a.Type == b.Type && (a.UUID == "" || b.UUID == "" || strings.EqualFold(a.UUID, b.UUID))
}

func sameCounts(a, b map[string]int) bool {
	return len(a) == 0 && len(b) == 0 || maps.Equal(a, b)
}

// identify gives each vGPU without one a UUID that is the same whenever it is made again,
// so that the virtual machines that name it find it after a reboot.
func (g *GPU) identify(vgpus []placed) {
	used := func(id string) bool {
		return slices.ContainsFunc(vgpus, func(o placed) bool { return strings.EqualFold(o.spec.UUID, id) })
	}
	for i := range vgpus {
		for n := 0; vgpus[i].spec.UUID == ""; n++ {
			if id := uuid(cmp.Or(g.UUID, g.Address), vgpus[i].spec.Function, n); !used(id) {
				vgpus[i].spec.UUID = id
			}
		}
	}
}

// plan collects steps with their inverses.
type plan struct {
	gpu   *GPU
	steps []Step
}

func (p *plan) add(s, inverse Step) {
	s.GPU, inverse.GPU = p.gpu.Address, p.gpu.Address
	s.Inverse = &inverse
	p.steps = append(p.steps, s)
}

func (p *plan) turn(op Op, on bool) { p.add(Step{Op: op, On: on}, Step{Op: op, On: !on}) }

func (p *plan) create(v placed) {
	p.add(Step{Op: OpCreate, VGPU: &v.spec, Name: v.typ.ShortName()}, Step{Op: OpRemove, VGPU: &v.spec, Name: v.typ.ShortName()})
}

func (p *plan) remove(v placed) {
	p.add(Step{Op: OpRemove, VGPU: &v.spec, Name: v.typ.ShortName()}, Step{Op: OpCreate, VGPU: &v.spec, Name: v.typ.ShortName()})
}

func (p *plan) instances(from, to map[string]int) {
	p.add(Step{Op: OpMIGInstances, Instances: maps.Clone(to)}, Step{Op: OpMIGInstances, Instances: maps.Clone(from)})
}
