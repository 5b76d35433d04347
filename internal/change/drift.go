package change

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
)

// Difference is where a host is not as declared.
type Difference struct {
	// Object is what differs: "GPU GPU-5c3d…", "MPS daemon ml".
	Object string
	// Cause is how it came to be so; "" where that is not known.
	Cause Cause
	// Found and Declared finish "it …" and "declared is …". Declared may be "".
	Found, Declared string
}

// Cause is how something came to differ from what is declared.
type Cause string

// Causes.
const (
	CauseReboot       Cause = "reboot"        // it is as a reboot leaves it
	CauseOtherTool    Cause = "other_tool"    // something else than a config of ours has changed it
	CauseOtherState   Cause = "other_state"   // its claim is of another owner
	CauseGPUReplaced  Cause = "gpu_replaced"  // another GPU is in its place
	CauseGPUMissing   Cause = "gpu_missing"   // the host does not show it
	CauseMoved        Cause = "moved"         // it is in another place than it was given
	CauseGPUAdded     Cause = "gpu_added"     // it is new
	CauseFailedChange Cause = "failed_change" // an earlier change did not come to its end
)

var causes = map[Cause]string{
	CauseReboot: "lost by reboot, or removed by others", CauseOtherTool: "changed by others", CauseOtherState: "another state has it",
	CauseGPUReplaced: "the GPU was replaced", CauseGPUMissing: "the GPU is missing", CauseMoved: "it has moved", CauseGPUAdded: "the GPU is new",
	CauseFailedChange: "an earlier change failed",
}

// Values lists the causes.
func (Cause) Values() []string {
	return []string{
		string(CauseReboot), string(CauseOtherTool), string(CauseOtherState), string(CauseGPUReplaced), string(CauseGPUMissing),
		string(CauseMoved), string(CauseGPUAdded), string(CauseFailedChange),
	}
}

func (d Difference) String() string {
	s := d.Object + " " + d.Found
	if d.Declared != "" {
		s += ", declared is " + d.Declared
	}
	if d.Cause != "" {
		s += "; " + causes[d.Cause]
	}
	return s
}

// Differences are where a host is not as a config declares, on some of its GPUs and in the
// daemons that serve them. The claim, nil for none, tells what the config made of them. What
// cannot be read does not differ.
func Differences(host *gpu.Host, c *gpu.PartitionConfig, claim *gpu.Claim, ids []string) []Difference {
	var out []Difference
	for _, id := range ids {
		g, ok := host.GPU(id)
		if _, unknown := host.UnknownGPU(id); ok && !unknown && !HasLayout(c, g) {
			d := Difference{Object: "GPU " + id, Cause: causeOf(c, claim, g)}
			d.Found, d.Declared = layoutFound(c, claim, g), layoutDeclared(c)
			out = append(out, d)
		}
	}
	if _, unknown := host.UnknownPart(gpu.PartDaemons); unknown {
		return out
	}
	for _, want := range placement.Daemons(host, c, ids) {
		d := Difference{Object: "MPS daemon " + want.Name, Declared: daemonDeclared(&want)}
		have, there := host.Daemon(want.Name)
		switch {
		case !there:
			d.Found = "does not exist"
			if claim != nil {
				d.Found, d.Cause = "is gone", CauseReboot
			}
		case have.PID == 0:
			d.Found = "does not run: " + cmp.Or(have.Problem, "it ended, or was lost by reboot")
		case have.Problem != "":
			d.Found = "does not answer: " + have.Problem
		case !have.Equal(&want):
			d.Found = "has " + daemonDeclared(&have.MPSDaemonSpec)
			if claim != nil {
				d.Cause = CauseOtherTool
			}
		default:
			continue
		}
		out = append(out, d)
	}
	return out
}

// HasLayout reports whether a GPU has the layout of a config. The daemons of MPS are the
// host's.
func HasLayout(c *gpu.PartitionConfig, g *gpu.GPU) bool {
	switch c.Kind {
	case gpu.KindMIG:
		return placement.HasMIGLayout(g, c.MIG)
	case gpu.KindVGPU:
		return g.VGPU != nil && placement.HasVGPULayout(g, c.VGPU)
	case gpu.KindMPS, gpu.KindTimeSlicing:
		mode, turn := placement.WantedModes(c)
		unlike := g.ComputeMode != "" && g.ComputeMode != mode || turn != "" && g.TimeSlice != "" && g.TimeSlice != turn
		return !unlike && (g.MIG == nil || !g.MIG.Enabled)
	case gpu.KindGPUP:
	}
	return g.Partitionable != nil && g.Partitionable.Count == c.Count
}

// causeOf is how a GPU came to have another layout than a config's, as far as its claim tells
// what the config had given it.
func causeOf(c *gpu.PartitionConfig, claim *gpu.Claim, g *gpu.GPU) Cause {
	if claim == nil {
		return ""
	}
	given, now := claim.Given.Of(g.ID), g.Layout()
	switch c.Kind {
	case gpu.KindMIG:
		return causeOfMIG(given.MIG, now.MIG)
	case gpu.KindVGPU:
		return causeOfVGPUs(given.VGPU, now.VGPU)
	case gpu.KindMPS, gpu.KindTimeSlicing:
		if now.ComputeMode != "" && now.ComputeMode != gpu.ComputeDefault || c.Kind == gpu.KindTimeSlicing && cmp.Or(now.TimeSlice, gpu.TimeSliceDefault) != gpu.TimeSliceDefault ||
			now.MIG != nil && now.MIG.Enabled {
			return CauseOtherTool
		}
		return CauseReboot
	case gpu.KindGPUP: // which a reboot keeps
		if given.Partitions != now.Partitions && given.Partitions != 0 {
			return CauseOtherTool
		}
	}
	return ""
}

// causeOfMIG is the cause for instances. One that is where another of its profile was
// has moved.
func causeOfMIG(given, now *gpu.MIGState) Cause {
	switch {
	case given == nil || now == nil:
		return ""
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

// layoutFound says what a GPU has where a config wants another layout, and which of it the
// config did not give it.
func layoutFound(c *gpu.PartitionConfig, claim *gpu.Claim, g *gpu.GPU) string {
	var given gpu.Layout
	if claim != nil {
		given = claim.Given.Of(g.ID)
	}
	switch c.Kind {
	case gpu.KindGPUP:
		if g.Partitionable != nil {
			return fmt.Sprintf("has %d partitions", g.Partitionable.Count)
		}
	case gpu.KindMIG:
		if g.MIG != nil {
			return migFound(given.MIG, g)
		}
	case gpu.KindVGPU:
		if g.VGPU != nil {
			return vgpusFound(given.VGPU, g)
		}
	case gpu.KindMPS, gpu.KindTimeSlicing:
		var parts []string
		if g.MIG != nil && g.MIG.Enabled {
			return "has MIG mode on"
		}
		if g.ComputeMode != "" {
			parts = append(parts, "compute mode "+string(g.ComputeMode))
		}
		if c.Kind == gpu.KindTimeSlicing && g.TimeSlice != "" {
			parts = append(parts, "time slice "+string(g.TimeSlice))
		}
		return "has " + cmp.Or(strings.Join(parts, " and "), "a compute mode that its driver does not tell")
	}
	return "offers nothing of the kind"
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
	if lacking := placement.IncompleteInstances(g); len(lacking) > 0 {
		words += "; " + gpu.PlacementsText(lacking) + " has no compute instance"
	}
	if now.Enabled && !g.MIG.Pending {
		words += "; the next reset of the GPU switches MIG mode off"
	}
	return words
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

// aside says what is not of the config, or else what of it is gone.
func aside[T any](foreign, gone []T, text func([]T) string) string {
	switch {
	case len(foreign) > 0:
		return " (" + text(foreign) + " is not of this config)"
	case len(gone) > 0:
		return " (" + text(gone) + " is gone)"
	}
	return ""
}

// layoutDeclared is what a config wants of each GPU, in words.
func layoutDeclared(c *gpu.PartitionConfig) string {
	switch c.Kind {
	case gpu.KindMIG:
		return placement.MIGLayoutText(c.MIG)
	case gpu.KindVGPU:
		words := placement.VGPULayoutText(c.VGPU)
		if c.VGPU.Heterogeneous != nil {
			words += map[bool]string{true: " in heterogeneous mode", false: " without heterogeneous mode"}[*c.VGPU.Heterogeneous]
		}
		return words
	case gpu.KindMPS:
		mode, _ := placement.WantedModes(c)
		return "MPS in compute mode " + string(mode)
	case gpu.KindTimeSlicing:
		mode, turn := placement.WantedModes(c)
		return "time-slicing in compute mode " + string(mode) + " and time slice " + string(turn)
	case gpu.KindGPUP:
	}
	return fmt.Sprintf("%d partitions", c.Count)
}

// daemonDeclared says whom a daemon serves, and how.
func daemonDeclared(d *gpu.MPSDaemonSpec) string {
	parts := []string{DevicesText(d.Devices)}
	switch {
	case d.User != nil:
		parts = append(parts, "user "+strconv.Itoa(*d.User))
	case d.MultiUser:
		parts = append(parts, "all users")
	}
	if d.ActiveThreadPercentage > 0 {
		parts = append(parts, strconv.FormatFloat(d.ActiveThreadPercentage, 'f', -1, 64)+" % of the threads")
	}
	if d.PinnedMemoryLimit > 0 {
		parts = append(parts, d.PinnedMemoryLimit.String()+" of memory")
	}
	return strings.Join(parts, ", ")
}

func without(list, others []gpu.MIGPlacement) []gpu.MIGPlacement {
	return slices.DeleteFunc(slices.Clone(list), func(p gpu.MIGPlacement) bool { return slices.Contains(others, p) })
}

// vgpusWithout are the places of a list that others do not have.
func vgpusWithout(list, others []gpu.VGPUPlace) []gpu.VGPUPlace {
	return slices.DeleteFunc(slices.Clone(list), func(p gpu.VGPUPlace) bool { return slices.ContainsFunc(others, p.Same) })
}
