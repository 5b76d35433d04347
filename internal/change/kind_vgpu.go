package change

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
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
		return &vgpuChange{planner: p, config: c, limit: c.shape.MaxDisruption, watchers: c.shape.QuiesceUnits}
	},
	has: func(c *gpu.PartitionConfig, g *gpu.GPU) bool {
		return g.VGPU != nil && placement.HasVGPULayout(g, c.VGPU)
	},
	found: func(_ *gpu.PartitionConfig, given gpu.Layout, g *gpu.GPU) string { return vgpusFound(given, g) },
	declared: func(c *gpu.PartitionConfig) string {
		text := placement.VGPULayoutText(c.VGPU)
		if c.VGPU.Heterogeneous != nil {
			text += map[bool]string{true: " in heterogeneous mode", false: " without heterogeneous mode"}[*c.VGPU.Heterogeneous]
		}
		return text
	},
	cause: causeOfVGPUs,
	unrestorable: func(_ *gpu.Host, before gpu.Layout, g *gpu.GPU) string {
		if before.VGPU == nil || g.VGPU == nil {
			return ""
		}
		for _, p := range before.VGPU.Places {
			if _, offered := g.VGPU.Offers(p.Type); !offered && !slices.Contains(g.VGPU.State().Places, p) {
				return "its driver offers no " + p.Type + " any more"
			}
		}
		return ""
	},
	lost: lostOfVGPUs,
}

// vgpuChange is a layout of kind vGPU: what GPUs of a host shall have, as far as it differs
// from what they have. vGPUs that are as wanted stay, those that are held are never removed,
// and GPUs that are as wanted are not touched.
type vgpuChange struct {
	*planner
	config *configChange
	limit  gpu.Disruption
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

func (t *vgpuTarget) switches() bool { return t.plan.Switches(t.gpu) }

// wants notes the vGPUs that a selected GPU shall have, and where they will be.
func (v *vgpuChange) wants(g *gpu.GPU) {
	was := v.config.given.Of(g.ID)
	g = withReserved(&v.host, g)
	plan, err := placement.LayOutVGPU(g, v.config.want.VGPU, was, v.watchers...)
	if err != nil {
		v.refuse(refuseVGPUs(err, setVGPUs, g))
		idle := *g
		idle.Processes = nil
		if plan, err = placement.LayOutVGPU(&idle, v.config.want.VGPU, was); err != nil {
			return
		}
	}
	given := plan.Layout()
	if was.VGPU != nil {
		*given.VGPU = identified(*given.VGPU, *was.VGPU)
	}
	v.config.given = v.config.given.With(g.ID, given)
	v.note(g, plan, setVGPUs, "")
}

func (v *vgpuChange) restores(g *gpu.GPU) {
	state := v.config.before.Of(g.ID)
	if state.VGPU == nil || g.VGPU == nil {
		return
	}
	former := vgpuStateText(*state.VGPU)
	g = withReserved(&v.host, g)
	if given := v.config.given.Of(g.ID).MIG; given == nil {
		state.MIG = nil // which this config did not touch
	} else if state.MIG != nil {
		former += ", " + migStateText(*state.MIG)
	}
	plan, err := placement.FollowVGPU(g, state, v.watchers...)
	if err != nil {
		v.refuse(refuseVGPUs(err, restoreVGPUs, g).Leaving(former))
		return
	}
	v.note(g, plan, restoreVGPUs, former)
}

func vgpuStateText(s gpu.VGPUState) string {
	if len(s.Places) == 0 {
		return "no vGPUs"
	}
	return "the vGPUs " + placement.VGPULayoutText(&gpu.VGPULayout{Types: gpu.VGPUCounts(s.Places)})
}

// note takes a plan on if there is something to do. former is what a GPU that leaves had.
func (v *vgpuChange) note(g *gpu.GPU, plan placement.VGPUPlan, op, former string) {
	if !plan.Changes(g) {
		return
	}
	if plan.Resets(g) && gpu.DisruptGPUReset.Exceeds(v.limit) {
		v.refuse(refuseVGPUs(placement.NeedsReset(plan.MIG.Enable), op, g).Leaving(former))
	}
	v.targets = append(v.targets, vgpuTarget{gpu: g, plan: plan})
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

// Steps are those on one GPU. The modes change while it has no vGPU: MIG mode while the
// functions are off, that of mixed sizes while they are on. GPU instances end with the functions
// (assumption linux-vgpu-order).
func (t *vgpuTarget) steps() []Step {
	functions := func(on bool) Step { return Step{Op: OpSetFunctions, GPU: t.gpu.ID, Enable: on} }
	mixing := Step{Op: OpSetHeterogeneous, GPU: t.gpu.ID, Enable: t.plan.Heterogeneous}
	now := t.gpu.VGPU
	var out []Step
	for _, p := range t.plan.Remove {
		out = append(out, Step{Op: OpRemoveVGPU, GPU: t.gpu.ID, VGPU: &p})
	}
	if now.Heterogeneous && !mixing.Enable {
		out = append(out, mixing)
	}
	var creates []gpu.MIGPlacement
	if mig := t.plan.MIG; mig != nil {
		for _, p := range mig.Remove {
			out = append(out, Step{Op: OpDestroyInstance, GPU: t.gpu.ID, Instance: &p})
		}
		creates = mig.Create
	}
	on := now.FunctionsOn
	if on && (!t.plan.FunctionsOn || t.plan.Cycles(t.gpu)) {
		out, on = append(out, functions(false)), false
	}
	if t.plan.SetsMode(t.gpu) {
		out = append(out, Step{Op: OpSetMIGMode, GPU: t.gpu.ID, Enable: t.plan.MIG.Enable, Force: t.plan.Resets(t.gpu)})
	}
	if !on && t.plan.FunctionsOn {
		out = append(out, functions(true))
	}
	if mixing.Enable && (!now.Heterogeneous || t.switches()) {
		out = append(out, mixing)
	}
	for _, p := range creates {
		out = append(out, Step{Op: OpCreateInstance, GPU: t.gpu.ID, Instance: &p})
	}
	for _, p := range t.plan.Create {
		out = append(out, Step{Op: OpCreateVGPU, GPU: t.gpu.ID, VGPU: &p})
	}
	return out
}

// refuseVGPUs is refuseLayout for the rule that says of those who use a GPU what they are in the way of.
func refuseVGPUs(err error, op string, g *gpu.GPU) *gpu.Refusal {
	r := refuseLayout(err, op, g)
	if r.Code == gpu.InUse || r.Fault == placement.VGPUReset {
		return r.OfRule(VGPUInUse)
	}
	return r
}

// lostOfVGPUs makes the vGPUs that are missing, beside those that there are.
func lostOfVGPUs(_ *gpu.Host, c *gpu.Claim, g *gpu.GPU) repair {
	layout := c.AppliedLayouts.Of(g.ID)
	given := layout.VGPU
	if given == nil {
		return repair{}
	}
	to := g.VGPU.State()
	to.FunctionsOn = to.FunctionsOn || given.FunctionsOn
	to.Heterogeneous = to.Heterogeneous || given.Heterogeneous
	var taken []string // which hides none of the others
	for _, p := range given.Places {
		if _, there := findVGPU(g.VGPU, p); there {
			continue
		}
		if f, is := g.VGPU.TakenAt(p.Function); is {
			taken = append(taken, placeText(p)+" cannot be put back: "+f.String())
			continue
		}
		to.Places = append(to.Places, p)
	}
	all := gpu.Layout{VGPU: &to}
	if layout.MIG != nil && g.MIG != nil {
		have := g.MIG.State().Placements
		all.MIG = &gpu.MIGState{Enabled: true, Placements: append(have, without(layout.MIG.Placements, have)...)}
	}
	plan, err := placement.FollowVGPU(g, all, c.Want.Config.QuiesceUnits...)
	switch {
	case err != nil:
		return stays("its vGPUs cannot be put back: " + gpu.RefusalOf(err).Found())
	case plan.Resets(g):
		return stays("its MIG mode is off, and to turn it on takes a reset of the GPU")
	case plan.MIG != nil && len(plan.MIG.Remove) > 0:
		return stays("its virtual functions have to be switched for its vGPUs, which takes the GPU instances that it has: " +
			list(plan.MIG.Remove, placementText))
	case len(plan.Remove) > 0:
		return stays("a mode has to be switched for its vGPUs, which it has vGPUs in the way of: " + list(plan.Remove, placeText))
	case !plan.Changes(g):
		return repair{stays: taken}
	}
	t := vgpuTarget{gpu: g, plan: plan}
	return repair{steps: t.steps(), quiet: t.switches(), lacks: t.lacks(), stays: taken}
}

// lacks says what is missing, for people.
func (t *vgpuTarget) lacks() []string {
	var out []string
	if t.plan.SetsMode(t.gpu) {
		out = append(out, "MIG mode")
	}
	if t.plan.FunctionsOn != t.gpu.VGPU.FunctionsOn {
		out = append(out, "virtual functions")
	}
	if t.plan.Heterogeneous && !t.gpu.VGPU.Heterogeneous {
		out = append(out, "heterogeneous mode")
	}
	if t.plan.MIG != nil {
		for _, p := range t.plan.MIG.Create {
			out = append(out, placementText(p))
		}
	}
	for _, p := range t.plan.Create {
		out = append(out, placeText(p))
	}
	return out
}

func causeOfVGPUs(was, is gpu.Layout) Cause {
	given, now := was.VGPU, is.VGPU
	switch {
	case given == nil || now == nil:
		return ""
	case given.FunctionsOn && !now.FunctionsOn, len(given.Places) > 0 && len(now.Places) == 0:
		return CauseReboot
	case len(vgpusWithout(now.Places, given.Places))+len(vgpusWithout(given.Places, now.Places)) > 0, given.Heterogeneous != now.Heterogeneous:
		return CauseOtherTool
	case was.MIG != nil:
		return causeOfMIG(was.MIG, is.MIG)
	}
	return ""
}

func vgpusFound(was gpu.Layout, g *gpu.GPU) string {
	given := was.VGPU
	s := g.VGPU.State()
	text := "has " + placement.VGPULayoutText(&gpu.VGPULayout{Types: gpu.VGPUCounts(s.Places)})
	switch {
	case s.FunctionsOn && len(s.Places) == 0:
		text += ", and its virtual functions are on"
	case !s.FunctionsOn && len(s.Places) > 0 && g.VGPU.Functions > 0:
		text += ", and its virtual functions are off"
	}
	if s.Heterogeneous {
		text += " in heterogeneous mode"
	}
	for i := range g.VGPU.Taken {
		text += "; " + g.VGPU.Taken[i].String()
	}
	if given != nil && len(s.Places) > 0 {
		text += aside(vgpusWithout(s.Places, given.Places), vgpusWithout(given.Places, s.Places),
			func(l []gpu.VGPUPlace) string { return list(l, placeText) })
	}
	if was.MIG != nil && g.MIG != nil && g.MIG.State().String() != was.MIG.String() {
		text += "; " + migFound(was.MIG, g)
	}
	return text
}

// vgpusWithout are the places of a list that others do not have.
func vgpusWithout(list, others []gpu.VGPUPlace) []gpu.VGPUPlace {
	return slices.DeleteFunc(slices.Clone(list), func(p gpu.VGPUPlace) bool { return slices.ContainsFunc(others, p.Same) })
}

// withReserved is a GPU whose vGPUs are also held by the assignments that have them on record, whether their VMs name them yet or not.
func withReserved(host *gpu.Host, g *gpu.GPU) *gpu.GPU {
	for c := range host.ClaimsOf(gpu.ClaimAssignment) {
		if c.Device == nil || !gpu.SameID(c.Device.GPU, g.ID) {
			continue
		}
		own, v := *g, *g.VGPU
		v.Instances = slices.Clone(v.Instances)
		for i := range v.Instances {
			if in := &v.Instances[i]; c.Device.IsVGPU(g.ID, in.VGPUPlace) && in.HeldBy() == "" {
				in.NamedBy = []string{"the assignment of VM " + words.Name(claimedVM(c))}
			}
		}
		own.VGPU, g = &v, &own
	}
	return g
}
