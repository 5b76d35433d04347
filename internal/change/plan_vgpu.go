package change

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

const (
	setVGPUs     = "set the vGPUs"
	restoreVGPUs = "put the vGPUs back"
)

// vgpuLayout plans a layout of kind vGPU. vGPUs that are as wanted stay, those that are
// held are never removed, and GPUs that are as wanted are not touched.
func (p *planner) vgpuLayout(c *configChange) error {
	before, placed := map[string]gpu.VGPUState{}, map[string]gpu.VGPUState{}
	if c.claim != nil {
		maps.Copy(before, c.claim.VGPUBefore)
		maps.Copy(placed, c.claim.VGPULayout)
	}
	v := vgpuChange{planner: p, watchers: c.shape.QuiesceUnits}
	for _, id := range p.selected(c) {
		if p.touches(c, id) {
			layout, err := v.wants(id, c.want.VGPU)
			if err != nil {
				return err
			}
			was, _ := byID(placed, id)
			forgetID(placed, id)
			placed[id] = identified(layout, was)
		}
		if c.covers(id) {
			continue
		}
		other, err := p.joins(c, id)
		if err != nil {
			return err
		}
		g, ok := p.host.GPU(id)
		shows := ok && g.VGPU != nil
		if other != nil {
			if state, known := byID(other.VGPUBefore, id); known {
				before[id] = state
			}
		} else if shows {
			before[id] = g.VGPU.State()
		}
		if p.change.ClaimOnly && shows {
			placed[id] = g.VGPU.State()
		}
	}
	for _, id := range p.leaving(c) {
		if c.shape.Restore && !p.change.ClaimOnly {
			if err := v.restores(id, before); err != nil {
				return err
			}
		}
		forgetID(before, id)
		forgetID(placed, id)
	}
	v.steps()
	p.record(c, func(claim *gpu.Claim) {
		if len(before) > 0 {
			claim.VGPUBefore = before
		}
		if len(placed) > 0 {
			claim.VGPULayout = placed
		}
	})
	return nil
}

// identified keeps the UUIDs that a layout was recorded with where the host shows none.
func identified(layout, was gpu.VGPUState) gpu.VGPUState {
	for i, p := range layout.Places {
		if k := slices.IndexFunc(was.Places, func(o gpu.VGPUPlace) bool { return samePlace(o, p) }); p.UUID == "" && k >= 0 {
			layout.Places[i].UUID = was.Places[k].UUID
		}
	}
	return layout
}

// vgpuChange is what GPUs of a host shall have, as far as it differs from what they have.
type vgpuChange struct {
	*planner
	// watchers are units that only watch GPUs, and are stopped while functions are switched.
	watchers []string
	targets  []vgpuTarget
}

// vgpuTarget is what one GPU shall have.
type vgpuTarget struct {
	gpu  *gpu.GPU
	plan placement.VGPUPlan
}

// switches tells whether the virtual functions are switched, which nobody may use the GPU
// for.
func (t *vgpuTarget) switches() bool { return t.gpu.VGPU.FunctionsOn != t.plan.FunctionsOn }

// wants notes the vGPUs that a selected GPU shall have, and tells where they will be.
func (v *vgpuChange) wants(gpuID string, layout *gpu.VGPULayout) (gpu.VGPUState, error) {
	g, ok := v.host.GPU(gpuID)
	switch {
	case !ok:
		return gpu.VGPUState{}, refuse(NotFound, setVGPUs, "GPU "+gpuID, "host %s has no such GPU", v.host.Name)
	case g.Dismounted:
		return gpu.VGPUState{}, refuse(InvalidState, setVGPUs, "GPU "+g.ID, "it is taken from the host, for passthrough")
	}
	plan, err := placement.LayOutVGPU(g, layout, v.watchers...)
	if err != nil {
		return gpu.VGPUState{}, refuseVGPUs(err, setVGPUs, g, "")
	}
	v.note(g, plan)
	return plan.State(), nil
}

// restores notes what a GPU had when it joined. Nothing that runs makes way for it.
func (v *vgpuChange) restores(gpuID string, before map[string]gpu.VGPUState) error {
	state, known := byID(before, gpuID)
	g, ok := v.host.GPU(gpuID)
	if !known || !ok || g.Dismounted || g.VGPU == nil {
		return nil
	}
	plan, err := placement.FollowVGPU(g, state, v.watchers...)
	if err != nil {
		return refuseVGPUs(err, restoreVGPUs, g, orKeep)
	}
	v.note(g, plan)
	return nil
}

func (v *vgpuChange) note(g *gpu.GPU, plan placement.VGPUPlan) {
	if plan.Changes(g) {
		v.targets = append(v.targets, vgpuTarget{gpu: g, plan: plan})
	}
}

// Steps plans what leads to the targets.
func (v *vgpuChange) steps() {
	quiet := slices.ContainsFunc(v.targets, func(t vgpuTarget) bool { return t.switches() })
	v.without(v.watchers, quiet, func() {
		for _, t := range v.targets {
			v.add(t.steps()...)
		}
	})
}

// Steps are those on one GPU. The modes change while it has no vGPU, and that of mixed
// sizes only while the functions are on.
func (t *vgpuTarget) steps() []Step {
	functions := Step{Op: OpSetFunctions, GPU: t.gpu.ID, Enable: t.plan.FunctionsOn}
	mixing := Step{Op: OpSetHeterogeneous, GPU: t.gpu.ID, Enable: t.plan.Heterogeneous}
	now := t.gpu.VGPU
	var out []Step
	for _, p := range t.plan.Remove {
		out = append(out, Step{Op: OpRemoveVGPU, GPU: t.gpu.ID, VGPU: &p})
	}
	if now.Heterogeneous && !mixing.Enable {
		out = append(out, mixing)
	}
	if t.switches() {
		out = append(out, functions)
	}
	if mixing.Enable && (!now.Heterogeneous || t.switches()) {
		out = append(out, mixing)
	}
	for _, p := range t.plan.Create {
		out = append(out, Step{Op: OpCreateVGPU, GPU: t.gpu.ID, VGPU: &p})
	}
	return out
}

// refuseVGPUs is the refusal of a layout that the GPU cannot have, or that those who use
// it are in the way of.
func refuseVGPUs(err error, op string, g *gpu.GPU, orElse string) *Refusal {
	var (
		held        *placement.VGPUHeldError
		busy        *placement.VGPUBusyError
		mode        *placement.VGPUMIGModeError
		unsupported *placement.VGPUUnsupportedError
		capacity    *placement.VGPUCapacityError
	)
	code, fix := InvalidParameter, ""
	switch {
	case errors.As(err, &held), errors.As(err, &busy):
		code, fix = InUse, "stop what uses it first"
	case errors.As(err, &mode):
		code, fix = InvalidState, "turn MIG mode off first"
	case errors.As(err, &unsupported):
		code = NotSupported
	case errors.As(err, &capacity):
		code = Insufficient
	}
	if fix == "" {
		return refuse(code, op, "GPU "+g.ID, "%s%s", oneLine(err), orElse)
	}
	return refuse(code, op, "GPU "+g.ID, "%s", oneLine(err)).or("%s%s", fix, orElse)
}

// lostVGPUs is what a GPU lacks of its vGPUs, nil for nothing, or why that cannot be put
// back without removing anything.
func lostVGPUs(host *gpu.Host, id string, layout gpu.VGPUState, watchers []string) (*vgpuTarget, string) {
	g, ok := host.GPU(id)
	switch why := blind(host, id); {
	case why != "":
		return nil, why
	case !ok:
		return nil, "the host does not have it any more"
	case g.Dismounted:
		return nil, "it is taken from the host, for passthrough"
	case g.VGPU == nil:
		return nil, "its driver on the host offers no vGPUs"
	}
	// Beside what is declared stays what there is.
	to := g.VGPU.State()
	to.FunctionsOn = to.FunctionsOn || layout.FunctionsOn
	to.Heterogeneous = to.Heterogeneous || layout.Heterogeneous
	for _, p := range layout.Places {
		if _, there := findVGPU(g.VGPU, p); !there {
			to.Places = append(to.Places, p)
		}
	}
	plan, err := placement.FollowVGPU(g, to, watchers...)
	switch {
	case err != nil:
		return nil, "its vGPUs cannot be put back: " + oneLine(err)
	case len(plan.Remove) > 0:
		return nil, "a mode has to be switched for its vGPUs, which it has vGPUs in the way of: " + list(plan.Remove, placeText)
	case !plan.Changes(g):
		return nil, ""
	}
	return &vgpuTarget{gpu: g, plan: plan}, ""
}

// lacks says what is missing, for people.
func (t *vgpuTarget) lacks() string {
	var out []string
	if t.switches() {
		out = append(out, "virtual functions")
	}
	if t.plan.Heterogeneous && !t.gpu.VGPU.Heterogeneous {
		out = append(out, "heterogeneous mode")
	}
	for _, p := range t.plan.Create {
		out = append(out, placeText(p))
	}
	return strings.Join(out, ", ")
}
