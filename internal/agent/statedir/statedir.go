// Package statedir keeps what the agent of one host remembers in a directory on that
// host: its claims, its lease and its journal.
//
// The directory holds two files. "state.json" is the state; it is replaced as a
// whole, after the new one has reached the disk, so a reader sees the old state or
// the new one and a crash leaves one of the two. "state.lock" is what processes take
// turns by; the system frees the lock of a process that dies.
//
// Whoever can write to the directory decides what the agent may stop and what it puts
// back. A directory that others can write to is therefore refused, and so is a link.
package statedir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
)

// The files in the directory.
const (
	stateName = "state.json"
	lockName  = "state.lock"
)

// lockPoll is how often a lock that another process holds is tried again. It is held
// for one write of a small file, never while a step runs.
const lockPoll = 2 * time.Millisecond

// Dir is the state directory of a host. Its errors are *Error, but for those of the
// function that Update is given.
type Dir struct {
	path string
	// busy is held by the goroutine that changes the state, so that the goroutines of
	// one process queue up instead of polling for the lock.
	busy chan struct{}
}

var (
	_ backend.Store    = (*Dir)(nil)
	_ backend.Repairer = (*Dir)(nil)
)

// Open makes the directory if there is none, and checks that nobody else can write to
// it. It does not read the state.
func Open(dir string) (*Dir, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, unusable(dir, err)
	}
	if err := makePrivate(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, unusable(path, err)
	}
	d := &Dir{path: path, busy: make(chan struct{}, 1)}
	return d, d.check()
}

// check looks at the directory itself, not at what a link points to.
func (d *Dir) check() error {
	info, err := os.Lstat(d.path)
	switch {
	case err != nil:
		return unusable(d.path, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return untrusted(d.path, "it is a link", "name the directory itself")
	case !info.IsDir():
		return untrusted(d.path, "it is not a directory", "name another directory, or move the file away")
	}
	return checkPrivate(d.path, info)
}

// Place implements backend.Repairer.
func (d *Dir) Place() string { return d.statePath() }

func (d *Dir) statePath() string { return filepath.Join(d.path, stateName) }

// Load reads the state. A directory without one is a host that was never managed. Of a
// state that cannot be read in full it returns the rest, with a *backend.UnreadableError.
func (d *Dir) Load(ctx context.Context) (backend.State, error) {
	unlock, err := d.lockForReading(ctx)
	if err != nil {
		return backend.State{}, err
	}
	defer unlock()
	state, _, err := d.read()
	if err != nil {
		return backend.State{}, err
	}
	return state, state.Err()
}

// Update lets f change the state under a lock that all processes share. f must not
// use the directory: it would wait for the lock that it runs under.
func (d *Dir) Update(ctx context.Context, f func(*backend.State) error) error {
	return d.change(ctx, func(state *backend.State, _ []byte) error {
		if err := state.Err(); err != nil {
			return err
		}
		return f(state)
	})
}

// Repair implements backend.Repairer. What was there before is kept in a file beside it.
func (d *Dir) Repair(ctx context.Context, f func(*backend.State) error) error {
	return d.change(ctx, func(state *backend.State, old []byte) error {
		before := *state
		if err := f(state); err != nil {
			return err
		}
		switch {
		case len(state.Unreadable) == len(before.Unreadable) && len(state.Journal) == len(before.Journal):
			return before.Err() // nothing was given up
		case old == nil:
			return untrusted(d.statePath(), "it is too large to be read", "move it away")
		}
		sum := sha256.Sum256(old)
		kept := filepath.Join(d.path, fmt.Sprintf("dropped-%x.json", sum[:6]))
		if err := replaceFile(kept, old); err != nil {
			return notWritten(kept, err)
		}
		return nil
	})
}

// change lets f make a new state of the one that the file holds.
func (d *Dir) change(ctx context.Context, f func(state *backend.State, old []byte) error) error {
	select {
	case d.busy <- struct{}{}:
		defer func() { <-d.busy }()
	case <-ctx.Done():
		return busy(d.lockPath(), ctx.Err())
	}
	lock := d.lock()
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return lockFailed(ctx, d.lockPath(), err)
	}
	defer unlock(lock)

	state, old, err := d.read()
	if err != nil {
		return err
	}
	if err := f(&state, old); err != nil {
		return err
	}
	data, err := state.Encode()
	if err != nil {
		return unusable(d.statePath(), err)
	}
	if bytes.Equal(data, old) {
		return nil
	}
	if err := replaceFile(d.statePath(), data); err != nil {
		return notWritten(d.statePath(), err)
	}
	return nil
}

// read returns the state and the bytes that it was read from.
func (d *Dir) read() (backend.State, []byte, error) {
	path := d.statePath()
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A directory that is gone is no host without a state.
		return backend.State{}, nil, d.check()
	case err != nil:
		return backend.State{}, nil, unusable(path, err)
	case !info.Mode().IsRegular():
		return backend.State{}, nil,
			untrusted(path, "it is a link or no file at all", "find out who put it there, and restore the file from a backup or move it away")
	}
	if info.Size() > backend.MaxState {
		return backend.State{Unreadable: []backend.Unreadable{tooLarge(path, info.Size())}}, nil, nil
	}
	in, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return backend.State{}, nil, unusable(path, err)
	}
	defer func() { _ = in.Close() }() // nothing was written
	data, err := io.ReadAll(in)
	if err != nil {
		return backend.State{}, nil, unusable(path, err)
	}
	state := backend.DecodeState(data)
	for i := range state.Unreadable {
		state.Unreadable[i].File = path
	}
	return state, data, nil
}

func (d *Dir) lockPath() string { return filepath.Join(d.path, lockName) }

func (d *Dir) lock() *flock.Flock {
	return flock.New(d.lockPath(), flock.SetFlag(os.O_CREATE|os.O_RDWR|noFollow), flock.SetPermissions(0o600))
}

// unlock gives the lock back. Closing the descriptor releases it even when an
// explicit unlock fails, so there is nothing to report.
func unlock(lock *flock.Flock) { _ = lock.Unlock() }
