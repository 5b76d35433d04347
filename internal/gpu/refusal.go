package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Fault is exactly what is wrong with what is wanted. Package placement lists them; of several
// the first one there decides what to do.
type Fault int

// Refusal is why a host cannot have what is wanted, or is not changed as asked: its state does not
// allow it, or the object is somebody else's. A solver of package placement makes it, or the planner of
// a change, which adds what was asked for; package rules makes a finding of it. Match it with errors.As.
type Refusal struct {
	Code Code
	// Fault is what a solver found; 0 for a refusal of the planner's own.
	Fault Fault
	// Op is what was asked for ("set the partition count"), and Object what of ("GPU
	// PCIROOT(16)#...", "VM avd-01"). Both are "" where the reasons say it all.
	Op, Object string
	// Rule is the id of the rule that says the same when it is planned; "" for none.
	Rule string
	// Host, GPU and VM are the name and the ids of what it is about, "" for others.
	Host, GPU, VM string
	// Attribute is the argument that it is about; "" where the fault tells.
	Attribute string
	// By are those in the way, in words.
	By []string
	// Needs is what max_disruption would have to be; "" where it does not help.
	Needs Disruption
	// Restores is the former layout, in words, that a GPU does not get back which leaves a
	// config; "" for others.
	Restores string
	// Reasons are what stands in the way, each a clause of its own.
	Reasons []string
	// Brief and Wanted are the reasons in two halves, what there is and what is wanted, for who has said
	// already what is refused; "" where they have no halves.
	Brief, Wanted string
	// Meant asks for the name that may have been meant by one that there is not; "" for none.
	Meant string
	// Fix is what to do about it; "" where nothing helps, or the fault tells.
	Fix string
}

// RefusalOf is the refusal that an error is, or has in it; nil for none.
func RefusalOf(err error) *Refusal {
	r, _ := errors.AsType[*Refusal](err)
	return r
}

func (r *Refusal) Error() string {
	text := r.Found()
	if r.Fix != "" {
		text += "; " + r.Fix
	}
	if r.Op == "" {
		return text
	}
	return fmt.Sprintf("could not %s (%s): %s", r.Op, r.Object, text)
}

// Found is all that stands in the way, in one line.
func (r *Refusal) Found() string { return strings.Join(r.Reasons, "; ") }

// Err is the refusal as an error, nil if nothing stands in the way.
func (r *Refusal) Err() error {
	if len(r.Reasons) == 0 {
		return nil
	}
	return r
}

// OfRule says which rule a refusal is about.
func (r *Refusal) OfRule(rule string) *Refusal {
	r.Rule = rule
	return r
}

// Or adds the way out.
func (r *Refusal) Or(format string, args ...any) *Refusal {
	r.Fix = fmt.Sprintf(format, args...)
	return r
}

// HeldBy says who is in the way.
func (r *Refusal) HeldBy(who ...string) *Refusal {
	r.By = who
	return r
}

// Unless says which class of disruption has to be allowed.
func (r *Refusal) Unless(d Disruption) *Refusal {
	r.Needs = d
	return r
}

// Leaving makes it the refusal of a GPU that leaves, and was to have its former layout back;
// of one that stays there is none.
func (r *Refusal) Leaving(former string) *Refusal {
	if former == "" {
		return r
	}
	r.Restores = former
	r.Fix = strings.TrimPrefix(r.Fix+", or keep the layout (on_destroy = \"keep\")", ", or ")
	return r
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

// Layout is why a GPU has no place for a layout that is wanted; nil where that is not in the way.
func (r Refusals) Layout(gpuID string) *Refusal {
	i := slices.IndexFunc(r, func(x *Refusal) bool { return SameID(x.GPU, gpuID) && x.Fault != 0 && x.Restores == "" })
	if i < 0 {
		return nil
	}
	return r[i]
}
