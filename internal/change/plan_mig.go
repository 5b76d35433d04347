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
	setMIG     = "set the MIG layout"
	restoreMIG = "put the MIG layout back"

	orKeep = `, or keep the layout (on_destroy = "keep")`
)

// migLayout plans a layout of kind MIG. Instances that are as wanted stay, those in use
// are never removed, and GPUs that are as wanted are not touched.
func (p *planner) migLayout(c *configChange) error {
	before, placed := map[string]gpu.MIGState{}, map[string][]gpu.MIGPlacement{}
	if c.claim != nil {
		maps.Copy(before, c.claim.MIGBefore)
		maps.Copy(placed, c.claim.MIGLayout)
	}
	m := migChange{planner: p, limit: c.shape.MaxDisruption, watchers: c.shape.QuiesceUnits}
	daemons := sharingChange{planner: p, limit: c.shape.MaxDisruption}
	for _, id := range p.selected(c) {
		if p.touches(c, id) {
			layout, err := m.wants(id, &c.want)
			if err != nil {
				return err
			}
			forgetID(placed, id)
			placed[id] = layout
		}
		if c.covers(id) {
			continue
		}
		other, err := p.joins(c, id)
		if err != nil {
			return err
		}
		if state, known := p.stateBefore(other, id); known {
			before[id] = state
		}
		if p.change.ClaimOnly {
			p.adoptLayout(placed, id)
		}
	}
	for _, id := range p.leaving(c) {
		if c.shape.Restore && !p.change.ClaimOnly {
			if err := m.restores(id, before); err != nil {
				return err
			}
		}
		forgetID(before, id)
		forgetID(placed, id)
	}
	m.steps()
	if !p.change.ClaimOnly {
		// A daemon ends before its instance does, and is started in one that is there.
		after := p.host
		for _, s := range p.steps {
			after = Project(after, s)
		}
		if err := daemons.daemons(declaredDaemons(&p.host, c.claim), placement.Daemons(&after, &c.want, p.selected(c))); err != nil {
			return err
		}
		p.steps = slices.Concat(daemons.ends, p.steps, daemons.starts)
	}
	p.record(c, func(claim *gpu.Claim) {
		if len(before) > 0 {
			claim.MIGBefore = before
		}
		if len(placed) > 0 {
			claim.MIGLayout = placed
		}
	})
	return nil
}

// stateBefore is the mode and the instances that a GPU had before it was in any config
// Of ours.
func (p *planner) stateBefore(other *gpu.Claim, gpuID string) (state gpu.MIGState, known bool) {
	if other != nil {
		return byID(other.MIGBefore, gpuID)
	}
	if g, ok := p.host.GPU(gpuID); ok && g.MIG != nil {
		return g.MIG.State(), true
	}
	return gpu.MIGState{}, false
}

// adoptLayout notes the layout of a GPU that joins without being touched.
func (p *planner) adoptLayout(placed map[string][]gpu.MIGPlacement, gpuID string) {
	if g, ok := p.host.GPU(gpuID); ok && g.MIG != nil && g.MIG.Enabled {
		placed[gpuID] = g.MIG.State().Placements
	}
}

// migChange is what GPUs of a host shall have, as far as it differs from what they have.
type migChange struct {
	*planner
	limit gpu.Disruption
	// watchers are units that only watch GPUs, and are stopped while a mode changes.
	watchers []string
	targets  []migTarget
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

// wants notes the layout that a selected GPU shall have, and tells where its instances
// will be.
func (m *migChange) wants(gpuID string, c *gpu.PartitionConfig) ([]gpu.MIGPlacement, error) {
	g, ok := m.host.GPU(gpuID)
	switch {
	case !ok:
		return nil, refuse(NotFound, setMIG, "GPU "+gpuID, "host %s has no such GPU", m.host.Name)
	case g.Dismounted:
		return nil, refuse(InvalidState, setMIG, "GPU "+g.ID, "it is taken from the host, for passthrough")
	case g.MIG == nil:
		return nil, refuse(NotSupported, setMIG, "GPU "+g.ID, "a GPU of model %s has no Multi-Instance GPU", g.Model)
	}
	plan, err := placement.LayOutMIGConfig(&m.host, g, c, placement.ClaimedShares(&m.host)...)
	if err != nil {
		return nil, refuseLayout(err, setMIG, g, "")
	}
	if err := m.note(migTarget{gpu: g, enable: true, plan: plan}, setMIG, ""); err != nil {
		return nil, err
	}
	return plan.Layout(), nil
}

// restores notes what a GPU had when it joined. Nothing that runs makes way for it.
func (m *migChange) restores(gpuID string, before map[string]gpu.MIGState) error {
	state, known := byID(before, gpuID)
	g, ok := m.host.GPU(gpuID)
	if !known || !ok || g.Dismounted || g.MIG == nil {
		return nil
	}
	t := migTarget{gpu: g, enable: state.Enabled}
	var stopped []string
	if t.changesMode() {
		stopped = m.watchers
	}
	var err error
	free := placement.ReleasedByMPS(&m.host, g, m.limit)
	if t.plan, err = placement.FollowMIG(placement.MIGProfiles(g), placement.MIGInstances(free, stopped...), state.Placements); err != nil {
		return refuseLayout(err, restoreMIG, g, orKeep)
	}
	return m.note(t, restoreMIG, orKeep)
}

// note takes a target on if there is something to do for it and it may be done. orElse
// is another way out of a refusal.
func (m *migChange) note(t migTarget, op, orElse string) error {
	t.complete = incomplete(t.gpu, t.plan.Keep)
	if !t.setsMode() && !t.plan.Changes() && len(t.complete) == 0 {
		return nil
	}
	if t.resets() && gpu.DisruptGPUReset.Exceeds(m.limit) {
		return refuse(InvalidState, op, "GPU "+t.gpu.ID,
			"to turn its MIG mode %s takes a reset of this GPU", onOff(t.enable)).or("allow it with max_disruption = \"gpu_reset\"%s", orElse)
	}
	if users := placement.Users(placement.ReleasedByMPS(&m.host, t.gpu, m.limit), m.watchers); t.changesMode() && len(users) > 0 {
		return refuse(InUse, op, "GPU "+t.gpu.ID,
			"its MIG mode has to be turned %s while nothing uses it, but it is in use by %s", onOff(t.enable), strings.Join(users, ", ")).or("stop that first%s", orElse)
	}
	m.targets = append(m.targets, t)
	return nil
}

// incomplete are those of some placements whose instance lacks its compute instance.
func incomplete(g *gpu.GPU, of []gpu.MIGPlacement) []gpu.MIGPlacement {
	lacking := placement.IncompleteInstances(g)
	return slices.DeleteFunc(slices.Clone(of), func(p gpu.MIGPlacement) bool { return !slices.Contains(lacking, p) })
}

// Steps plans what leads to the targets.
func (m *migChange) steps() {
	if len(m.targets) == 0 {
		return
	}
	quiet := slices.ContainsFunc(m.targets, func(t migTarget) bool { return t.changesMode() })
	m.without(m.watchers, quiet, func() {
		for _, t := range m.targets {
			m.add(t.steps()...)
		}
	})
	m.add(Step{Op: OpRefreshDevices})
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
func refuseLayout(err error, op string, g *gpu.GPU, orElse string) *Refusal {
	var inUse *placement.MIGInUseError
	if errors.As(err, &inUse) {
		return refuse(InUse, op, "GPU "+g.ID, "%v", err).or("stop what uses them first%s", orElse)
	}
	return refuse(InvalidParameter, op, "GPU "+g.ID, "%s%s", oneLine(err), orElse)
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
