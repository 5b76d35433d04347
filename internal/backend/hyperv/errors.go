package hyperv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// Return values of Hyper-V's methods. The same numbers are the error codes of jobs.
const (
	completed  = 0
	jobStarted = 4096

	rvState            = 5
	rvIncompatible     = 6
	rvFailed           = 32768
	rvAccessDenied     = 32769
	rvNotSupported     = 32770
	rvTimeout          = 32772
	rvInvalidParameter = 32773
	rvInUse            = 32774
	rvInvalidState     = 32775
	rvNotAvailable     = 32777
	rvOutOfMemory      = 32778
	// Of the pools' service: insufficient resources. Of the shutdown component: the
	// guest is not ready, is locked, or shuts down already.
	rvInsufficient = 32780
	rvNotReady     = 32780
	rvLocked       = 32781
	rvShuttingDown = 32782
)

var returnValues = map[uint32]struct {
	code backend.Code
	name string
}{
	1:                  {backend.NotSupported, "not supported"},
	2:                  {backend.Failed, "failed"},
	3:                  {backend.Timeout, "timed out"},
	4:                  {backend.InvalidParameter, "invalid parameter"},
	rvState:            {backend.InvalidState, "invalid state"},
	rvIncompatible:     {backend.InvalidParameter, "incompatible parameters"},
	rvFailed:           {backend.Failed, "failed"},
	rvAccessDenied:     {backend.AccessDenied, "access denied"},
	rvNotSupported:     {backend.NotSupported, "not supported"},
	32771:              {backend.Failed, "status unknown"},
	rvTimeout:          {backend.Timeout, "timed out"},
	rvInvalidParameter: {backend.InvalidParameter, "invalid parameter"},
	rvInUse:            {backend.InUse, "in use"},
	rvInvalidState:     {backend.InvalidState, "invalid state for this operation"},
	32776:              {backend.InvalidParameter, "incorrect data type"},
	rvNotAvailable:     {backend.Unavailable, "the system is not available"},
	rvOutOfMemory:      {backend.Insufficient, "out of memory"},
	32779:              {backend.NotFound, "file not found"},
	rvInsufficient:     {backend.Insufficient, "insufficient resources"},
	32788:              {backend.InUse, "the object exists"},
}

// Names for the numbers of the pools' service that say which object is not there.
const firstObjectNotFound, lastObjectNotFound = 32781, 32787

// refused is a refusal of a method or of a job of Hyper-V. Text is the host's own, which
// also tells apart what comes under one number.
func refused(method string, value uint32, text string) error {
	known, ok := returnValues[value]
	if !ok {
		known.code, known.name = backend.Failed, "failed"
	}
	if value >= firstObjectNotFound && value <= lastObjectNotFound {
		known.code, known.name = backend.NotFound, "object not found"
	}
	if code, ok := codeInText(text); ok {
		known.code = code
	}
	detail := fmt.Sprintf("%s: %s (%d)", method, known.name, value)
	if text != "" {
		detail += ": " + text
	}
	if value == rvAccessDenied {
		detail += ": " + hypervRight
	}
	return &refusal{err: &backend.Error{Code: known.code, Detail: detail}, value: value}
}

// refusal is a refusal of Hyper-V with its number.
type refusal struct {
	err   *backend.Error
	value uint32
}

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

// Return values of methods of Windows that are none of Hyper-V's.
const (
	winFileNotFound   = 2    // ERROR_FILE_NOT_FOUND
	winAccessDenied   = 5    // ERROR_ACCESS_DENIED
	winNotDisableable = 0x28 // CR_NOT_DISABLEABLE
)

// refusedByWindows is a refusal of a method of Windows itself.
func refusedByWindows(what string, value uint32, right string) error {
	switch value {
	case winAccessDenied:
		return refuse(backend.AccessDenied, "%s: access denied (%d): %s", what, value, right)
	case winNotDisableable:
		return refuse(backend.NotSupported, "%s: Windows cannot disable the device (0x%X)", what, value)
	default:
		return refuse(backend.Failed, "%s: failed (%d)", what, value)
	}
}

// refuse is a refusal of ours that does not say yet what was tried on what.
func refuse(code backend.Code, format string, args ...any) error {
	return &backend.Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// complete says in an error what was tried on what.
func complete(ctx context.Context, err error, op, object string) error {
	if err == nil {
		return nil
	}
	out := *asRefusal(ctx, err)
	if out.Op == "" {
		out.Op, out.Object = op, object
	}
	return &out
}

// asRefusal is any error as what the backend answers with.
func asRefusal(ctx context.Context, err error) *backend.Error {
	if e, ok := errors.AsType[*backend.Error](err); ok {
		return e
	}
	if cut, ok := errors.AsType[*cutOff](err); ok {
		return &backend.Error{Code: backend.Timeout, Detail: cut.Error()}
	}
	if ctx.Err() != nil {
		return &backend.Error{Code: backend.Timeout, Detail: "the host had not answered when time ran out: " + err.Error()}
	}
	fault, ok := errors.AsType[*Fault](err)
	if !ok {
		return &backend.Error{Code: backend.Failed, Detail: err.Error()}
	}
	e := &backend.Error{Code: fault.Code.backend(), Detail: err.Error()}
	if code, ok := codeInText(fault.Text); ok {
		e.Code = code
	}
	if advice := fault.advice(); advice != "" {
		e.Detail += ": " + advice
	}
	return e
}

// undone is an error after which all is as before.
func undone(ctx context.Context, cause error, what string) error {
	out := *asRefusal(ctx, cause)
	out.Detail = reason(&out) + "; " + what
	return &out
}

// aftermath is an error after which something could not be put right. It keeps the code
// of its cause: whether the host answered is what a caller decides by.
func aftermath(ctx context.Context, cause error, what string, err error) error {
	out := *asRefusal(ctx, cause)
	out.Detail = fmt.Sprintf("%s; and %s: %s", reason(&out), what, reason(err))
	return &out
}

// reason is what an error says, without what was tried.
func reason(err error) string {
	if e, ok := errors.AsType[*backend.Error](err); ok && e.Op == "" {
		return e.Reason()
	}
	return err.Error()
}

// advice is what a person does about a fault.
func (f *Fault) advice() string {
	hyperv := strings.EqualFold(f.Namespace, Virtualization)
	switch f.Code {
	case AccessDenied, DCOMDenied:
		return rightFor(f.Code, f.Namespace, f.Class != "")
	case InvalidNamespace:
		if hyperv {
			return "the host has no Hyper-V: install it with Install-WindowsFeature Hyper-V -IncludeManagementTools -Restart"
		}
	case ProviderNotFound, ProviderNoLoad, ProviderNoInit:
		if hyperv {
			return "the service of Hyper-V may not run: Start-Service vmms"
		}
	case InvalidClass:
		if hyperv {
			return "this build of Windows cannot do it"
		}
	}
	return ""
}

func (c Code) backend() backend.Code {
	switch c {
	case NotFound:
		return backend.NotFound
	case AccessDenied, DCOMDenied:
		return backend.AccessDenied
	case InvalidParameter:
		return backend.InvalidParameter
	case InvalidNamespace, InvalidClass, InvalidMethod:
		return backend.NotSupported
	case ServerUnavail, CallFailed, Disconnected, ShuttingDown, sharingPaused, ProviderNotFound, ProviderNoLoad, ProviderNoInit:
		return backend.Unavailable
	case noSystemResources:
		return backend.Insufficient
	default:
		return backend.Failed
	}
}
