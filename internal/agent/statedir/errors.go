package statedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// Code is why a state directory cannot be used.
type Code string

// Codes.
const (
	Unsafe   Code = "unsafe"   // others could change it
	Full     Code = "full"     // no space for a new state; the old one stands
	Busy     Code = "busy"     // another process held the lock until time ran out
	Unusable Code = "unusable" // the system refuses to make, read or write it
)

// Error is a state directory that cannot be used. A state that cannot be read is a
// *backend.UnreadableError. Match it with errors.As.
type Error struct {
	Path  string // the directory or the file
	Code  Code
	Found string // what is wrong
	Fix   string // what to do about it
	Err   error  // the system's own error, if there is one
}

func (e *Error) Error() string {
	msg := fmt.Sprintf("the agent's state in %s cannot be used: %s", e.Path, e.Found)
	if e.Code == Full {
		msg = fmt.Sprintf("the agent's state in %s cannot be written: %s", e.Path, e.Found)
	}
	if e.Fix != "" {
		msg += "; " + e.Fix
	}
	return msg
}

func (e *Error) Unwrap() error { return e.Err }

func tooLarge(path string, size int64) backend.Unreadable {
	r := backend.NewUnreadable("the file", nil, false, "it has %d bytes, and no state has more than %d", size, backend.MaxState)
	r.File = path
	return r
}

func untrusted(path, found, fix string) *Error {
	return &Error{Path: path, Code: Unsafe, Found: found, Fix: fix}
}

func unusable(path string, err error) *Error {
	e := &Error{
		Path: path, Code: Unusable, Found: err.Error(), Err: err,
		Fix: "the agent needs a directory on a local disk that its user owns",
	}
	if errors.Is(err, fs.ErrPermission) {
		e.Fix = "run the agent as the directory's owner, or give it a directory of its own"
	}
	return e
}

func busy(path string, err error) *Error {
	return &Error{
		Path: path, Code: Busy, Err: err,
		Found: fmt.Sprintf("another process of the agent held the lock until time ran out (%v)", err),
	}
}

// lockFailed tells waiting in vain from a lock that cannot be had at all.
func lockFailed(ctx context.Context, path string, err error) *Error {
	switch {
	case ctx.Err() != nil:
		return busy(path, ctx.Err())
	case diskFull(err):
		return full(path, err)
	}
	return unusable(path, err)
}

// notWritten is a state that could not be replaced.
func notWritten(path string, err error) *Error {
	if diskFull(err) {
		return full(path, err)
	}
	return unusable(path, err)
}

func full(path string, err error) *Error {
	return &Error{
		Path: path, Code: Full, Found: err.Error(), Err: err,
		Fix: "the state before stands; free some space on that disk and run again",
	}
}
