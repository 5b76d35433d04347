package whatif

import (
	"slices"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// TooLate is a plan that comes too late once another one of the run is made, where nothing says
// which of the two comes first.
type TooLate struct {
	Host        string
	First, Late change.Change
	// Refused is why the host refuses Late then. It is nil where both can be made, but how a GPU is
	// shared afterwards hangs on their order: its GPU instances, or else its sharing mode.
	Refused   *gpu.Refusal
	GPU       *gpu.GPU
	Instances bool
}

// TooLate finds the plans of the run that come too late after the one at hand, and those after
// which that one does.
func (r *Run) TooLate(host string, h *gpu.Host) []TooLate {
	var out []TooLate
	about := []string{GPUsOn(host)}
	if isLayout(r.Plan) {
		about = append(about, vmsOn(host), SharesOn(host))
	}
	for e := range r.Others(about...) {
		o := r.overtaken(host, h, e.Plan, r.Plan)
		if o == nil {
			o = r.overtaken(host, h, r.Plan, e.Plan)
		}
		if o != nil {
			out = append(out, *o)
		}
	}
	return out
}

// overtaken finds that a plan comes too late once another one is made, nil where it does not.
func (r *Run) overtaken(host string, h *gpu.Host, late, first change.Change) *TooLate {
	if late.Unchanged || first.Unchanged || !isLayout(late) && !isLayout(first) || ordered(late, first) || ordered(first, late) {
		return nil
	}
	known := r.withClaims(host, h)
	if r.overtakenOn(known, host, late, first) == nil {
		return nil
	}
	// Terraform makes first what the other refers to, and before that what a depends_on names,
	// which is not known here: it comes too late only where it does so in either case.
	known, _ = r.onceReferencesAreMade(known, host, first)
	return r.overtakenOn(known, host, late, first)
}

func (r *Run) overtakenOn(known gpu.Host, host string, late, first change.Change) *TooLate {
	// A share that is replaced has gone by then, and is made where its config and its pool have been.
	makes := late
	if parts := halves(late); late.Want.Share != nil && len(parts) > 1 {
		known, _ = r.after(known, host, parts[0])
		makes = parts[1]
	}
	refusals := func(known gpu.Host) (refused gpu.Refusals, asked bool) {
		if makes.Want.Share != nil && makes.Replaces {
			if known, asked = r.onceReferencesAreMade(known, host, makes); !asked {
				return nil, false // which is said of that one
			}
		}
		return r.Refusals(known, host, makes), true
	}
	if refused, asked := refusals(known); len(refused) > 0 || !asked {
		return nil
	}
	for _, after := range r.outcomes(known, host, withoutDrain(first), late) {
		refused, _ := refusals(after)
		switch {
		case len(refused) == 0:
			if o := r.leavesOver(host, known, after, late, first); o != nil {
				return o
			}
		case refused[0].Rule != change.Capacity:
			return &TooLate{Host: host, First: first, Late: late, Refused: refused[0]}
		}
	}
	return nil
}

// leavesOver finds that how a GPU is shared afterwards hangs on which of two plans is made first: what
// a config leaves and keeps stays under what another one makes of the GPU, and an instance that a
// share no longer uses is not kept for it.
func (r *Run) leavesOver(host string, known, after gpu.Host, late, first change.Change) *TooLate {
	if late.Prior.Config == nil && late.Prior.Share == nil || first.Want.Config == nil {
		return nil
	}
	one, _ := r.after(after, host, late)
	other, _ := r.after(known, host, late)
	other, ok := r.after(other, host, first)
	if !ok {
		return nil
	}
	for i := range one.GPUs {
		a, b := &one.GPUs[i], &other.GPUs[i]
		divided := a.MIGEnabled() && b.MIGEnabled() // its modes go with that
		o := &TooLate{Host: host, First: first, Late: late, GPU: a, Instances: divided && a.MIG.State().String() != b.MIG.State().String()}
		modes := !divided && (a.ComputeMode != b.ComputeMode || a.TimeSlice != b.TimeSlice)
		if o.Instances || modes || !slices.Equal(servedBy(&one, a), servedBy(&other, b)) {
			return o
		}
	}
	return nil
}
