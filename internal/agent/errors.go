package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
)

// Code is why a call failed.
type Code string

// Codes.
const (
	RuleViolation   Code = "rule_violation"   // see Findings
	LeaseHeld       Code = "lease_held"       // another run changes the host, see Lease
	StaleFence      Code = "stale_fence"      // the lease was lost in the meantime
	HostChanged     Code = "host_changed"     // the host is not as it was when the change was prepared
	NotOwner        Code = "not_owner"        // the object is somebody else's
	Refused         Code = "refused"          // the host's state does not allow the change; nothing was touched
	Unannounced     Code = "unannounced"      // it would disturb more than its plan announced; nothing was touched
	StepFailed      Code = "step_failed"      // a step or the read-back failed, see Outcome
	Cancelled       Code = "cancelled"        // the caller gave up; what was done is undone, see Outcome
	Unavailable     Code = "unavailable"      // the host does not answer
	VersionMismatch Code = "version_mismatch" // the two ends speak different protocols
	Denied          Code = "denied"           // the caller's role does not allow the call
	BadRequest      Code = "bad_request"
	BadReply        Code = "bad_reply"         // the host answers, and not as an agent does; the client says so
	Unreadable      Code = "unreadable_record" // the agent cannot read what it has recorded; nothing was touched
	Internal        Code = "internal"
)

// Error is a failed call, the same value at both ends. Match it with errors.As.
type Error struct {
	Code Code `json:"kind"`
	// Host is the provider's name for the host.
	Host    string `json:"host,omitempty"`
	Message string `json:"message,omitempty"`
	// Step says what was being done, when a step failed.
	Step string `json:"step,omitempty"`
	// Findings are the violations, when a rule forbids the change.
	Findings []rules.Finding `json:"findings,omitempty"`
	// Lease is the one that stands in the way.
	Lease *backend.Lease `json:"lease,omitempty"`
	// Cause is the platform's error.
	Cause *backend.Error `json:"cause,omitempty"`
	// Outcome is how a change that began ended; nil when nothing was touched.
	Outcome *Outcome `json:"outcome,omitempty"`

	// transport is the error of the connection, at the client only.
	transport error
}

func (e *Error) Error() string {
	text := e.Reason()
	switch {
	case e.Outcome == nil:
	case e.Outcome.RolledBack:
		text += "; everything was put back"
	case len(e.Outcome.Stands) > 0:
		text += "; not put back: " + strings.Join(e.Outcome.Stands, "; ")
	}
	return text
}

// Reason is why the call failed, without how the change ended.
func (e *Error) Reason() string {
	var parts []string
	if e.Message != "" {
		parts = append(parts, e.Message)
	}
	for _, f := range e.Findings {
		parts = append(parts, strings.TrimSpace(f.Title+" ("+f.Rule+"). "+f.Found))
	}
	switch {
	case e.Cause == nil:
	case e.Step != "": // the message says what was tried, and on what
		parts = append(parts, e.Cause.Reason())
	default:
		parts = append(parts, e.Cause.Error())
	}
	if len(parts) == 0 {
		parts = append(parts, string(e.Code))
	}
	return strings.Join(parts, ": ")
}

// Unwrap gives the platform's error, or that of the connection.
func (e *Error) Unwrap() error {
	switch {
	case e.Cause != nil:
		return e.Cause
	case e.transport != nil:
		return e.transport
	case e.Code == Cancelled:
		return context.Canceled
	}
	return nil
}

// Broken tells whether the connection is why the call failed, and not the host: what
// the host did is not known, and a new connection is needed.
func (e *Error) Broken() bool {
	return e.Code == Unavailable && e.transport != nil && !errors.Is(e.transport, context.DeadlineExceeded)
}

// causeOf is the platform's error in err, if there is one.
func causeOf(err error) *backend.Error {
	var be *backend.Error
	if errors.As(err, &be) {
		return be
	}
	return nil
}

// failure makes any error of a backend or a store the contract's.
func failure(doing string, err error) *Error {
	var ae *Error
	if errors.As(err, &ae) {
		return ae
	}
	if ue := (*backend.UnreadableError)(nil); errors.As(err, &ue) {
		return &Error{Code: Unreadable, Message: ue.Error()}
	}
	e := &Error{Code: Internal, Message: "could not " + doing, Cause: causeOf(err)}
	switch {
	case e.Cause == nil:
		e.Message += ": " + err.Error()
	case e.Cause.Op == doing:
		e.Message = "" // the cause says it, and of what
	}
	switch {
	case errors.Is(err, context.Canceled):
		e.Code = Cancelled
	case errors.Is(err, context.DeadlineExceeded),
		e.Cause != nil && (e.Cause.Code == backend.Unavailable || e.Cause.Code == backend.Timeout):
		e.Code = Unavailable
	}
	return e
}

// refused makes a refusal of the planner the contract's error.
func refused(err error) error {
	r := gpu.RefusalOf(err)
	if r == nil {
		return err
	}
	switch r.Code {
	case gpu.NotOwner:
		return &Error{Code: NotOwner, Message: r.Error()}
	case gpu.Unannounced:
		return &Error{Code: Unannounced, Message: r.Error()}
	case gpu.BadRequest:
		return &Error{Code: BadRequest, Message: r.Error()}
	}
	return &Error{Code: Refused, Cause: &backend.Error{Code: backend.Code(r.Code), Op: r.Op, Object: r.Object, Detail: r.Found(), Fix: r.Fix}}
}
