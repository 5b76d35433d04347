package change

import (
	"errors"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

const (
	setVGPUs     = "set the vGPUs"
	restoreVGPUs = "put the vGPUs back"
)

// kindVGPU is NVIDIA's vGPU for VMs of KVM. A reboot takes all of them, and their modes.
var kindVGPU = kind{
	op:       setVGPUs,
	platform: gpu.Linux,
	layout:   "the vGPUs",
	noun:     func(*gpu.PartitionConfig) string { return "vGPUs" },
	use:      "its vGPUs are for VMs of Linux KVM hosts",
	passes: func(g *gpu.GPU) string {
		if g.VGPU == nil {
			return "its driver offers no vGPUs"
		}
		return ""
	},
	offers: func(g *gpu.GPU) bool { return g.VGPU != nil },
	plan: func(p *planner, c *configChange) layouts {
		return &vgpuChange{planner: p, config: c, watchers: c.shape.QuiesceUnits}
	},
	has: func(c *gpu.PartitionConfig, g *gpu.GPU) bool {
		return g.VGPU != nil && placement.HasVGPULayout(g, c.VGPU)
	},
	found: func(_ *gpu.PartitionConfig, given gpu.Layout, g *gpu.GPU) string { return vgpusFound(given.VGPU, g) },
	declared: func(c *gpu.PartitionConfig) string {
		words := placement.VGPULayoutText(c.VGPU)
		if c.VGPU.Heterogeneous != nil {
			words += map[bool]string{true: " in heterogeneous mode", false: " without heterogeneous mode"}[*c.VGPU.Heterogeneous]
		}
		return words
	},
	cause: func(given, now gpu.Layout) Cause { return causeOfVGPUs(given.VGPU, now.VGPU) },
	lost:  lostOfVGPUs,
}

// vgpuChange is a layout of kind vGPU: what GPUs of a host shall have, as far as it differs
// from what they have. vGPUs that are as wanted stay, those that are held are never removed,
// and GPUs that are as wanted are not touched.
type vgpuChange struct {
	*planner
	config *configChange
	// watchers are units that only watch GPUs, and are stopped while functions are switched.
	watchers []string
	targets  []vgpuTarget
}

// identified keeps the UUIDs that a layout was recorded with where the host shows none.
func identified(layout, was gpu.VGPUState) gpu.VGPUState {
	for i, p := range layout.Places {
		if k := slices.IndexFunc(was.Places, func(o gpu.VGPUPlace) bool { return o.Same(p) }); p.UUID == "" && k >= 0 {
			layout.Places[i].UUID = was.Places[k].UUID
		}
	}
	return layout
}

// vgpuTarget is what one GPU shall have.
type vgpuTarget struct {
	gpu  *gpu.GPU
	plan placement.VGPUPlan
}

// switches tells whether the virtual functions are switched, which nobody may use the GPU
// for.
func (t *vgpuTarget) switches() bool { return t.gpu.VGPU.FunctionsOn != t.plan.FunctionsOn }

// wants notes the vGPUs that a selected GPU shall have, and where they will be.
func (v *vgpuChange) wants(g *gpu.GPU) {
	plan, err := placement.LayOutVGPU(g, v.config.want.VGPU, v.watchers...)
	if err != nil {
		v.refuse(refuseVGPUs(err, setVGPUs, g))
		idle := *g
		idle.Processes = nil
		if plan, err = placement.LayOutVGPU(&idle, v.config.want.VGPU); err != nil {
			return
		}
	}
	given := plan.State()
	if was := v.config.given.Of(g.ID).VGPU; was != nil {
		given = identified(given, *was)
	}
	v.config.given = v.config.given.With(g.ID, gpu.Layout{VGPU: &given})
	v.note(g, plan)
}

func (v *vgpuChange) restores(g *gpu.GPU) {
	state := v.config.before.Of(g.ID).VGPU
	if state == nil || g.VGPU == nil {
		return
	}
	plan, err := placement.FollowVGPU(g, *state, v.watchers...)
	if err != nil {
		v.refuse(refuseVGPUs(err, restoreVGPUs, g).leaving(vgpuStateText(*state)))
		return
	}
	v.note(g, plan)
}

func vgpuStateText(s gpu.VGPUState) string {
	if len(s.Places) == 0 {
		return "no vGPUs"
	}
	return "the vGPUs " + placement.VGPULayoutText(&gpu.VGPULayout{Types: gpu.VGPUCounts(s.Places)})
}

func (v *vgpuChange) note(g *gpu.GPU, plan placement.VGPUPlan) {
	if plan.Changes(g) {
		v.targets = append(v.targets, vgpuTarget{gpu: g, plan: plan})
	}
}

func (v *vgpuChange) steps() {
	v.carryOut()
	v.record(v.config)
}

// carryOut plans what leads to the targets.
func (v *vgpuChange) carryOut() {
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
func refuseVGPUs(err error, op string, g *gpu.GPU) *Refusal {
	var (
		held        *placement.VGPUHeldError
		busy        *placement.VGPUBusyError
		mode        *placement.VGPUMIGModeError
		unsupported *placement.VGPUUnsupportedError
		capacity    *placement.VGPUCapacityError
	)
	r := refuseGPU(InvalidParameter, op, g.ID, "%s", oneLine(err))
	r.cause = err
	switch {
	case errors.As(err, &held):
		for i := range held.Held {
			r.By = append(r.By, held.Held[i].Holder)
		}
	case errors.As(err, &busy):
		r.By = busy.By
	case errors.As(err, &mode):
		r.Code, r.Fix = InvalidState, "turn MIG mode off first"
	case errors.As(err, &unsupported):
		r.Code = NotSupported
	case errors.As(err, &capacity):
		r.Code = Insufficient
	}
	if len(r.By) > 0 {
		r.Code, r.Rule, r.Fix = InUse, VGPUInUse, "stop what uses it first"
	}
	return r
}

// lostOfVGPUs makes the vGPUs that are missing, beside those that there are.
func lostOfVGPUs(_ *gpu.Host, c *gpu.Claim, g *gpu.GPU) repair {
	given := c.Given.Of(g.ID).VGPU
	if given == nil {
		return repair{}
	}
	to := g.VGPU.State()
	to.FunctionsOn = to.FunctionsOn || given.FunctionsOn
	to.Heterogeneous = to.Heterogeneous || given.Heterogeneous
	for _, p := range given.Places {
		if _, there := findVGPU(g.VGPU, p); !there {
			to.Places = append(to.Places, p)
		}
	}
	plan, err := placement.FollowVGPU(g, to, c.Want.Config.QuiesceUnits...)
	switch {
	case err != nil:
		return stays("its vGPUs cannot be put back: " + oneLine(err))
	case len(plan.Remove) > 0:
		return stays("a mode has to be switched for its vGPUs, which it has vGPUs in the way of: " + list(plan.Remove, placeText))
	case !plan.Changes(g):
		return repair{}
	}
	t := vgpuTarget{gpu: g, plan: plan}
	return repair{steps: t.steps(), quiet: t.switches(), lacks: t.lacks()}
}

// lacks says what is missing, for people.
func (t *vgpuTarget) lacks() []string {
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
	return out
}

func causeOfVGPUs(given, now *gpu.VGPUState) Cause {
	switch {
	case given == nil || now == nil:
		return ""
	case given.FunctionsOn && !now.FunctionsOn, len(given.Places) > 0 && len(now.Places) == 0:
		return CauseReboot
	case len(vgpusWithout(now.Places, given.Places))+len(vgpusWithout(given.Places, now.Places)) > 0, given.Heterogeneous != now.Heterogeneous:
		return CauseOtherTool
	}
	return ""
}

func vgpusFound(given *gpu.VGPUState, g *gpu.GPU) string {
	s := g.VGPU.State()
	words := "has " + placement.VGPULayoutText(&gpu.VGPULayout{Types: gpu.VGPUCounts(s.Places)})
	switch {
	case s.FunctionsOn && len(s.Places) == 0:
		words += ", and its virtual functions are on"
	case !s.FunctionsOn && len(s.Places) > 0 && g.VGPU.Functions > 0:
		words += ", and its virtual functions are off"
	}
	if s.Heterogeneous {
		words += " in heterogeneous mode"
	}
	if given != nil && len(s.Places) > 0 {
		words += aside(vgpusWithout(s.Places, given.Places), vgpusWithout(given.Places, s.Places), func(l []gpu.VGPUPlace) string { return list(l, placeText) })
	}
	return words
}

// vgpusWithout are the places of a list that others do not have.
func vgpusWithout(list, others []gpu.VGPUPlace) []gpu.VGPUPlace {
	return slices.DeleteFunc(slices.Clone(list), func(p gpu.VGPUPlace) bool { return slices.ContainsFunc(others, p.Same) })
}
