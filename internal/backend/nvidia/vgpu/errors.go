package vgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// refuse is an error that says on which GPU what was tried.
func refuse(address, op string, code backend.Code, format string, args ...any) error {
	return &backend.Error{Code: code, Op: op, Object: "GPU " + address, Detail: fmt.Sprintf(format, args...)}
}

// failed is refuse with the code of a cause, whose text is part of the detail.
func failed(address, op string, cause error, format string, args ...any) error {
	return refuse(address, op, codeOf(cause), "%s: %v", fmt.Sprintf(format, args...), cause)
}

func codeOf(err error) backend.Code {
	var known *backend.Error
	switch {
	case errors.As(err, &known):
		return known.Code
	case errors.Is(err, fs.ErrNotExist):
		return backend.NotFound
	case errors.Is(err, fs.ErrPermission):
		return backend.AccessDenied
	case errors.Is(err, syscall.EBUSY):
		return backend.InUse
	case errors.Is(err, syscall.EINVAL):
		return backend.InvalidParameter
	case errors.Is(err, syscall.ENOSPC):
		return backend.Insufficient
	}
	return backend.Failed
}

// absent tells whether a file is not there, or its device says that it has no value.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV)
}
