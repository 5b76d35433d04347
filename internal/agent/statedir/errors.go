package statedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Kind is why a state directory cannot be used.
type Kind string

// Kinds.
const (
	Corrupt  Kind = "corrupt"  // the state file is damaged
	Newer    Kind = "newer"    // a newer agent wrote it
	Unsafe   Kind = "unsafe"   // others could change it
	Full     Kind = "full"     // no space for a new state; the old one stands
	Busy     Kind = "busy"     // another process held the lock until time ran out
	Unusable Kind = "unusable" // the system refuses to make, read or write it
)

// Error is a state directory that cannot be used. Match it with errors.As.
type Error struct {
	Path  string // the directory or the file
	Kind  Kind
	Found string // what is wrong
	Fix   string // what to do about it
	Err   error  // the system's own error, if there is one
}

func (e *Error) Error() string {
	msg := fmt.Sprintf("the agent's state in %s cannot be used: %s", e.Path, e.Found)
	if e.Kind == Full {
		msg = fmt.Sprintf("the agent's state in %s cannot be written: %s", e.Path, e.Found)
	}
	if e.Fix != "" {
		msg += "; " + e.Fix
	}
	return msg
}

func (e *Error) Unwrap() error { return e.Err }

func corrupt(path string, size int, err error) *Error {
	return &Error{
		Path: path, Kind: Corrupt, Err: err,
		Found: fmt.Sprintf("the file of %d bytes is damaged (%v)", size, err),
		Fix: "nothing was overwritten; restore it from a backup, or move it away to begin with no claims, " +
			"after which objects that Terraform manages here have to be imported again",
	}
}

func newer(path, found string) *Error {
	return &Error{Path: path, Kind: Newer, Found: found, Fix: "a newer agent wrote it: install that version or a later one on this host"}
}

func untrusted(path, found, fix string) *Error {
	return &Error{Path: path, Kind: Unsafe, Found: found, Fix: fix}
}

func unusable(path string, err error) *Error {
	e := &Error{
		Path: path, Kind: Unusable, Found: err.Error(), Err: err,
		Fix: "the agent needs a directory on a local disk that its user owns",
	}
	if errors.Is(err, fs.ErrPermission) {
		e.Fix = "run the agent as the directory's owner, or give it a directory of its own"
	}
	return e
}

func busy(path string, err error) *Error {
	return &Error{
		Path: path, Kind: Busy, Err: err,
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
		Path: path, Kind: Full, Found: err.Error(), Err: err,
		Fix: "the state before stands; free some space on that disk and run again",
	}
}
