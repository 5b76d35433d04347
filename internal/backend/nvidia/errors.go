//go:build linux && cgo

package nvidia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// returnError is a call to NVML that did not succeed.
type returnError struct {
	call string
	ret  nvml.Return
}

func (e *returnError) Error() string {
	return fmt.Sprintf("%s: %s (%d)", e.call, cmp.Or(names[e.ret], "an error that gpu-agent has no name for"), e.ret)
}

func failed(call string, ret nvml.Return) error { return &returnError{call: call, ret: ret} }

// names are NVML's, which its own function for them does not tell once it is shut down.
var names = map[nvml.Return]string{
	nvml.ERROR_UNINITIALIZED: "NVML is not initialised", nvml.ERROR_INVALID_ARGUMENT: "invalid argument",
	nvml.ERROR_NOT_SUPPORTED: "not supported", nvml.ERROR_NO_PERMISSION: "no permission", nvml.ERROR_NOT_FOUND: "not found",
	nvml.ERROR_INSUFFICIENT_POWER: "insufficient power", nvml.ERROR_DRIVER_NOT_LOADED: "the driver is not loaded",
	nvml.ERROR_TIMEOUT: "timeout", nvml.ERROR_IRQ_ISSUE: "an interrupt of the GPU does not arrive",
	nvml.ERROR_GPU_IS_LOST:    "the GPU has fallen off the bus",
	nvml.ERROR_RESET_REQUIRED: "the GPU needs a reset", nvml.ERROR_OPERATING_SYSTEM: "the operating system refused",
	nvml.ERROR_LIB_RM_VERSION_MISMATCH: "library and kernel driver are of different versions", nvml.ERROR_IN_USE: "in use",
	nvml.ERROR_MEMORY: "insufficient memory", nvml.ERROR_ALREADY_INITIALIZED: "NVML is initialised already",
	nvml.ERROR_INSUFFICIENT_SIZE: "more answers than there is room for",
	nvml.ERROR_LIBRARY_NOT_FOUND: "the library is not there", nvml.ERROR_FUNCTION_NOT_FOUND: "the driver lacks the function",
	nvml.ERROR_CORRUPTED_INFOROM:      "the InfoROM of the GPU is corrupted",
	nvml.ERROR_VGPU_ECC_NOT_SUPPORTED: "no vGPU with ECC", nvml.ERROR_FREQ_NOT_SUPPORTED: "frequency not supported",
	nvml.ERROR_ARGUMENT_VERSION_MISMATCH: "the driver has another version of the argument",
	nvml.ERROR_DEPRECATED:                "the driver no longer has the function", nvml.ERROR_NOT_READY: "the system is not ready",
	nvml.ERROR_GPU_NOT_FOUND: "no GPU found", nvml.ERROR_NO_DATA: "no data", nvml.ERROR_INSUFFICIENT_RESOURCES: "insufficient resources",
	nvml.ERROR_INVALID_STATE: "invalid state", nvml.ERROR_RESET_TYPE_NOT_SUPPORTED: "the GPU has no such reset",
	nvml.ERROR_UNKNOWN: "unknown error",
}

var codes = map[nvml.Return]backend.Code{
	nvml.ERROR_NO_PERMISSION: backend.AccessDenied, nvml.ERROR_NOT_FOUND: backend.NotFound, nvml.ERROR_NOT_SUPPORTED: backend.NotSupported,
	nvml.ERROR_IN_USE: backend.InUse, nvml.ERROR_INSUFFICIENT_RESOURCES: backend.Insufficient,
	nvml.ERROR_INVALID_ARGUMENT: backend.InvalidParameter,
	nvml.ERROR_INVALID_STATE:    backend.InvalidState, nvml.ERROR_TIMEOUT: backend.Timeout,
	nvml.ERROR_DRIVER_NOT_LOADED: backend.Unavailable, nvml.ERROR_LIB_RM_VERSION_MISMATCH: backend.Unavailable,
	nvml.ERROR_UNINITIALIZED: backend.Unavailable,
}

// isReturn tells whether an error is an answer of NVML.
func isReturn(err error, rets ...nvml.Return) bool {
	e, ok := errors.AsType[*returnError](err)
	return ok && slices.Contains(rets, e.ret)
}

// isStale tells whether the driver itself is gone, and NVML has to be initialised again. All
// other errors are those of one GPU.
func isStale(err error) bool {
	return isReturn(err, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH)
}

func refuse(code backend.Code, format string, args ...any) error {
	return &backend.Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// complete says in an error what was tried on what.
func complete(ctx context.Context, err error, op, object string) error {
	if err == nil {
		return nil
	}
	out := &backend.Error{Code: backend.Failed, Op: op, Object: object, Detail: err.Error()}
	if be, ok := errors.AsType[*backend.Error](err); ok {
		out.Code, out.Detail = be.Code, be.Detail
		return out
	}
	if e, ok := errors.AsType[*returnError](err); ok {
		out.Code = cmp.Or(codes[e.ret], out.Code)
		if e.ret == nvml.ERROR_NO_PERMISSION {
			out.Detail += "; gpu-agent has to run as root for this"
		}
		return out
	}
	if ctx.Err() != nil {
		out.Code = backend.Timeout
	}
	return out
}
