package hyperv

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// Return values of Hyper-V's methods. The same numbers are the error codes of jobs.
const (
	completed  = 0
	jobStarted = 4096

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

// refused is a method's or a job's refusal. Text is the host's own, which also tells
// apart what comes under one number.
func refused(method string, value uint32, text string) error {
	known, ok := returnValues[value]
	if !ok {
		known.code, known.name = backend.Failed, "failed"
	}
	if value >= 32781 && value <= 32787 {
		known.code, known.name = backend.NotFound, "object not found"
	}
	if code, ok := codeInText(text); ok {
		known.code = code
	}
	detail := fmt.Sprintf("%s: %s (%d)", method, known.name, value)
	if text != "" {
		detail += ": " + text
	}
	return &backend.Error{Code: known.code, Detail: detail}
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
	if e, ok := errors.AsType[*backend.Error](err); ok {
		out := *e
		if out.Op == "" {
			out.Op, out.Object = op, object
		}
		return &out
	}
	e := &backend.Error{Code: backend.Failed, Op: op, Object: object, Detail: err.Error()}
	fault, isFault := errors.AsType[*Fault](err)
	switch {
	case ctx.Err() != nil:
		e.Code = backend.Timeout
		e.Detail = "the host had not answered when time ran out: " + err.Error()
	case isFault:
		e.Code = fault.Code.backend()
		if code, ok := codeInText(fault.Text); ok {
			e.Code = code
		}
	}
	return e
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
	case ServerUnavail, CallFailed, Disconnected, ShuttingDown, sharingPaused:
		return backend.Unavailable
	case noSystemResources:
		return backend.Insufficient
	default:
		return backend.Failed
	}
}
