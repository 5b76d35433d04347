package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// object names a daemon in an error.
func object(name string) string { return "MPS daemon " + name }

func refuse(code backend.Code, op, name, format string, args ...any) error {
	return &backend.Error{Code: code, Op: op, Object: object(name), Detail: fmt.Sprintf(format, args...)}
}

// failed is refuse for a cause, whose code it keeps.
func failed(op, name string, cause error) error {
	known, ok := errors.AsType[*backend.Error](cause)
	if ok && known.Op == "" {
		return refuse(known.Code, op, name, "%s", known.Detail)
	}
	if ok {
		return cause // it says itself what was tried on what
	}
	code := backend.Failed
	switch {
	case errors.Is(cause, fs.ErrPermission):
		code = backend.AccessDenied
	case isFull(cause):
		code = backend.Insufficient
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		code = backend.Timeout
	}
	return refuse(code, op, name, "%v", cause)
}

// sentence joins what is there of a text's parts.
func sentence(parts ...string) string {
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, p)
		}
	}
	return strings.Join(said, "; ")
}
