package change

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Lost is what a host lacks of what one claim declares there. A reboot takes all GPU
// instances, and from Hopper on the mode as well; virtual functions and all vGPUs; compute
// modes and time slices; MPS daemons, and what is handed to containers.
type Lost struct {
	Subject string
	// watchers are units that only watch GPUs, and are stopped while a mode changes.
	watchers []string

	mig     []migTarget
	vgpus   []vgpuTarget
	modes   []Step // compute modes and time slices
	daemons []gpu.MPSDaemonSpec
	share   *gpu.ShareSpec
	// orphans are shares that containers can ask for and no claim declares.
	orphans []string
	// Conflicts are objects that lack something and are not as it would need them to be.
	Conflicts []Conflict
}

// Conflict is why something cannot be put back, with how it differs where that is known.
type Conflict struct {
	Object, Why string
	Difference  Difference
}

func (c Conflict) String() string {
	if c.Difference.Found == "" {
		return c.Object + ": " + c.Why
	}
	return c.Difference.String() + ": " + c.Why
}

// Lacking is what one object lacks.
type Lacking struct {
	Object, What string
	// Undeclared is true for what is there and should not.
	Undeclared bool
}

func (l *Lost) conflict(object, why string) {
	l.Conflicts = append(l.Conflicts, Conflict{Object: object, Why: why})
}

// Steps are those that put back what is missing. Daemons need the instances, and shares
// the daemons.
func (l *Lost) Steps(host *gpu.Host) []Step {
	p := &planner{host: *host}
	(&migChange{planner: p, watchers: l.watchers, targets: l.mig}).carryOut()
	(&vgpuChange{planner: p, watchers: l.watchers, targets: l.vgpus}).carryOut()
	p.add(l.modes...)
	for i := range l.daemons {
		p.add(Step{Op: OpEnsureDaemon, Daemon: &l.daemons[i]})
	}
	if l.share != nil {
		p.add(Step{Op: OpWriteShare, Share: l.share})
	}
	for _, name := range l.orphans {
		p.add(Step{Op: OpRemoveShare, Share: &gpu.ShareSpec{Name: name}})
	}
	return p.steps
}

// Lackings tells by object what is missing, for people.
func (l *Lost) Lackings() []Lacking {
	var out []Lacking
	note := func(object, what string) {
		if i := slices.IndexFunc(out, func(o Lacking) bool { return o.Object == object }); i >= 0 {
			out[i].What += ", " + what
			return
		}
		out = append(out, Lacking{Object: object, What: what})
	}
	for i := range l.mig {
		note("GPU "+l.mig[i].gpu.ID, l.mig[i].lacks())
	}
	for i := range l.vgpus {
		note("GPU "+l.vgpus[i].gpu.ID, l.vgpus[i].lacks())
	}
	for _, s := range l.modes {
		if s.Op == OpSetComputeMode {
			note(s.Object(), "compute mode "+string(s.ComputeMode))
		} else {
			note(s.Object(), "time slice "+string(s.TimeSlice))
		}
	}
	for i := range l.daemons {
		note("MPS daemon "+l.daemons[i].Name, DevicesText(l.daemons[i].Devices))
	}
	if l.share != nil {
		note(DescribeObject(gpu.ClaimShare, l.share.Name), "CDI device "+gpu.CDIDevice(l.share.Name))
	}
	for _, name := range l.orphans {
		out = append(out, Lacking{Object: DescribeObject(gpu.ClaimShare, name), What: "a claim", Undeclared: true})
	}
	return out
}

// Of is what one object lacks, or the conflict that keeps that from being put back.
func (l *Lost) Of(object string) (why, what string) {
	if i := slices.IndexFunc(l.Conflicts, func(c Conflict) bool { return c.Object == object }); i >= 0 {
		return l.Conflicts[i].String(), ""
	}
	missing := l.Lackings()
	if i := slices.IndexFunc(missing, func(m Lacking) bool { return m.Object == object }); i >= 0 {
		return "", missing[i].What
	}
	return "", ""
}

// FindLost is what a host lacks, in the order in which it can be put back.
func FindLost(host *gpu.Host) []Lost {
	var out []Lost
	after := *host // What there will be by then
	add := func(l Lost) {
		if len(l.Conflicts)+len(l.Lackings()) > 0 {
			out = append(out, l)
		}
	}
	for i := range host.Claims {
		if c := &host.Claims[i]; c.Kind == gpu.ClaimConfig {
			l := lostOfConfig(host, c)
			for _, s := range l.Steps(host) {
				after = Project(after, s)
			}
			add(l)
		}
	}
	for i := range host.Claims {
		if c := &host.Claims[i]; c.Kind == gpu.ClaimShare && c.Want.Share != nil {
			add(lostShare(host, &after, c.Want.Share))
		}
	}
	add(orphans(host))
	return out
}

// StillLost is what a host lacks of one subject.
func StillLost(host *gpu.Host, subject string) *Lost {
	for _, l := range FindLost(host) {
		if l.Subject == subject {
			return &l
		}
	}
	return &Lost{Subject: subject}
}

// lostOfConfig is what a host lacks of a config's layout.
func lostOfConfig(host *gpu.Host, c *gpu.Claim) Lost {
	l := Lost{Subject: layoutText(c) + " of " + DescribeObject(c.Kind, c.ID), watchers: quiesced(c)}
	for _, id := range slices.Sorted(maps.Keys(c.Given)) {
		why := ""
		switch given := c.Given[id]; {
		case given.MIG != nil:
			var t *migTarget
			if t, why = lostOn(host, id, placedNow(host, c, id), l.watchers); t != nil {
				l.mig = append(l.mig, *t)
			}
		case given.VGPU != nil:
			var t *vgpuTarget
			if t, why = lostVGPUs(host, id, *given.VGPU, l.watchers); t != nil {
				l.vgpus = append(l.vgpus, *t)
			}
		}
		if why != "" {
			l.conflict("GPU "+id, why)
		}
	}
	if SharesGPUs(c) {
		l.lostSharing(host, c)
	}
	if c.Want.Config != nil && len(l.Conflicts) > 0 {
		found := Differences(host, c.Want.Config, c, c.GPUs)
		for i := range l.Conflicts {
			if at := slices.IndexFunc(found, func(d Difference) bool { return d.Object == l.Conflicts[i].Object }); at >= 0 {
				l.Conflicts[i].Difference = found[at]
			}
		}
	}
	return l
}

func layoutText(c *gpu.Claim) string {
	if c.Want.Config == nil {
		return "the layout"
	}
	switch c.Want.Config.Kind {
	case gpu.KindGPUP:
		return "the partitions"
	case gpu.KindMIG:
		return "the MIG layout"
	case gpu.KindVGPU:
		return "the vGPUs"
	case gpu.KindMPS:
		return "the MPS layout"
	case gpu.KindTimeSlicing:
	}
	return "the time slices"
}

// placedNow is the layout that a claim keeps for a GPU. Where numbers of instances are
// declared, one that others have put in another place stands for one that is missing: it
// is as declared, and would be one too many beside the one made again.
func placedNow(host *gpu.Host, c *gpu.Claim, id string) []gpu.MIGPlacement {
	layout := c.Given.Of(id).MIG.Placements
	g, ok := host.GPU(id)
	if !ok || g.MIG == nil || c.Want.Config == nil || c.Want.Config.MIG == nil || len(c.Want.Config.MIG.Placements) > 0 {
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

func quiesced(c *gpu.Claim) []string {
	if c.Want.Config == nil {
		return nil
	}
	return c.Want.Config.QuiesceUnits
}

// lostOn is what a GPU lacks of its layout, nil for nothing, or why that cannot be put
// back without removing anything.
func lostOn(host *gpu.Host, id string, layout []gpu.MIGPlacement, watchers []string) (*migTarget, string) {
	g, ok := host.GPU(id)
	switch why := blind(host, id); {
	case why != "":
		return nil, why
	case !ok:
		return nil, "the host does not have it any more"
	case g.Dismounted:
		return nil, "it is dismounted from the host, for passthrough"
	case g.MIG == nil:
		return nil, "it shows no Multi-Instance GPU"
	}
	t := &migTarget{gpu: g, enable: true}
	have := g.MIG.State().Placements
	for _, p := range layout {
		if slices.Contains(have, p) {
			t.plan.Keep = append(t.plan.Keep, p)
		} else {
			t.plan.Create = append(t.plan.Create, p)
		}
	}
	t.complete = incomplete(g, t.plan.Keep)
	if !t.changesMode() && len(t.plan.Create)+len(t.complete) == 0 {
		return nil, ""
	}
	if t.resets() {
		return nil, "its MIG mode is off, and to turn it on takes a reset of the GPU"
	}
	if users := placement.Users(g, watchers); t.changesMode() && len(users) > 0 {
		return nil, "its MIG mode is off, and cannot be turned on while it is in use by " + strings.Join(users, ", ")
	}
	if err := placement.CheckMIGPlacements(placement.MIGProfiles(g), slices.Concat(have, t.plan.Create)); err != nil {
		return nil, fmt.Sprintf("it has %s, beside which %s cannot be made: %s", list(have, placementText), t.lacks(), oneLine(err))
	}
	return t, ""
}

// lacks says what is missing, for people.
func (t *migTarget) lacks() string {
	var out []string
	if t.changesMode() {
		out = append(out, "MIG mode")
	}
	for _, p := range slices.Concat(t.complete, t.plan.Create) {
		out = append(out, placementText(p))
	}
	return strings.Join(out, ", ")
}
