package change

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

const (
	shareGPU     = "have processes share the GPU"
	unshareGPU   = "put the GPU's compute mode back"
	changeDaemon = "change the MPS daemon"
	endDaemon    = "end the MPS daemon"
)

// sharedLayout plans a layout of kind MPS or time-slicing. GPUs and daemons that are as
// wanted are not touched, and no process ends for it but clients of a daemon.
func (p *planner) sharedLayout(c *configChange) error {
	modes, turns := map[string]gpu.ComputeMode{}, map[string]gpu.TimeSlice{}
	if c.claim != nil {
		maps.Copy(modes, c.claim.ComputeBefore)
		maps.Copy(turns, c.claim.TimeSliceBefore)
	}
	s := sharingChange{planner: p, limit: c.shape.MaxDisruption}
	for _, id := range p.selected(c) {
		if p.touches(c, id) {
			if err := s.wants(id, c); err != nil {
				return err
			}
		}
		if c.covers(id) {
			continue
		}
		other, err := p.joins(c, id)
		if err != nil {
			return err
		}
		p.modesBefore(other, id, modes, turns)
	}
	for _, id := range p.leaving(c) {
		if c.shape.Restore && !p.change.ClaimOnly {
			if err := s.restores(c.claim, id); err != nil {
				return err
			}
		}
		forgetID(modes, id)
		forgetID(turns, id)
	}
	// A daemon that is kept goes on as it is, and one whose GPUs are others now does not.
	if !p.change.ClaimOnly && (c.shape.Restore || len(p.selected(c)) > 0) {
		if err := s.daemons(declaredDaemons(&p.host, c.claim), placement.Daemons(&p.host, &c.want, p.selected(c))); err != nil {
			return err
		}
	}
	p.add(s.steps()...)
	p.record(c, func(claim *gpu.Claim) {
		if len(modes) > 0 {
			claim.ComputeBefore = modes
		}
		if len(turns) > 0 {
			claim.TimeSliceBefore = turns
		}
	})
	return nil
}

// modesBefore notes the compute mode and the time slice that a GPU had before it was in any
// config of ours.
func (p *planner) modesBefore(other *gpu.Claim, id string, modes map[string]gpu.ComputeMode, turns map[string]gpu.TimeSlice) {
	if other != nil {
		mode, known := byID(other.ComputeBefore, id)
		if turn, ok := byID(other.TimeSliceBefore, id); ok {
			turns[id] = turn
		}
		if known {
			modes[id] = mode
			return
		}
	}
	g, ok := p.host.GPU(id)
	if !ok {
		return
	}
	if g.ComputeMode != "" {
		modes[id] = g.ComputeMode
	}
	if _, known := turns[id]; !known && g.TimeSlice != "" {
		turns[id] = g.TimeSlice
	}
}

// declaredDaemons are the daemons that a claim's config has, also those in GPU instances
// that are not there now.
func declaredDaemons(host *gpu.Host, claim *gpu.Claim) []gpu.MPSDaemonSpec {
	if claim == nil || claim.Want.Config == nil {
		return nil
	}
	with := *host
	for id, places := range claim.MIGLayout {
		with = Project(with, Step{Op: OpSetMIGMode, GPU: id, Enable: true})
		for _, place := range places {
			if g, ok := with.GPU(id); ok && g.MIG != nil {
				if !hasInstance(g.MIG, place) {
					with = Project(with, Step{Op: OpCreateInstance, GPU: id, Instance: &place})
				}
			}
		}
	}
	return placement.Daemons(&with, claim.Want.Config, claim.GPUs)
}

// sharingChange is what GPUs and MPS daemons of a host shall be, as far as it differs from
// What they are.
type sharingChange struct {
	*planner
	limit gpu.Disruption
	// opens and closes are steps on modes: a GPU is closed to all processes but those of MPS
	// before a daemon starts, and opened again after one has ended.
	closes, opens []Step
	ends, starts  []Step // Of daemons
}

// Steps are those of the change in the order that works.
func (s *sharingChange) steps() []Step { return slices.Concat(s.closes, s.ends, s.starts, s.opens) }

// wants notes what a selected GPU shall be.
func (s *sharingChange) wants(id string, c *configChange) error {
	g, ok := s.host.GPU(id)
	switch {
	case !ok:
		return refuse(NotFound, shareGPU, "GPU "+id, "host %s has no such GPU", s.host.Name)
	case g.Dismounted:
		return refuse(InvalidState, shareGPU, "GPU "+g.ID, "it is taken from the host, for passthrough")
	case g.MIG != nil && (g.MIG.Enabled || g.MIG.Pending):
		return refuse(InvalidState, shareGPU, "GPU "+g.ID,
			"it is in MIG mode, or will be after the next reset").or("share its instances with mig = { ... %s }, or turn MIG mode off", c.want.Kind())
	case g.ComputeMode == gpu.ComputeProhibited:
		return refuse(InvalidState, shareGPU, "GPU "+g.ID, "its compute mode is prohibited, which an administrator has set").or("run nvidia-smi -i %s -c DEFAULT first", g.ID)
	}
	if others := placement.ForeignDaemons(&s.host, g); c.want.MPS != nil && len(others) > 0 {
		return refuse(InUse, shareGPU, "GPU "+g.ID, "%s serves it already", strings.Join(others, ", ")).or("stop that first")
	}
	mode, turn := placement.WantedModes(&c.want)
	if err := s.sets(g, mode, shareGPU, ""); err != nil {
		return err
	}
	// A driver that does not tell a time slice has the one that was set when the GPU joined.
	unknown := g.TimeSlice == "" && (turn == gpu.TimeSliceDefault || c.covers(id) && turn == turnOf(c.claim))
	if turn != "" && turn != g.TimeSlice && !unknown {
		s.opens = append(s.opens, Step{Op: OpSetTimeSlice, GPU: g.ID, TimeSlice: turn})
	}
	return nil
}

// turnOf is the time slice that a claim's config wants.
func turnOf(claim *gpu.Claim) gpu.TimeSlice {
	if claim == nil || claim.Want.Config == nil {
		return ""
	}
	_, turn := placement.WantedModes(claim.Want.Config)
	return turn
}

// sets notes a compute mode. orElse is another way out of a refusal.
func (s *sharingChange) sets(g *gpu.GPU, mode gpu.ComputeMode, op, orElse string) error {
	if mode == "" || mode == g.ComputeMode {
		return nil
	}
	step := Step{Op: OpSetComputeMode, GPU: g.ID, ComputeMode: mode}
	if mode != gpu.ComputeExclusiveProcess {
		s.opens = append(s.opens, step)
		return nil
	}
	if who := placement.Strangers(&s.host, g); len(who) > 0 {
		return refuse(InUse, op, "GPU "+g.ID,
			"its compute mode has to be %s, in which nobody uses it past MPS, but it is in use by %s", mode, strings.Join(who, ", ")).or("stop that first%s", orElse)
	}
	s.closes = append(s.closes, step)
	return nil
}

// restores notes what a GPU was when it joined a claim's config, where it still is what the
// config made of it: what others have changed meanwhile is theirs.
func (s *sharingChange) restores(claim *gpu.Claim, id string) error {
	g, ok := s.host.GPU(id)
	if !ok || g.Dismounted || g.MIG != nil && g.MIG.Enabled || claim.Want.Config == nil {
		return nil
	}
	mode, turn := placement.WantedModes(claim.Want.Config)
	if before, known := byID(claim.ComputeBefore, id); known && g.ComputeMode == mode {
		if err := s.sets(g, before, unshareGPU, orKeep); err != nil {
			return err
		}
	}
	if turn == "" || g.TimeSlice != "" && g.TimeSlice != turn {
		return nil
	}
	before, known := byID(claim.TimeSliceBefore, id)
	if !known {
		before = gpu.TimeSliceDefault // as a reboot would
	}
	if before != turn {
		s.opens = append(s.opens, Step{Op: OpSetTimeSlice, GPU: g.ID, TimeSlice: before})
	}
	return nil
}

// daemons notes how those of a config become others.
func (s *sharingChange) daemons(before, after []gpu.MPSDaemonSpec) error {
	for i := range before {
		name := before[i].Name
		d, there := s.host.Daemon(name)
		if !there || slices.ContainsFunc(after, func(o gpu.MPSDaemonSpec) bool { return o.Name == name }) {
			continue
		}
		force, err := s.mayEnd(d, endDaemon)
		if err != nil {
			return err
		}
		s.ends = append(s.ends, Step{Op: OpRemoveDaemon, Daemon: &gpu.MPSDaemonSpec{Name: name}, Force: force})
	}
	for i := range after {
		if err := s.serves(&after[i]); err != nil {
			return err
		}
	}
	return nil
}

// serves notes a daemon that is wanted, unless it serves already.
func (s *sharingChange) serves(want *gpu.MPSDaemonSpec) error {
	if placement.Serves(&s.host, want) {
		return nil
	}
	if s.host.MPS == nil || s.host.MPS.Program == "" {
		return refuse(NotSupported, "start the MPS daemon", "MPS daemon "+want.Name,
			"nvidia-cuda-mps-control is not installed on host %s", s.host.Name).or("install it with NVIDIA's driver")
	}
	force := false
	if d, there := s.host.Daemon(want.Name); there {
		var err error
		if force, err = s.mayEnd(d, changeDaemon); err != nil {
			return err
		}
	}
	s.starts = append(s.starts, Step{Op: OpEnsureDaemon, Daemon: want, Force: force})
	return nil
}

// mayEnd tells whether clients end with a daemon, or refuses that.
func (s *sharingChange) mayEnd(d *gpu.MPSDaemon, op string) (force bool, err error) {
	if len(d.Clients) == 0 {
		return false, nil
	}
	if gpu.DisruptProcessRestart.Exceeds(s.limit) {
		who := make([]string, len(d.Clients))
		for i, c := range d.Clients {
			who[i] = placement.ProcessText(c)
		}
		return false, refuse(InUse, op, "MPS daemon "+d.Name,
			"%d of its clients would end: %s", len(who), strings.Join(who, ", ")).or("wait until they have ended, or allow it with max_disruption = \"process_restart\"")
	}
	return true, nil
}

// leaveSharing plans what the configs of MPS and time-slicing do that GPUs leave for this
// one, which comes before anything else: their daemons let go of the GPUs.
func (p *planner) leaveSharing(c *configChange) error {
	if p.change.ClaimOnly {
		return nil
	}
	s := sharingChange{planner: p, limit: c.want.MaxDisruption}
	for i := range c.shrunk {
		after := &c.shrunk[i]
		before := findClaim(&p.host, after.Kind, after.ID)
		if err := s.daemons(declaredDaemons(&p.host, before), declaredDaemons(&p.host, after)); err != nil {
			return err
		}
		if kind := c.want.Kind(); kind == gpu.KindMPS || kind == gpu.KindTimeSlicing {
			continue // which sets the modes itself
		}
		for _, id := range before.GPUs {
			if !after.Covers(id) {
				if err := s.restores(before, id); err != nil {
					return err
				}
			}
		}
	}
	p.steps = append(s.steps(), p.steps...)
	return nil
}
