package change

import "fmt"

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
	// Found is what stands in the way, and Fix what to do about it; "" where nothing helps.
	Found, Fix string
}

func (r *Refusal) Error() string {
	if r.Op == "" {
		return r.detail()
	}
	return fmt.Sprintf("could not %s (%s): %s", r.Op, r.Object, r.detail())
}

// detail is what is in the way and what to do about it.
func (r *Refusal) detail() string {
	if r.Fix == "" {
		return r.Found
	}
	return r.Found + "; " + r.Fix
}

// refuse is the refusal of a host whose state does not allow a change.
func refuse(code Code, op, object, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Op: op, Object: object, Found: fmt.Sprintf(format, args...)}
}

// Rules that refusals are about.
const (
	VMMustBeOff    = "vm-must-be-off"
	PartitionInUse = "partition-in-use"
	Readable       = "readable"
	Capacity       = "capacity"
)

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
