package fleet

import (
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Forecasts tells, host by host in sorted order, what a plan would change and whom that would
// disturb.
func (f *Fleet) Forecasts(v View, p change.Change) []change.Forecast {
	return rules.Foresee(f.world(v), p)
}

// Refused is what hosts would refuse of a plan as things are, beside the rest of the run.
func (f *Fleet) Refused(v View, p change.Change) []rules.Finding {
	return rules.Infeasible(f.world(v), p)
}

// Forecast puts the forecasts of a plan into sentences, or "" when no layout
// changes.
func (f *Fleet) Forecast(v View, p change.Change) string {
	var b strings.Builder
	for _, x := range f.Forecasts(v, p) {
		for _, g := range x.GPUs {
			fmt.Fprintf(&b, "%s, GPU %s (%s): %s.\n", x.Host, g.GPU, g.Model, g)
		}
		if len(x.Moves) > 0 {
			fmt.Fprintf(&b, "%s: the node is drained first, and these VMs move to other nodes of its cluster by live migration: %s.\n", x.Host, strings.Join(x.Moves, ", "))
		}
		if why := rules.NotDrained(v.Hosts[x.Host], p, x); why != "" {
			fmt.Fprintf(&b, "%s: it is not drained: %s.\n", x.Host, why)
		}
		var stops []string
		for _, s := range x.Stops {
			stops = append(stops, s.Name)
		}
		if len(stops) > 0 {
			fmt.Fprintf(&b, "%s: these VMs run and will be shut down and started again: %s.\n", x.Host, strings.Join(stops, ", "))
		}
	}
	return b.String()
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
	for _, x := range f.Forecasts(v, p) {
		if len(x.Stops) == 0 || len(x.Refused.Of(change.VMMustBeOff)) > 0 || x.KeptOn(x.Stops[0].VM) != nil {
			continue // what is forbidden is not announced, whatever the level of the rule that says so
		}
		stop, then := x.Stops[0], "left off"
		if stop.Starts {
			then = "started again"
		}
		return fmt.Sprintf("VM %s runs on %s and will be shut down and %s: %s.", stop.Name, x.Host, then, strings.Join(stop.Why, ", "))
	}
	return ""
}
