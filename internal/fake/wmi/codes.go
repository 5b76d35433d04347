package fakewmi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// Codes of WMI that only a service answers with.
const (
	failed                  hyperv.Code = 0x80041001 // WBEM_E_FAILED
	typeMismatch            hyperv.Code = 0x80041005 // WBEM_E_TYPE_MISMATCH
	readOnly                hyperv.Code = 0x80041023 // WBEM_E_READ_ONLY
	providerNotCapable      hyperv.Code = 0x80041024 // WBEM_E_PROVIDER_NOT_CAPABLE
	invalidMethodParameters hyperv.Code = 0x8004102F // WBEM_E_INVALID_METHOD_PARAMETERS
	invalidObjectPath       hyperv.Code = 0x8004103A // WBEM_E_INVALID_OBJECT_PATH
)

// Return values of Hyper-V's methods, which are also the error codes of its jobs.
const (
	rvCompleted        = 0
	rvJobStarted       = 4096
	rvFailed           = 32768
	rvAccessDenied     = 32769
	rvNotSupported     = 32770
	rvTimeout          = 32772
	rvInvalidParameter = 32773
	rvInUse            = 32774
	rvInvalidState     = 32775
	rvNotAvailable     = 32777
	rvOutOfMemory      = 32778
	rvFileNotFound     = 32779
	rvLocked           = 32781
	rvShuttingDown     = 32782
	rvObjectExists     = 32788
)

// refusal is a method's answer that is neither success nor a fault of WMI.
type refusal struct {
	code uint32
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.text) }

func refuse(code uint32, format string, args ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// hypervCodes are the return values for what a simulated host refuses.
var hypervCodes = map[backend.Code]uint32{
	backend.NotFound:         rvFileNotFound,
	backend.InvalidParameter: rvInvalidParameter,
	backend.InvalidState:     rvInvalidState,
	backend.InUse:            rvInUse,
	backend.Locked:           rvLocked,
	backend.Insufficient:     rvOutOfMemory,
	backend.NotSupported:     rvNotSupported,
	backend.AccessDenied:     rvAccessDenied,
	backend.RebootNeeded:     rvInvalidState,
	backend.Timeout:          rvTimeout,
	backend.Unavailable:      rvNotAvailable,
	backend.Failed:           rvFailed,
}

const noSystemResources = "0x800705AA"

// refusalOf is an error of a simulated host as a method of Hyper-V answers it.
func refusalOf(err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	e, ok := errors.AsType[*backend.Error](err)
	if !ok {
		return &refusal{code: rvFailed, text: err.Error()}
	}
	code, ok := hypervCodes[e.Code]
	if !ok {
		code = rvFailed
	}
	text := e.Detail
	if e.Code == backend.Insufficient && !strings.Contains(text, noSystemResources) {
		text = "Insufficient system resources exist to complete the requested service. (" + noSystemResources + ") " + text
	}
	return &refusal{code: code, text: text}
}

// wbemCodes are the codes of WMI for what a simulated host refuses of a call that has
// no return value.
var wbemCodes = map[backend.Code]hyperv.Code{
	backend.NotFound:         hyperv.NotFound,
	backend.InvalidParameter: hyperv.InvalidParameter,
	backend.AccessDenied:     hyperv.AccessDenied,
	backend.Unavailable:      hyperv.ServerUnavail,
}

// faultOf is any error as a fault of WMI. The end of a context is none.
func faultOf(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("WMI: %s: %w", op, ctx.Err())
	}
	if f, ok := errors.AsType[*hyperv.Fault](err); ok {
		out := *f
		if out.Op == "" {
			out.Op = op
		}
		return &out
	}
	out := &hyperv.Fault{Code: failed, Op: op, Text: err.Error()}
	if e, ok := errors.AsType[*backend.Error](err); ok {
		if code, ok := wbemCodes[e.Code]; ok {
			out.Code = code
		}
		out.Text = e.Detail
	}
	return out
}

// fault is a fault that does not say yet what was asked.
func fault(code hyperv.Code, format string, args ...any) error {
	return &hyperv.Fault{Code: code, Text: fmt.Sprintf(format, args...)}
}

// isFault tells a failure of the service, which is no answer of a method: it has gone,
// or the caller has.
func isFault(err error) bool {
	if _, ok := errors.AsType[*hyperv.Fault](err); ok {
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
