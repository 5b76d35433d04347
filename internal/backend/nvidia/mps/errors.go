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

// failed is refuse for a cause, whose code it keeps, with what else there is to say; nil for none.
func failed(op, name string, cause error, more ...string) error {
	if cause == nil {
		return nil
	}
	out := backend.Error{Code: backend.Failed, Op: op, Object: object(name), Detail: cause.Error()}
	switch known, ok := errors.AsType[*backend.Error](cause); {
	case ok && known.Op != "":
		out = *known // it says itself what was tried on what
	case ok:
		out.Code, out.Detail = known.Code, known.Detail
	case errors.Is(cause, fs.ErrPermission):
		out.Code = backend.AccessDenied
	case isFull(cause):
		out.Code = backend.Insufficient
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		out.Code = backend.Timeout
	}
	out.Detail = sentence(append([]string{out.Detail}, more...)...)
	return &out
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
