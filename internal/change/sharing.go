package change

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

const (
	shareGPU     = "share the GPU among processes"
	unshareGPU   = "put the GPU's compute mode back"
	changeDaemon = "change the MPS daemon"
	endDaemon    = "end the MPS daemon"
)

// declaredDaemons are the daemons that a claim's config has, also those in GPU instances
// that are not there now.
func declaredDaemons(host *gpu.Host, claim *gpu.Claim) []gpu.MPSDaemonSpec {
	if claim == nil || claim.Want.Config == nil {
		return nil
	}
	with := *host
	for id, given := range claim.AppliedLayouts {
		if given.MIG == nil {
			continue
		}
		with = Project(with, Step{Op: OpSetMIGMode, GPU: id, Enable: true})
		for _, place := range given.MIG.Placements {
			if g, ok := with.GPU(id); ok && g.MIG != nil {
				if !hasInstance(g.MIG, place) {
					with = Project(with, Step{Op: OpCreateInstance, GPU: id, Instance: &place})
				}
			}
		}
	}
	return placement.Daemons(&with, claim.Want.Config, claim.GPUs)
}

// sharingChange is a layout of kind MPS or time-slicing: what GPUs and MPS daemons of a host
// shall be, as far as it differs from what they are. No process ends for it but clients of a
// daemon.
type sharingChange struct {
	*planner
	config *configChange
	limit  gpu.Disruption
	// opens and closes are steps on modes: a GPU is closed to all processes but those of MPS
	// before a daemon starts, and opened again after one has ended.
	closes, opens []Step
	ends, starts  []Step // of daemons
}

// order is the steps in the order that works.
func (s *sharingChange) order() []Step { return slices.Concat(s.closes, s.ends, s.starts, s.opens) }

func (s *sharingChange) steps() {
	// A daemon that is kept goes on as it is, and one whose GPUs are others now does not.
	if c := s.config; !s.change.ClaimOnly && (c.shape.Restore || len(s.selected(c)) > 0) {
		s.daemons(append(declaredDaemons(&s.host, c.claim), s.leftBehind(c)...), placement.Daemons(&s.host, &c.want, s.selected(c)))
	}
	s.add(s.order()...)
	s.record(s.config)
}

// leftBehind are daemons of ours that no config has any more, on GPUs that shall get another
// one: no GPU has two.
func (s *sharingChange) leftBehind(c *configChange) []gpu.MPSDaemonSpec {
	if c.want.MPS == nil || s.host.MPS == nil {
		return nil
	}
	declared := map[string]bool{}
	for claim := range s.host.ClaimsOf(gpu.ClaimConfig) {
		for _, d := range declaredDaemons(&s.host, claim) {
			declared[d.Name] = true
		}
	}
	var out []gpu.MPSDaemonSpec
	for _, d := range s.host.MPS.Daemons {
		selected := func(of gpu.SharedDevice) bool {
			return slices.ContainsFunc(s.selected(c), func(id string) bool { return gpu.SameID(id, of.GPU) })
		}
		if d.Name != "" && !declared[d.Name] && slices.ContainsFunc(d.Devices, selected) {
			out = append(out, d.MPSDaemonSpec)
		}
	}
	return out
}

// wants notes what a selected GPU shall be.
func (s *sharingChange) wants(g *gpu.GPU) {
	c := s.config
	switch {
	case g.MIG != nil && (g.MIG.Enabled || g.MIG.Pending):
		s.refuse(refuseGPU(gpu.InvalidState, shareGPU, g.ID,
			"it is in MIG mode, or will be after the next reset").Or("share its instances with mig = { ... %s }, or turn MIG mode off", c.want.Kind))
		return
	case g.ComputeMode == gpu.ComputeProhibited:
		s.refuse(refuseGPU(gpu.InvalidState, shareGPU, g.ID,
			"its compute mode is prohibited, which an administrator has set").Or("run nvidia-smi -i %s -c DEFAULT first", g.ID))
		return
	}
	if others := placement.ForeignDaemons(&s.host, g); c.want.MPS != nil && len(others) > 0 {
		s.refuse(refuseGPU(gpu.InUse, shareGPU, g.ID, "%s serves it already",
			strings.Join(others, ", ")).Or("stop that first").OfRule(MPSInUse).HeldBy(others...))
	}
	mode, slice := placement.WantedModes(&c.want)
	c.given = c.given.With(g.ID, gpu.Layout{ComputeMode: mode, TimeSlice: slice})
	// What a driver does not tell is its default, or what was set when the GPU joined.
	hadMode, hadSlice := gpu.ComputeDefault, gpu.TimeSliceDefault
	if c.covers(g.ID) && c.claim.Want.Config != nil {
		hadMode, hadSlice = placement.WantedModes(c.claim.Want.Config)
	}
	if g.ComputeMode != "" || mode != hadMode {
		s.sets(g, mode, shareGPU, "")
	}
	if slice != "" && slice != cmp.Or(g.TimeSlice, hadSlice) {
		s.opens = append(s.opens, Step{Op: OpSetTimeSlice, GPU: g.ID, TimeSlice: slice})
	}
}

// sets notes a compute mode. former is what a GPU that leaves had, in words.
func (s *sharingChange) sets(g *gpu.GPU, mode gpu.ComputeMode, op, former string) {
	if mode == "" || mode == g.ComputeMode {
		return
	}
	step := Step{Op: OpSetComputeMode, GPU: g.ID, ComputeMode: mode}
	if mode != gpu.ComputeExclusiveProcess {
		s.opens = append(s.opens, step)
		return
	}
	s.closes = append(s.closes, step)
	if who := placement.Strangers(&s.host, g); len(who) > 0 {
		s.refuse(refuseGPU(gpu.InUse, op, g.ID, "its compute mode must become %s, which needs the GPU idle, and it is in use by %s",
			mode, strings.Join(who, ", ")).Or("stop that first").OfRule(MPSInUse).HeldBy(who...).Leaving(former))
	}
}

func (s *sharingChange) restores(g *gpu.GPU) { s.restoresOf(s.config.claim, g) }

// restoresOf notes what a GPU was when it joined a claim's config, where it still is what the
// config made of it: what others have changed meanwhile is theirs.
func (s *sharingChange) restoresOf(claim *gpu.Claim, g *gpu.GPU) {
	if g.MIGEnabled() || claim.Want.Config == nil {
		return
	}
	mode, slice := placement.WantedModes(claim.Want.Config)
	before := claim.OriginalLayouts.Of(g.ID)
	if was := before.ComputeMode; cmp.Or(g.ComputeMode, mode) == mode {
		if was == "" && before != (gpu.Layout{}) {
			was = gpu.ComputeDefault // the driver's own, as after a reboot
		}
		if slices.ContainsFunc(s.planner.steps, func(step Step) bool { return step.Op == OpSetMIGMode && step.Enable && step.GPU == g.ID }) {
			was = gpu.ComputeDefault // a GPU that enters MIG mode loses any other
		}
		s.sets(g, was, unshareGPU, "compute mode "+string(was))
	}
	if slice == "" || g.TimeSlice != "" && g.TimeSlice != slice || before == (gpu.Layout{}) {
		return // it is not as the config made it, or nobody knows what it was
	}
	if was := cmp.Or(before.TimeSlice, gpu.TimeSliceDefault); was != slice {
		s.opens = append(s.opens, Step{Op: OpSetTimeSlice, GPU: g.ID, TimeSlice: was})
	}
}

// daemons notes how those of a config become others.
func (s *sharingChange) daemons(before, after []gpu.MPSDaemonSpec) {
	for i := range before {
		name := before[i].Name
		d, there := s.host.Daemon(name)
		if there && !slices.ContainsFunc(after, func(o gpu.MPSDaemonSpec) bool { return o.Name == name }) {
			s.ends = append(s.ends, Step{Op: OpRemoveDaemon, Daemon: &gpu.MPSDaemonSpec{Name: name}, Force: s.endsClients(d, endDaemon)})
		}
	}
	for i := range after {
		s.serves(&after[i])
	}
}

// serves notes a daemon that is wanted, unless it serves already.
func (s *sharingChange) serves(want *gpu.MPSDaemonSpec) {
	if placement.Serves(&s.host, want) {
		return
	}
	if s.host.MPS == nil || s.host.MPS.Program == "" {
		s.refuse(refuse(gpu.NotSupported, "start the MPS daemon", "MPS daemon "+want.Name,
			"nvidia-cuda-mps-control is not installed there").Or("install it with NVIDIA's driver"))
		return
	}
	if g := withoutPartitions(&s.host, want); g != nil {
		s.refuse(refuseGPU(gpu.NotSupported, "start MPS daemon "+want.Name, g.ID, "%s", noPartitions(g)).
			Or("upgrade the driver, leave the GPU out of selector, or leave static_partitions out"))
		return
	}
	d, there := s.host.Daemon(want.Name)
	restarts := there && d.WhyRestart(want) != ""
	s.starts = append(s.starts, Step{Op: OpEnsureDaemon, Daemon: want, Force: restarts && s.endsClients(d, changeDaemon)})
}

// withoutPartitions is a GPU that cannot give the static partitions with which a daemon is wanted, nil for none.
func withoutPartitions(host *gpu.Host, want *gpu.MPSDaemonSpec) *gpu.GPU {
	for _, d := range want.Devices {
		if g, ok := host.GPU(d.GPU); ok && want.StaticPartitions && !g.StaticPartitions() {
			return g
		}
	}
	return nil
}

// noPartitions is why MPS on a GPU has no static partitions.
func noPartitions(g *gpu.GPU) string {
	if g.ComputeCapability == "" || g.Driver.Version == "" {
		return "it is not known whether it has static partitions: the host does not tell its compute capability, or the version of its driver"
	}
	return "it has no static partitions: MPS has them with drivers from R590 on, on GPUs from Ampere on"
}

// endsClients tells whether clients end with a daemon, and refuses that where it is not
// allowed.
func (s *sharingChange) endsClients(d *gpu.MPSDaemon, op string) bool {
	who := processTexts(d.Clients)
	if len(who) > 0 && gpu.DisruptProcessRestart.Exceeds(s.limit) {
		s.refuse(refuse(gpu.InUse, op, "MPS daemon "+d.Name, "%d of its clients would end: %s", len(who), strings.Join(who, ", ")).
			Or("wait until they have ended, or allow it with max_disruption = \"process_restart\"").OfRule(MPSInUse).
			Unless(gpu.DisruptProcessRestart))
	}
	return len(who) > 0
}

// processTexts are processes in words.
func processTexts(list []gpu.Process) []string {
	return words.Each(list, placement.ProcessText)
}

// leaveSharing plans what the configs of MPS and time-slicing do that GPUs leave for this
// one, which comes before anything else: their daemons let go of the GPUs.
func (p *planner) leaveSharing(c *configChange) {
	s := sharingChange{planner: p, limit: c.want.MaxDisruption}
	for i := range c.shrunk {
		after := &c.shrunk[i]
		before, _ := p.host.Claim(after.Kind, after.ID)
		stay := declaredDaemons(&p.host, after)
		ends := slices.DeleteFunc(declaredDaemons(&p.host, before), func(d gpu.MPSDaemonSpec) bool {
			return slices.ContainsFunc(stay, func(o gpu.MPSDaemonSpec) bool { return o.Name == d.Name })
		})
		s.daemons(ends, placement.Daemons(&p.host, after.Want.Config, after.GPUs)) // in what is missing now none can start
		if kind := c.want.Kind; kind == gpu.KindMPS || kind == gpu.KindTimeSlicing {
			continue // which sets the modes itself
		}
		for _, id := range before.GPUs {
			if g, ok := p.host.GPU(id); ok && !g.Dismounted && !after.Covers(id) {
				s.restoresOf(before, g)
			}
		}
	}
	p.steps = append(s.order(), p.steps...)
}

// What MPS and time-slicing have in common.

func offersSharing(g *gpu.GPU) bool { return g.Vendor == "NVIDIA" }

func passesSharing(g *gpu.GPU) string {
	if g.MIG != nil && (g.MIG.Enabled || g.MIG.Pending) {
		return "in MIG mode, which `mig` is for, and which a config of `mig = { enabled = false }` switches off"
	}
	return ""
}

func planSharing(p *planner, c *configChange) layouts {
	return &sharingChange{planner: p, config: c, limit: c.shape.MaxDisruption}
}

func hasModes(c *gpu.PartitionConfig, g *gpu.GPU) bool {
	mode, slice := placement.WantedModes(c)
	unlike := g.ComputeMode != "" && g.ComputeMode != mode || slice != "" && g.TimeSlice != "" && g.TimeSlice != slice
	return !unlike && !g.MIGEnabled()
}

// modesFound says what a GPU has of its modes, "" for one that is not told or not the subject.
func modesFound(g *gpu.GPU, mode, slice string) string {
	var parts []string
	if g.MIGEnabled() {
		return "has MIG mode on"
	}
	if mode != "" {
		parts = append(parts, "compute mode "+mode)
	}
	if slice != "" {
		parts = append(parts, "time slice "+slice)
	}
	return "has " + cmp.Or(strings.Join(parts, " and "), "a compute mode that its driver does not tell")
}

// causeOfModes is the cause for modes. slice is the time slice where it is the subject.
func causeOfModes(now gpu.Layout, slice gpu.TimeSlice) Cause {
	if cmp.Or(now.ComputeMode, gpu.ComputeDefault) != gpu.ComputeDefault || cmp.Or(slice, gpu.TimeSliceDefault) != gpu.TimeSliceDefault ||
		now.MIG != nil && now.MIG.Enabled {
		return CauseOtherTool
	}
	return CauseReboot
}

// lostModes sets a compute mode and a time slice that are the driver's own again.
func lostModes(host *gpu.Host, c *gpu.Claim, g *gpu.GPU) repair {
	if g.MIGEnabled() {
		return stays("it is in MIG mode, in which it has no compute mode and no time slice")
	}
	var r repair
	mode, slice := placement.WantedModes(c.Want.Config)
	if lost, theirs := differs(g.ComputeMode, mode, gpu.ComputeDefault); theirs {
		r.stays = append(r.stays, "its compute mode is "+string(g.ComputeMode)+", which no reboot sets, and "+string(mode)+" is declared")
	} else if who := placement.Strangers(host, g); lost && len(who) > 0 {
		r.stays = append(r.stays, "its compute mode cannot be made "+string(mode)+" while it is in use by "+strings.Join(who, ", "))
	} else if lost {
		r.steps, r.lacks = append(r.steps, Step{Op: OpSetComputeMode, GPU: g.ID, ComputeMode: mode}),
			append(r.lacks, "compute mode "+string(mode))
	}
	if lost, theirs := differs(g.TimeSlice, slice, gpu.TimeSliceDefault); theirs {
		r.stays = append(r.stays, "its time slice is "+string(g.TimeSlice)+", which no reboot sets, and "+string(slice)+" is declared")
	} else if lost {
		r.steps, r.lacks = append(r.steps, Step{Op: OpSetTimeSlice, GPU: g.ID, TimeSlice: slice}), append(r.lacks, "time slice "+string(slice))
	}
	return r
}

// differs tells whether something is not as wanted: lost, when it is what a reboot makes of
// it, or else somebody's who has set it. What is not wanted, or not told, is neither.
func differs[T ~string](have, want, afterReboot T) (lost, theirs bool) {
	if have == want || have == "" || want == "" {
		return false, false
	}
	return have == afterReboot, have != afterReboot
}
