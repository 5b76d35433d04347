package rules

import (
	"errors"
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// effect is what a plan does to a host, worked out by the code that does it.
type effect struct {
	steps   []change.Step
	refused *change.Refusal
	change.Effects
}

// effectOf asks the planner what a plan does to a host that carries the claims for its VMs.
func effectOf(known gpu.Host, host, owner string, p change.Change) effect {
	p.Subject, p.Owner, p.Adopt = labelOf(p), owner, p.Token == ""
	steps, err := change.Plan(known, host, p)
	e := effect{steps: steps, Effects: change.EffectsOf(&known, steps)}
	errors.As(err, &e.refused)
	return e
}

// changes tells whether the plan does more on the host than to write claims.
func (e effect) changes() bool {
	return slices.ContainsFunc(e.steps, func(s change.Step) bool { return s.Claim == nil })
}

// WithClaims is a host with the claims that others hold for its VMs.
func (f *Fleet) WithClaims(host string, h *gpu.Host) gpu.Host {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.withClaims(host, h)
}

func (r *run) withClaims(host string, h *gpu.Host) gpu.Host { return r.fleet.withClaims(host, h) }

func (f *Fleet) withClaims(host string, h *gpu.Host) gpu.Host {
	var others []gpu.Claim
	for i := range h.VMs {
		for _, p := range f.vmClaims[gpu.FoldID(h.VMs[i].ID)] {
			if p.host != host {
				others = append(others, *p.item)
			}
		}
	}
	if len(others) == 0 {
		return *h
	}
	return change.WithClaims(*h, others)
}

// effectOnVM is what an assignment's plan does to the host of its VM.
func (r *run) effectOnVM(at located) effect {
	if r.plan.Want.Empty() && len(r.othersForVM(r.plan.Prior.Assignment)) > 0 {
		return effect{} // another resource of the run has taken it over by then
	}
	return effectOf(r.withClaims(at.key, at.host), at.key, r.owner, r.plan)
}

// stops finds the running VM that an assignment's plan stops, and why.
func (r *run) stops(a *gpu.Assignment) (at located, why []string) {
	at, ok := r.locate(a)
	if !ok || !at.vm.Runs() || r.plan.Unchanged {
		return at, nil
	}
	for _, s := range r.effectOnVM(at).Stops {
		if gpu.SameID(s.VM, at.vm.ID) {
			return at, s.Why
		}
	}
	return at, nil
}
