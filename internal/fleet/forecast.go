package fleet

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

// Forecasts tells, host by host in sorted order, what a plan would change and whom that would
// disturb.
func (f *Fleet) Forecasts(v View, p change.Change) []change.Forecast {
	return whatif.Simulate(f.world(v).World, p)
}

// Refused is what hosts would refuse of a plan as things are, beside the rest of the run.
func (f *Fleet) Refused(v View, p change.Change) []rules.Finding {
	return rules.Infeasible(f.world(v), p)
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
	w.Others, w.Window = whatif.NewBook(), nil
	return rules.Check(w, p, f.opt.Levels.Without(rules.Feasible))
}
