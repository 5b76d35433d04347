package fleet

import (
	"github.com/gpufleet/terraform-provider-gpu/internal/agent"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// inWindow refuses what the hosts have prepared if it disturbs anybody outside of the
// maintenance window. Only what is yet to begin is asked about: what was begun is ended or
// put back at any time.
func (t *transaction) inWindow(names ...string) (warnings []rules.Finding, refused *agent.Error) {
	var disturbed []rules.Disturbed
	for _, n := range names {
		if p := t.prepared[n]; p.Disruption.Exceeds(gpu.DisruptNone) {
			disturbed = append(disturbed, rules.Disturbed{Host: n, Class: p.Disruption, VMs: p.StopsVMs})
		}
	}
	opt := t.fleet.opt
	errs, warnings := split(rules.CheckWindow(
		rules.World{Window: opt.Window, Now: opt.Now()},
		t.req.Change,
		disturbed, opt.Levels))
	if len(errs) > 0 {
		return nil, &agent.Error{Code: agent.RuleViolation, Host: disturbed[0].Host, Findings: errs}
	}
	return warnings, nil
}
