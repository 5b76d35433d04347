package change

import (
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// kind is all that there is to say of one kind of layout. Each is in a file of its own, and a
// test holds that nothing of one is missing.
type kind struct {
	// op is what a change of such a layout is called in a refusal.
	op string
	// platform is what the host must run.
	platform gpu.Platform
	// layout is what configs of the kind give a GPU, for people.
	layout string
	// noun is what a config wants on each GPU, and use what its parts are for, for people.
	noun func(*gpu.PartitionConfig) string
	use  string
	// passes says why the default selection passes a GPU by; "" for one that it may take.
	passes func(*gpu.GPU) string
	// beside is true of layouts that GPUs may have whatever pool they are in.
	beside bool
	// offers reports whether a GPU can have such layouts at all.
	offers func(*gpu.GPU) bool
	// plan is what a change does to the GPUs of a host.
	plan func(*planner, *configChange) layouts
	// has reports whether a GPU has the layout of a config.
	has func(*gpu.PartitionConfig, *gpu.GPU) bool
	// found says what a GPU that offers the kind has instead, and which of it the config did
	// not give it.
	found func(c *gpu.PartitionConfig, given gpu.Layout, g *gpu.GPU) string
	// declared is what a config wants of each GPU, in words.
	declared func(*gpu.PartitionConfig) string
	// cause is how a GPU came to have another layout than it was given, as far as the two tell.
	cause func(given, now gpu.Layout) Cause
	// unrestorable is why a GPU cannot have a layout any more that it had, whoever lets go of it; "" where it can.
	unrestorable func(host *gpu.Host, before gpu.Layout, g *gpu.GPU) string
	// lost is what puts back what a GPU lacks of the layout that a claim has given it, without
	// taking anything from anybody.
	lost func(*gpu.Host, *gpu.Claim, *gpu.GPU) repair
}

var kinds = map[gpu.Kind]kind{
	gpu.KindGPUP: kindGPUP, gpu.KindMIG: kindMIG, gpu.KindVGPU: kindVGPU, gpu.KindMPS: kindMPS, gpu.KindTimeSlicing: kindTimeSlicing,
}

// Offers reports whether a GPU can have layouts of a kind at all.
func Offers(of gpu.Kind, g *gpu.GPU) bool { return kinds[of].offers(g) }

// PlatformOf is what hosts must run for layouts of a kind.
func PlatformOf(of gpu.Kind) gpu.Platform { return kinds[of].platform }

// Noun is what a config wants on each GPU, for people: "4 partitions", "MIG".
func Noun(c *gpu.PartitionConfig) string { return kinds[c.Kind].noun(c) }

// Use is what the parts of such a layout are for, for people.
func Use(of gpu.Kind) string { return kinds[of].use }

// Passes says why the default selection of a kind passes a GPU by; "" for one that it may take.
func Passes(of gpu.Kind, g *gpu.GPU) string { return kinds[of].passes(g) }

// BesidePools reports whether GPUs may have layouts of a kind whatever pool they are in.
func BesidePools(of gpu.Kind) bool { return kinds[of].beside }

// Unrestorable is why a GPU does not get back the layout that it had before a config, "" where it does: something that the world
// has done, which no destroy waits for.
func Unrestorable(host *gpu.Host, claim *gpu.Claim, id string) string {
	if u, unknown := host.UnknownGPU(id); unknown && gpu.SameID(u.GPU, id) {
		return "it cannot be read: " + u.Why
	}
	g, there := host.GPU(id)
	if !there || claim.Want.Config == nil {
		return ""
	}
	return kinds[claim.Want.Config.Kind].unrestorable(host, claim.OriginalLayouts.Of(id), g)
}

// HasLayout reports whether a GPU has the layout of a config. The daemons of MPS are the
// host's.
func HasLayout(c *gpu.PartitionConfig, g *gpu.GPU) bool { return kinds[c.Kind].has(c, g) }

// LayoutDeclared is what a config wants of each GPU, in words.
func LayoutDeclared(c *gpu.PartitionConfig) string { return kinds[c.Kind].declared(c) }

// LayoutFound is what a GPU has of the layout that a config is about, in words.
func LayoutFound(c *gpu.PartitionConfig, g *gpu.GPU) string {
	return strings.TrimPrefix(kinds[c.Kind].found(c, gpu.Layout{}, g), "has ")
}
