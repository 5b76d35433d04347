package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/catalog"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// MIGProfiles are the profiles that a GPU offers. Some drivers list none while MIG mode
// is off; then they are those that are documented for the model.
func MIGProfiles(g *gpu.GPU) []gpu.MIGProfile {
	if g.MIG != nil && len(g.MIG.Profiles) > 0 {
		return g.MIG.Profiles
	}
	m, ok := catalog.Of(g.PCI, g.Model)
	if !ok || m.MIG == nil {
		return nil
	}
	return m.MIG.Profiles
}

// MIGInstances are the instances of a GPU. Those that processes run in and vGPUs live in are
// held by them, but for processes of units that are stopped meanwhile.
func MIGInstances(g *gpu.GPU, quiesced ...string) []MIGInstance {
	if g.VGPU == nil {
		return runIn(g, quiesced)
	}
	return livedIn(g, runIn(g, quiesced), g.VGPU.Instances)
}

// runIn are the instances of a GPU, held by the processes in them.
func runIn(g *gpu.GPU, quiesced []string) []MIGInstance {
	if !g.MIGEnabled() {
		return nil
	}
	out := make([]MIGInstance, len(g.MIG.Instances))
	for i := range g.MIG.Instances {
		in := &g.MIG.Instances[i]
		out[i] = MIGInstance{MIGPlacement: in.Placement(), Size: in.Size}
		var by []string
		for _, p := range g.Processes {
			if p.GPUInstance != nil && *p.GPUInstance == in.ID && !OfUnit(p, quiesced) {
				by = append(by, ProcessText(p))
			}
		}
		if len(by) > 0 {
			out[i].Held = words.JoinAll(by)
		}
	}
	return out
}

// ProcessText is "process 4711 (python, container 3f2a)".
func ProcessText(p gpu.Process) string {
	text := fmt.Sprintf("process %d", p.PID)
	if who := slices.DeleteFunc([]string{p.Name, p.Holder}, func(s string) bool { return s == "" }); len(who) > 0 {
		text += " (" + strings.Join(who, ", ") + ")"
	}
	return text
}

// LayOutMIG plans a layout on a GPU as it is now. The instances that shares have part in
// stay where they are; those that the GPU has lost, as a reboot does, are made again there.
func LayOutMIG(g *gpu.GPU, l *gpu.MIGLayout, shares ...*gpu.Share) (MIGPlan, error) {
	profiles := MIGProfiles(g)
	have, lost := heldByShares(g, profiles, MIGInstances(g), shares)
	plan, err := LayOut(profiles, have, l)
	for _, at := range lost {
		if i := slices.Index(plan.Keep, at); i >= 0 {
			plan.Keep = slices.Delete(plan.Keep, i, i+1)
			plan.Create = sortPlacements(append(plan.Create, at))
		}
	}
	return plan, err
}

// heldByShares marks the instances that shares are on as held by them, and adds those that
// the GPU has lost and has room for.
func heldByShares(g *gpu.GPU, profiles []gpu.MIGProfile, have []MIGInstance, shares []*gpu.Share) (with []MIGInstance,
	lost []gpu.MIGPlacement,
) {
	by := map[gpu.MIGPlacement][]*gpu.Share{}
	for _, s := range shares {
		for _, d := range s.Devices {
			if gpu.SameID(d.GPU, g.ID) && d.Instance != nil {
				by[*d.Instance] = append(by[*d.Instance], s)
			}
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(by), comparePlacements) {
		i := slices.IndexFunc(have, func(in MIGInstance) bool { return in.MIGPlacement == at })
		if i < 0 {
			p, ok := findProfile(profiles, at.Profile)
			if !ok || slices.ContainsFunc(have, func(in MIGInstance) bool { return in.Start < at.Start+p.Size && at.Start < in.Start+in.Size }) {
				continue
			}
			i, have, lost = len(have), append(have, MIGInstance{MIGPlacement: at, Size: p.Size}), append(lost, at)
		}
		have[i].Held = strings.Join(slices.DeleteFunc([]string{have[i].Held, ShareNames(by[at])}, func(s string) bool { return s == "" }), ", ")
	}
	return have, lost
}

// LayOut finds the places of a layout among the instances that there are.
func LayOut(profiles []gpu.MIGProfile, have []MIGInstance, l *gpu.MIGLayout) (MIGPlan, error) {
	if l.Off || len(l.Placements) > 0 {
		return FollowMIG(profiles, have, l.Placements)
	}
	return PlaceMIG(profiles, have, l.Profiles)
}

// HasMIGLayout tells whether a GPU is in MIG mode, and stays so with the next reset, with
// exactly the wanted instances, each ready for workloads. Wanted numbers of profiles may
// stand wherever they do.
func HasMIGLayout(g *gpu.GPU, l *gpu.MIGLayout) bool {
	if l.Off {
		return g.MIG == nil || !g.MIG.Enabled && !g.MIG.Pending
	}
	if g.MIG == nil || !g.MIG.Enabled || !g.MIG.Pending || len(IncompleteInstances(g)) > 0 {
		return false
	}
	have := g.MIG.State().Placements
	if len(l.Placements) > 0 {
		return slices.Equal(have, sortPlacements(slices.Clone(l.Placements)))
	}
	counts := map[string]int{}
	for _, p := range have {
		counts[p.Profile]++
	}
	wanted := maps.Clone(l.Profiles)
	maps.DeleteFunc(wanted, func(_ string, n int) bool { return n == 0 })
	return maps.Equal(counts, wanted)
}

// IncompleteInstances are the instances that no workload can use as a whole: no compute instance
// fills them.
func IncompleteInstances(g *gpu.GPU) []gpu.MIGPlacement {
	var out []gpu.MIGPlacement
	for i := range g.MIG.Instances {
		if in := &g.MIG.Instances[i]; !in.Filled() {
			out = append(out, in.Placement())
		}
	}
	return sortPlacements(out)
}

// Users are the processes that have a GPU open, but for those of units that are stopped
// meanwhile.
func Users(g *gpu.GPU, quiesced []string) []string {
	var out []string
	for _, p := range g.Processes {
		if !OfUnit(p, quiesced) {
			out = append(out, ProcessText(p))
		}
	}
	return out
}

// OfUnit tells whether a process is of one of some systemd units, whose names may leave
// out that they are services.
func OfUnit(p gpu.Process, units []string) bool {
	bare := func(name string) string { return strings.TrimSuffix(name, ".service") }
	unit, ok := strings.CutPrefix(p.Holder, "unit ")
	return ok && slices.ContainsFunc(units, func(u string) bool { return bare(u) == bare(unit) })
}

// MIGLayoutText writes a wanted layout: "1 × 3g.40gb, 2 × 1g.10gb" for numbers of
// instances.
func MIGLayoutText(l *gpu.MIGLayout) string {
	if l.Off {
		return "no MIG mode"
	}
	if len(l.Placements) > 0 {
		return gpu.PlacementsText(sortPlacements(slices.Clone(l.Placements)))
	}
	return cmp.Or(countsText(l.Profiles), "MIG mode without instances")
}

// countsText writes numbers by name: "1 × 3g.40gb, 2 × 1g.10gb".
func countsText(of map[string]int) string {
	return strings.Join(words.Each(slices.Sorted(maps.Keys(of)), func(name string) string { return fmt.Sprintf("%d × %s", of[name], name) }),
		", ")
}
