package backend

import (
	"errors"
	"fmt"
	"slices"
)

// Code is the kind of a failure, the same for all platforms.
type Code string

// Codes.
const (
	NotFound         Code = "not_found"         // the object does not exist on the host
	InvalidParameter Code = "invalid_parameter" // the value can never work
	InvalidState     Code = "invalid_state"     // not in the object's present state (a VM that must be off)
	InUse            Code = "in_use"            // somebody holds it
	Locked           Code = "locked"            // the guest refuses to shut down
	Insufficient     Code = "insufficient"      // no free partition, GPU or memory-mapped IO space
	NotSupported     Code = "not_supported"     // this host or device cannot do it
	AccessDenied     Code = "access_denied"
	RebootNeeded     Code = "reboot_needed" // the host wants a reboot to go on
	Timeout          Code = "timeout"
	Unavailable      Code = "unavailable" // the host or its service does not answer
	Failed           Code = "failed"      // the platform gave no better reason
)

// Is tells whether an error is a failure with one of some codes.
func Is(err error, codes ...Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && slices.Contains(codes, e.Code)
}

// Error is a failure on a host. Match it with errors.As.
type Error struct {
	Code   Code   `json:"code"`
	Op     string `json:"op"`     // what was tried: "set the partition count"
	Object string `json:"object"` // what it was tried on: "GPU PCIROOT(16)#...", "VM avd-01"
	// Detail is the platform's own reason and who stands in the way, Fix what to do about it;
	// "" where nothing is known.
	Detail string `json:"detail,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

func (e *Error) Error() string {
	msg := e.Reason()
	if e.Op != "" { // else what was tried is said beside it, as by a self-test
		msg = fmt.Sprintf("could not %s (%s): %s", e.Op, e.Object, msg)
	}
	if e.Fix != "" {
		msg += "; " + e.Fix
	}
	return msg
}

// Reason is why it failed, without what was tried.
func (e *Error) Reason() string {
	if e.Detail != "" {
		return e.Detail
	}
	return string(e.Code)
}
