package change

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Code is the kind of a refusal, in the words of the platforms' errors where they have one.
type Code string

// Codes.
const (
	NotFound         Code = "not_found"
	InvalidParameter Code = "invalid_parameter"
	InvalidState     Code = "invalid_state"
	InUse            Code = "in_use"
	Insufficient     Code = "insufficient"
	NotSupported     Code = "not_supported"
	Unavailable      Code = "unavailable" // what the change concerns cannot be read
	NotOwner         Code = "not_owner"   // the object is somebody else's
	BadRequest       Code = "bad_request" // the change makes no sense
	Unannounced      Code = "unannounced" // it would disturb more than was planned
)

// Refusal is why a host is not changed as asked: its state does not allow it, or the object
// is somebody else's. Match it with errors.As.
type Refusal struct {
	Code Code
	// Op is what was asked for ("set the partition count"), and Object what of ("GPU
	// PCIROOT(16)#...", "VM avd-01"). Both are "" where Found says it all.
	Op, Object string
	// Rule is the id of the rule that says the same when it is planned; "" for none.
	Rule string
	// GPU and VM are the ids of what it is about, "" for others.
	GPU, VM string
	// By are those in the way, in words.
	By []string
	// Needs is what max_disruption would have to be; "" where it does not help.
	Needs gpu.Disruption
	// Restores is the former layout, in words, that a GPU does not get back which leaves a
	// config; "" for others.
	Restores string
	// Found is what stands in the way, and Fix what to do about it; "" where nothing helps.
	Found, Fix string
	cause      error
}

func (r *Refusal) Error() string {
	if r.Op == "" {
		return r.detail()
	}
	return fmt.Sprintf("could not %s (%s): %s", r.Op, r.Object, r.detail())
}

// Unwrap is the error of package placement behind it, if there is one.
func (r *Refusal) Unwrap() error { return r.cause }

// detail is what is in the way and what to do about it.
func (r *Refusal) detail() string {
	if r.Fix == "" {
		return r.Found
	}
	return r.Found + "; " + r.Fix
}

// Layout is why a GPU has no place for a layout that is wanted, an error of package placement;
// nil where that is not in the way.
func (r Refusals) Layout(gpuID string) error {
	for _, one := range r {
		if gpu.SameID(one.GPU, gpuID) && one.cause != nil && one.Restores == "" {
			return one.cause
		}
	}
	return nil
}

// Refusals are all that stands in the way of a change. The first speaks for them.
type Refusals []*Refusal

func (r Refusals) Error() string { return r[0].Error() }

// Unwrap returns each of them.
func (r Refusals) Unwrap() []error {
	out := make([]error, len(r))
	for i := range r {
		out[i] = r[i]
	}
	return out
}

// Of are those that a rule is about.
func (r Refusals) Of(rule string) Refusals {
	return slices.DeleteFunc(slices.Clone(r), func(x *Refusal) bool { return x.Rule != rule })
}

// refuse is the refusal of a host whose state does not allow a change.
func refuse(code Code, op, object, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Op: op, Object: object, Found: fmt.Sprintf(format, args...)}
}

// refuseGPU is refuse of what is asked of a GPU.
func refuseGPU(code Code, op, id, format string, args ...any) *Refusal {
	r := refuse(code, op, "GPU "+id, format, args...)
	r.GPU = id
	return r
}

// Rules that refusals are about.
const (
	VMMustBeOff    = "vm-must-be-off"
	PartitionInUse = "partition-in-use"
	Readable       = "readable"
	Capacity       = "capacity"
	MIGMode        = "mig-mode"
	VGPUInUse      = "vgpu-in-use"
	MPSInUse       = "mps-in-use"
)

// RefusedAnyway lists the rules of which the host keeps to a part, whatever their level.
func RefusedAnyway() []string {
	return []string{VMMustBeOff, PartitionInUse, Readable, Capacity, MIGMode, VGPUInUse, MPSInUse}
}

// of says which rule a refusal is about.
func (r *Refusal) of(rule string) *Refusal {
	r.Rule = rule
	return r
}

// or adds the way out.
func (r *Refusal) or(format string, args ...any) *Refusal {
	r.Fix = fmt.Sprintf(format, args...)
	return r
}

// by says who is in the way.
func (r *Refusal) by(who ...string) *Refusal {
	r.By = who
	return r
}

// needs says which class of disruption has to be allowed.
func (r *Refusal) needs(d gpu.Disruption) *Refusal {
	r.Needs = d
	return r
}

// leaving makes it the refusal of a GPU that leaves, and was to have its former layout back;
// of one that stays there is none.
func (r *Refusal) leaving(former string) *Refusal {
	if former == "" {
		return r
	}
	r.Restores = former
	r.Fix = strings.TrimPrefix(r.Fix+", or keep the layout (on_destroy = \"keep\")", ", or ")
	return r
}

// refuse notes what stands in the way. The steps are worked out as if nothing did.
func (p *planner) refuse(r *Refusal) { p.refused = append(p.refused, r) }
