package change

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

const (
	setMIG     = "set the MIG layout"
	restoreMIG = "put the MIG layout back"
)

// kindMIG is Multi-Instance GPU. A reboot takes all instances, and from Hopper on the mode too.
var kindMIG = kind{
	op:       setMIG,
	platform: gpu.Linux,
	layout:   "the MIG layout",
	noun:     func(*gpu.PartitionConfig) string { return "MIG" },
	use:      "its instances are for processes and containers of the host",
	passes: func(g *gpu.GPU) string {
		if g.MIG == nil {
			return "its driver offers no MIG"
		}
		return ""
	},
	offers: func(g *gpu.GPU) bool { return g.MIG != nil },
	plan: func(p *planner, c *configChange) layouts {
		return &migChange{planner: p, config: c, limit: c.shape.MaxDisruption, watchers: c.shape.QuiesceUnits}
	},
	has:      func(c *gpu.PartitionConfig, g *gpu.GPU) bool { return placement.HasMIGLayout(g, c.MIG) },
	found:    func(_ *gpu.PartitionConfig, given gpu.Layout, g *gpu.GPU) string { return migFound(given.MIG, g) },
	declared: func(c *gpu.PartitionConfig) string { return placement.MIGLayoutText(c.MIG) },
	cause:    func(given, now gpu.Layout) Cause { return causeOfMIG(given.MIG, now.MIG) },
	unrestorable: func(_ *gpu.Host, before gpu.Layout, g *gpu.GPU) string {
		if before.MIG == nil || g.MIG == nil {
			return ""
		}
		_, err := placement.FollowMIG(placement.MIGProfiles(g), nil, before.MIG.Placements)
		if r, is := errors.AsType[*gpu.Refusal](err); is {
			return r.Found()
		}
		return ""
	},
	lost: lostOfMIG,
}

// migChange is a layout of kind MIG: what GPUs of a host shall have, as far as it differs from
// what they have. Instances that are as wanted stay, those in use are never removed, and GPUs
// that are as wanted are not touched.
type migChange struct {
	*planner
	config *configChange
	limit  gpu.Disruption
	// watchers are units that only watch GPUs, and are stopped while a mode changes or instances go.
	watchers []string
	targets  []migTarget
}

func (m *migChange) steps() {
	m.carryOut()
	if c := m.config; !m.change.ClaimOnly {
		// A daemon ends before its instance does, and is started in one that is there.
		after := ProjectAll(m.host, m.planner.steps)
		daemons := sharingChange{planner: m.planner, limit: m.limit}
		daemons.daemons(declaredDaemons(&m.host, c.claim), placement.Daemons(&after, &c.want, m.selected(c)))
		m.planner.steps = slices.Concat(daemons.ends, m.planner.steps, daemons.starts)
	}
	m.record(m.config)
}

// migTarget is what one GPU shall have.
type migTarget struct {
	gpu    *gpu.GPU
	enable bool
	plan   placement.MIGPlan
	// complete are instances that stay and lack their compute instance.
	complete []gpu.MIGPlacement
}

// changesMode tells whether the mode in force has to change, which nobody may use the GPU
// for.
func (t *migTarget) changesMode() bool { return t.gpu.MIG.Enabled != t.enable }

// setsMode tells whether the mode has to be set: also when only another one is pending.
func (t *migTarget) setsMode() bool { return t.changesMode() || t.gpu.MIG.Pending != t.enable }

func (t *migTarget) resets() bool { return t.changesMode() && t.gpu.MIG.NeedsReset }

// wants notes the layout that a selected GPU shall have, and where its instances will be.
func (m *migChange) wants(g *gpu.GPU) {
	if g.MIG == nil {
		m.refuse(refuseGPU(gpu.NotSupported, setMIG, g.ID, "a GPU of model %s has no Multi-Instance GPU", g.Model))
		return
	}
	plan, err := placement.LayOutMIGConfig(&m.host, g, &m.config.want, placement.ClaimedShares(&m.host)...)
	if err != nil {
		m.refuse(refuseLayout(err, setMIG, g))
		return
	}
	enable := m.config.want.HasMIG()
	m.config.given = m.config.given.With(g.ID, gpu.Layout{MIG: &gpu.MIGState{Enabled: enable, Placements: plan.Layout()}})
	m.note(migTarget{gpu: g, enable: enable, plan: plan}, setMIG, "")
}

func (m *migChange) restores(g *gpu.GPU) {
	before := m.config.before.Of(g.ID).MIG
	if before == nil || g.MIG == nil {
		return
	}
	state := *before
	t := migTarget{gpu: g, enable: state.Enabled}
	var stopped []string
	if t.changesMode() {
		stopped = m.watchers
	}
	var err error
	free := placement.ReleasedByMPS(&m.host, g, m.limit)
	if t.plan, err = placement.FollowMIG(placement.MIGProfiles(g), placement.MIGInstances(free, stopped...), state.Placements); err != nil {
		m.refuse(refuseLayout(err, restoreMIG, g).OfRule(MIGMode).Leaving(migStateText(state)))
		return
	}
	m.note(t, restoreMIG, migStateText(state))
}

// note takes a target on if there is something to do for it, and refuses it where that may
// not be done. former is what a GPU that leaves had, in words.
func (m *migChange) note(t migTarget, op, former string) {
	t.complete = incomplete(t.gpu, t.plan.Keep)
	if !t.setsMode() && !t.plan.Changes() && len(t.complete) == 0 {
		return
	}
	m.targets = append(m.targets, t)
	refuse := func(r *gpu.Refusal) {
		m.refuse(r.OfRule(MIGMode).Leaving(former))
	}
	if users := usersOfMode(placement.ReleasedByMPS(&m.host, t.gpu, m.limit), m.watchers); t.changesMode() && len(users) > 0 {
		refuse(refuseGPU(gpu.InUse, op, t.gpu.ID, "its MIG mode can be turned %s only while nothing uses it, and it is in use by %s",
			onOff(t.enable), strings.Join(users, ", ")).Or("stop that first").HeldBy(users...))
	} else if who := heldParts(t.gpu, t.complete, m.watchers); who != "" {
		refuse(refuseGPU(gpu.InUse, op, t.gpu.ID,
			"no compute instance fills %s, and one can be made only while nothing uses it; it is in use by %s",
			gpu.PlacementsText(t.complete), who).Or("stop that first").HeldBy(who))
	} else if t.resets() && gpu.DisruptGPUReset.Exceeds(m.limit) {
		refuse(refuseGPU(gpu.InvalidState, op, t.gpu.ID, "turning its MIG mode %s requires a reset of this GPU",
			onOff(t.enable)).Or("allow it with max_disruption = \"gpu_reset\"").Unless(gpu.DisruptGPUReset))
	}
}

// usersOfMode are who keeps a GPU's MIG mode as it is.
func usersOfMode(g *gpu.GPU, quiesced []string) []string {
	users := placement.Users(g, quiesced)
	if g.VGPU != nil && g.VGPU.FunctionsOn {
		users = append(users, "its virtual functions, which are on (a config of `vgpu = { types = {} }` turns them off)")
	}
	return users
}

// migStateText is a mode with its instances, in words.
func migStateText(s gpu.MIGState) string {
	switch {
	case !s.Enabled:
		return "no MIG mode"
	case len(s.Placements) == 0:
		return "MIG mode without instances"
	}
	return "the instances " + gpu.PlacementsText(s.Placements)
}

// incomplete are those of some placements whose instance no compute instance fills.
func incomplete(g *gpu.GPU, of []gpu.MIGPlacement) []gpu.MIGPlacement {
	lacking := placement.IncompleteInstances(g)
	return slices.DeleteFunc(slices.Clone(of), func(p gpu.MIGPlacement) bool { return !slices.Contains(lacking, p) })
}

// heldParts names who runs in instances that shall be filled anew, "" for nobody.
func heldParts(g *gpu.GPU, complete []gpu.MIGPlacement, watchers []string) string {
	var who []string
	for _, in := range placement.MIGInstances(g, watchers...) {
		if in.Held != "" && slices.Contains(complete, in.MIGPlacement) {
			who = append(who, in.Held)
		}
	}
	return strings.Join(who, ", ")
}

// carryOut plans what leads to the targets.
func (m *migChange) carryOut() {
	if len(m.targets) == 0 {
		return
	}
	// A monitoring agent may keep an instance open without a process in it, so that it cannot be removed.
	quiet := slices.ContainsFunc(m.targets, func(t migTarget) bool { return t.changesMode() || len(t.plan.Remove) > 0 })
	m.without(m.watchers, quiet, func() {
		for _, t := range m.targets {
			m.add(t.steps()...)
		}
	})
}

// without plans steps, with some units stopped meanwhile when that is needed.
func (p *planner) without(units []string, needed bool, steps func()) {
	var stopped []string
	for _, unit := range units {
		if needed && runsUnit(&p.host, unit) {
			stopped = append(stopped, unit)
			p.add(Step{Op: OpStopUnit, Unit: unit})
		}
	}
	steps()
	for _, unit := range slices.Backward(stopped) {
		p.add(Step{Op: OpStartUnit, Unit: unit})
	}
}

// Steps are those on one GPU. Instances need the mode, so it comes first or last.
func (t *migTarget) steps() []Step {
	mode := Step{Op: OpSetMIGMode, GPU: t.gpu.ID, Enable: t.enable, Force: t.resets()}
	var out []Step
	if t.enable && t.setsMode() {
		out = append(out, mode)
	}
	for _, p := range t.plan.Remove {
		out = append(out, Step{Op: OpDestroyInstance, GPU: t.gpu.ID, Instance: &p})
	}
	for _, p := range slices.Concat(t.complete, t.plan.Create) {
		out = append(out, Step{Op: OpCreateInstance, GPU: t.gpu.ID, Instance: &p})
	}
	if !t.enable && t.setsMode() {
		out = append(out, mode)
	}
	return out
}

// causeOfMIG is the cause for instances. One that is where another of its profile was
// has moved.
func causeOfMIG(given, now *gpu.MIGState) Cause {
	switch {
	case given == nil || now == nil:
		return ""
	case !given.Enabled:
		return CauseOtherTool
	case !now.Enabled, len(given.Placements) > 0 && len(now.Placements) == 0:
		return CauseReboot
	}
	gone, foreign := without(given.Placements, now.Placements), without(now.Placements, given.Placements)
	profiles := func(list []gpu.MIGPlacement) []string {
		var out []string
		for _, p := range list {
			out = append(out, p.Profile)
		}
		return slices.Sorted(slices.Values(out))
	}
	switch {
	case len(gone)+len(foreign) == 0:
		return ""
	case slices.Equal(profiles(gone), profiles(foreign)):
		return CauseMoved
	}
	return CauseOtherTool
}

func migFound(given *gpu.MIGState, g *gpu.GPU) string {
	now := g.MIG.State()
	words := "has " + now.String()
	switch {
	case !now.Enabled:
		words = "has MIG mode off"
	case len(now.Placements) == 0:
		words = "has MIG mode without instances"
	case given != nil:
		words += aside(without(now.Placements, given.Placements), without(given.Placements, now.Placements), gpu.PlacementsText)
	}
	for i := range g.MIG.Instances {
		if in := &g.MIG.Instances[i]; !in.Filled() {
			words += "; " + gpu.PlacementsText([]gpu.MIGPlacement{in.Placement()}) + " " + in.ComputeText()
		}
	}
	if now.Enabled && !g.MIG.Pending {
		words += "; the next reset of the GPU switches MIG mode off"
	} else if g.MIG.Pending && !now.Enabled {
		words += "; the next reset of the GPU switches MIG mode on"
	}
	return words
}

// placedNow is the layout that a claim keeps for a GPU. Where numbers of instances are
// declared, one that others have put in another place stands for one that is missing: it
// is as declared, and would be one too many beside the one made again.
func placedNow(c *gpu.Claim, g *gpu.GPU) []gpu.MIGPlacement {
	layout := c.AppliedLayouts.Of(g.ID).MIG.Placements
	if len(c.Want.Config.MIG.Placements) > 0 {
		return layout
	}
	moved := slices.DeleteFunc(g.MIG.State().Placements, func(p gpu.MIGPlacement) bool { return slices.Contains(layout, p) })
	out := slices.Clone(layout)
	for i, p := range out {
		if hasInstance(g.MIG, p) {
			continue
		}
		at := slices.IndexFunc(moved, func(o gpu.MIGPlacement) bool { return o.Profile == p.Profile })
		if at >= 0 {
			out[i] = moved[at]
			moved = slices.Delete(moved, at, at+1)
		}
	}
	return out
}

// lostOfMIG makes the instances that are missing, beside those that there are.
func lostOfMIG(_ *gpu.Host, c *gpu.Claim, g *gpu.GPU) repair {
	switch given := c.AppliedLayouts.Of(g.ID).MIG; {
	case given == nil:
		return repair{}
	case !given.Enabled:
		return stays("its MIG mode is on, or will be with the next reset, which no reboot does")
	}
	t := &migTarget{gpu: g, enable: true}
	have := g.MIG.State().Placements
	for _, p := range placedNow(c, g) {
		if slices.Contains(have, p) {
			t.plan.Keep = append(t.plan.Keep, p)
		} else {
			t.plan.Create = append(t.plan.Create, p)
		}
	}
	t.complete = incomplete(g, t.plan.Keep)
	if !t.changesMode() && len(t.plan.Create)+len(t.complete) == 0 {
		return repair{}
	}
	if who := heldParts(g, t.complete, c.Want.Config.QuiesceUnits); who != "" {
		return stays("no compute instance fills " + gpu.PlacementsText(t.complete) + ", and it is in use by " + who)
	}
	if t.resets() {
		return stays("its MIG mode is off, and to turn it on takes a reset of the GPU")
	}
	if users := usersOfMode(g, c.Want.Config.QuiesceUnits); t.changesMode() && len(users) > 0 {
		return stays("its MIG mode is off, and cannot be turned on while it is in use by " + strings.Join(users, ", "))
	}
	var lacks []string
	if t.changesMode() {
		lacks = append(lacks, "MIG mode")
	}
	for _, p := range slices.Concat(t.complete, t.plan.Create) {
		lacks = append(lacks, placementText(p))
	}
	if err := placement.CheckMIGPlacements(placement.MIGProfiles(g), slices.Concat(have, t.plan.Create)); err != nil {
		return stays(fmt.Sprintf("it has %s, beside which %s cannot be made: %s", list(have, placementText),
			strings.Join(lacks, ", "), gpu.RefusalOf(err).Found()))
	}
	return repair{steps: t.steps(), quiet: t.changesMode(), lacks: lacks}
}

func without(list, others []gpu.MIGPlacement) []gpu.MIGPlacement {
	return slices.DeleteFunc(slices.Clone(list), func(p gpu.MIGPlacement) bool { return slices.Contains(others, p) })
}
