package change

import (
	"errors"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

const (
	setMIG     = "set the MIG layout"
	restoreMIG = "put the MIG layout back"
)

// migChange is a layout of kind MIG: what GPUs of a host shall have, as far as it differs from
// what they have. Instances that are as wanted stay, those in use are never removed, and GPUs
// that are as wanted are not touched.
type migChange struct {
	*planner
	config *configChange
	limit  gpu.Disruption
	// watchers are units that only watch GPUs, and are stopped while a mode changes.
	watchers []string
	targets  []migTarget
}

func (m *migChange) steps() {
	m.carryOut()
	if c := m.config; !m.change.ClaimOnly {
		// A daemon ends before its instance does, and is started in one that is there.
		after := m.host
		for _, s := range m.planner.steps {
			after = Project(after, s)
		}
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
func (m *migChange) wants(id string) {
	g, ok := m.host.GPU(id)
	switch {
	case !ok:
		m.refuse(refuseGPU(NotFound, setMIG, id, "host %s has no such GPU", m.host.Name))
		return
	case g.Dismounted:
		m.refuse(refuseGPU(InvalidState, setMIG, g.ID, "it is dismounted from the host, for passthrough"))
		return
	case g.MIG == nil:
		m.refuse(refuseGPU(NotSupported, setMIG, g.ID, "a GPU of model %s has no Multi-Instance GPU", g.Model))
		return
	}
	plan, err := placement.LayOutMIGConfig(&m.host, g, &m.config.want, placement.ClaimedShares(&m.host)...)
	if err != nil {
		m.refuse(refuseLayout(err, setMIG, g))
		return
	}
	m.config.given = m.config.given.With(id, gpu.Layout{MIG: &gpu.MIGState{Enabled: true, Placements: plan.Layout()}})
	m.note(migTarget{gpu: g, enable: true, plan: plan}, setMIG, "")
}

func (m *migChange) restores(id string) {
	before := m.config.before.Of(id).MIG
	g, ok := m.host.GPU(id)
	if before == nil || !ok || g.Dismounted || g.MIG == nil {
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
		m.refuse(refuseLayout(err, restoreMIG, g).of(MIGMode).leaving(migStateText(state)))
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
	refuse := func(r *Refusal) {
		m.refuse(r.of(MIGMode).leaving(former))
	}
	if users := placement.Users(placement.ReleasedByMPS(&m.host, t.gpu, m.limit), m.watchers); t.changesMode() && len(users) > 0 {
		refuse(refuseGPU(InUse, op, t.gpu.ID, "its MIG mode can be turned %s only while nothing uses it, and it is in use by %s",
			onOff(t.enable), strings.Join(users, ", ")).or("stop that first").by(users...))
	} else if t.resets() && gpu.DisruptGPUReset.Exceeds(m.limit) {
		refuse(refuseGPU(InvalidState, op, t.gpu.ID, "turning its MIG mode %s requires a reset of this GPU",
			onOff(t.enable)).or("allow it with max_disruption = \"gpu_reset\"").needs(gpu.DisruptGPUReset))
	}
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

// incomplete are those of some placements whose instance lacks its compute instance.
func incomplete(g *gpu.GPU, of []gpu.MIGPlacement) []gpu.MIGPlacement {
	lacking := placement.IncompleteInstances(g)
	return slices.DeleteFunc(slices.Clone(of), func(p gpu.MIGPlacement) bool { return !slices.Contains(lacking, p) })
}

// carryOut plans what leads to the targets.
func (m *migChange) carryOut() {
	if len(m.targets) == 0 {
		return
	}
	quiet := slices.ContainsFunc(m.targets, func(t migTarget) bool { return t.changesMode() })
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

// refuseLayout is the refusal of a layout that does not fit, or that instances in use
// are in the way of.
func refuseLayout(err error, op string, g *gpu.GPU) *Refusal {
	var inUse *placement.MIGInUseError
	if !errors.As(err, &inUse) {
		return refuseGPU(InvalidParameter, op, g.ID, "%s", oneLine(err))
	}
	r := refuseGPU(InUse, op, g.ID, "%v", err).or("stop what uses them first")
	for _, b := range inUse.Blocking {
		r.By = append(r.By, b.Held)
	}
	return r
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
