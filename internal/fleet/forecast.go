package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Forecasts tells, host by host in sorted order, what a partition config's plan
// would change and whom that would disturb.
func (f *Fleet) Forecasts(v View, p rules.Plan) []rules.Forecast {
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
func (f *Fleet) Forecast(v View, p rules.Plan) string {
	var b strings.Builder
	for _, x := range f.Forecasts(v, p) {
		for _, g := range x.GPUs {
			fmt.Fprintf(&b, "%s, GPU %s (%s): %d → %d partitions, about %s each.\n", x.Host, g.GPU, g.Model, g.From, g.To, g.PartitionVRAM)
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

// SelectForForecast lists the GPUs that a new config would cover, including those
// that a config of this state covers now.
func (f *Fleet) SelectForForecast(name string, h *gpu.Host, sel *gpu.Selector) []string {
	return SelectPartitionable(name, h, sel, func(c *gpu.Claim) bool { return c.Kind == gpu.ClaimConfig && c.Owner == f.opt.Owner })
}

// CheckAlone runs the rules on a plan against a view, without what the resources of
// this run plan, and whatever the time is.
func (f *Fleet) CheckAlone(v View, p rules.Plan) []rules.Finding {
	w := f.world(v)
	w.Others, w.Window = rules.NewBook(), nil
	return rules.Check(w, p, f.opt.Levels)
}

// Interruption tells, in a sentence, which running VM an assignment's plan shuts
// down and why; "" when none.
func (f *Fleet) Interruption(v View, p rules.Plan) string {
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
