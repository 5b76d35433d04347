package lifecycle

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpufleet/terraform-provider-gpu/internal/fleet"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/provider/object"
)

// reported is what the plan report tells of a plan.
func (s *Shell[M]) reported(ctx context.Context, p *Planning[M]) fleet.Planned {
	out := fleet.Planned{
		Type: s.Of.Type, Label: s.Of.Type, Token: Token(ctx, p.Req.Private), Prior: p.Prior, Want: p.Want, Destroyed: p.Plan == nil,
	}
	for _, of := range []gpu.Want{p.Want, p.Prior} {
		if !of.Empty() {
			out.Label = s.Of.Label(of)
			break
		}
	}
	for _, d := range p.Resp.Diagnostics.Errors() {
		out.Errors = append(out.Errors, fleet.PlanError{Summary: d.Summary(), Detail: d.Detail()})
	}
	var unread diag.Diagnostics // The plan has told what of it cannot be read.
	times := s.Of.Timeouts
	switch {
	case p.Plan == nil:
		out.Terms.HostTimeout, _ = times(p.State).Delete(ctx, s.Of.Limit)
		return out
	case p.State == nil:
		out.Terms.HostTimeout, _ = times(p.Plan).Create(ctx, s.Of.Limit)
	default:
		out.Terms.HostTimeout, _ = times(p.Plan).Update(ctx, s.Of.Limit)
	}
	if s.Of.Roll != nil {
		s.Of.Roll(p.Plan, &out.Terms, &unread)
	}
	out.Unchanged = p.Unchanged
	out.Policy = p.Unchanged && !object.Same(p.Resp.Plan.Raw, p.Req.State.Raw)
	out.Open = !p.Known || s.Fleet.Unknown()
	return out
}
