package mps

import (
	"context"

	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// Plan tells what Ensure would do.
func (h *Host) Plan(ctx context.Context, spec mpsconf.Spec) (Effect, error) {
	if err := h.check(spec); err != nil {
		return Effect{}, err
	}
	s, err := h.look(ctx, spec.Name)
	if err != nil {
		return Effect{}, failed("read it", spec.Name, err)
	}
	effect, err := h.plan(ctx, spec, s)
	if err != nil {
		return Effect{}, failed("read it", spec.Name, err)
	}
	return effect, nil
}

// LastWords are the reasons that a control daemon's log ends with.
func LastWords(log string) string { return lastWords(logSince(log, 0)) }
