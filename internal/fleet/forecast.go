package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Forecasts tells, host by host in sorted order, what a partition config's plan
// would change and whom that would disturb.
func (f *Fleet) Forecasts(v View, p change.Change) []rules.Forecast {
	var claims []gpu.Claim
	for _, h := range v.Hosts {
		claims = append(claims, h.Claims...)
	}
	var out []rules.Forecast
	touched := members(p.Want)
	maps.Copy(touched, members(p.Prior))
	for _, name := range slices.Sorted(maps.Keys(touched)) {
		if h, ok := v.Hosts[name]; ok {
			out = append(out, rules.NewForecast(h, name, f.opt.Owner, p, claims))
		}
	}
	return out
}

// Forecast puts the forecasts of a plan into sentences, or "" when no layout
// changes.
func (f *Fleet) Forecast(v View, p change.Change) string {
	var b strings.Builder
	for _, x := range f.Forecasts(v, p) {
		for _, g := range x.GPUs {
			fmt.Fprintf(&b, "%s, GPU %s (%s): %s.\n", x.Host, g.GPU, g.Model, changeText(g))
		}
		if len(x.MovesVMs) > 0 {
			fmt.Fprintf(&b, "%s: the node is drained first, and these VMs move to other nodes of its cluster by live migration: %s.\n", x.Host, strings.Join(x.MovesVMs, ", "))
		}
		if x.NotDrained != "" {
			fmt.Fprintf(&b, "%s: it is not drained: %s.\n", x.Host, x.NotDrained)
		}
		var stops []string
		for _, s := range x.StopsVMs {
			stops = append(stops, s.Name)
		}
		if len(stops) > 0 {
			fmt.Fprintf(&b, "%s: these VMs run and will be shut down and started again: %s.\n", x.Host, strings.Join(stops, ", "))
		}
	}
	return b.String()
}

// changeText says what becomes of a GPU. MPS can be inside of its instances.
func changeText(g rules.GPUChange) string {
	var parts []string
	if g.MIG != nil {
		parts = append(parts, migText(g.MIG))
	}
	if g.VGPU != nil {
		parts = append(parts, vgpuText(g.VGPU))
	}
	if g.Sharing != nil {
		parts = append(parts, sharingText(g.Sharing))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%d → %d partitions, about %s each", g.From, g.To, g.PartitionVRAM)
	}
	return strings.Join(parts, "; ")
}

// migText says what becomes of a GPU's mode and instances.
func migText(m *placement.MIGChange) string {
	var parts []string
	if m.ChangesMode() {
		mode := "MIG mode is switched " + map[bool]string{true: "on", false: "off"}[m.To.Enabled]
		if m.Resets {
			mode += ", which resets this GPU"
		}
		parts = append(parts, mode)
	}
	for _, list := range []struct {
		verb string
		of   []gpu.MIGPlacement
	}{{"removes", m.Removes}, {"creates", m.Creates}, {"completes", m.Completes}, {"keeps", m.Keeps}} {
		if len(list.of) > 0 {
			parts = append(parts, list.verb+" "+placement.MIGText(gpu.MIGState{Enabled: true, Placements: list.of}))
		}
	}
	if len(m.InTheWay) > 0 {
		parts = append(parts, "in the way: "+strings.Join(m.InTheWay, ", "))
	}
	return strings.Join(parts, "; ")
}

// vgpuText says what becomes of a GPU's modes and vGPUs.
func vgpuText(c *rules.VGPUChange) string {
	var parts []string
	for _, mode := range []struct {
		what     string
		from, to bool
	}{{"virtual functions are", c.From.FunctionsOn, c.To.FunctionsOn}, {"heterogeneous mode is", c.From.Heterogeneous, c.To.Heterogeneous}} {
		if mode.from != mode.to {
			parts = append(parts, mode.what+" switched "+map[bool]string{true: "on", false: "off"}[mode.to])
		}
	}
	for _, list := range []struct {
		verb string
		of   []gpu.VGPUPlace
	}{{"removes", c.Removes}, {"creates", c.Creates}, {"keeps", c.Keeps}} {
		if len(list.of) > 0 {
			parts = append(parts, list.verb+" "+placement.VGPULayoutText(&gpu.VGPULayout{Types: gpu.VGPUCounts(list.of)}))
		}
	}
	if len(c.InTheWay) > 0 {
		parts = append(parts, "in the way: "+strings.Join(c.InTheWay, ", "))
	}
	return strings.Join(parts, "; ")
}

// SelectForForecast lists the GPUs that a new config of a kind would cover, including
// those that a config of this state covers now.
func (f *Fleet) SelectForForecast(kind gpu.Kind, name string, h *gpu.Host, sel *gpu.Selector) []string {
	return SelectKind(kind, name, h, sel, func(c *gpu.Claim) bool { return c.Kind == gpu.ClaimConfig && c.Owner == f.opt.Owner })
}

// CheckAlone runs the rules on a plan against a view, without what the resources of
// this run plan, and whatever the time is.
func (f *Fleet) CheckAlone(v View, p change.Change) []rules.Finding {
	w := f.world(v)
	w.Others, w.Window = rules.NewBook(), nil
	return rules.Check(w, p, f.opt.Levels.Without(rules.Feasible))
}

// Interruption tells, in a sentence, which running VM an assignment's plan shuts
// down and why; "" when none.
func (f *Fleet) Interruption(v View, p change.Change) string {
	host, vm, why := rules.Stops(f.world(v), p)
	if vm == "" {
		return ""
	}
	then, a := "started again", p.Want.Assignment
	if a == nil {
		a = p.Prior.Assignment
	}
	if a.Power.StayOff {
		then = "left off"
	}
	return fmt.Sprintf("VM %s runs on %s and will be shut down and %s: %s.", vm, host, then, strings.Join(why, ", "))
}
