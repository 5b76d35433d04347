package simulated

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
)

// lockPoll is how often a lock that another process holds is tried again. The lock
// is held for one small file operation, never while a simulated VM starts.
const lockPoll = 2 * time.Millisecond

// aged is how old a file must be before its time stamp proves that it did not
// change: two changes within one tick of a coarse file system look alike.
const aged = 2 * time.Second

// FileError is a fleet file that cannot be used.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("simulated fleet %s: %v", e.Path, e.Err) }

func (e *FileError) Unwrap() error { return e.Err }

// file is the fleet file with what was last read from it.
type file struct {
	path string
	// inMemory is a file that is not there: the document is all there is, and it is never
	// encoded.
	inMemory bool
	// busy is held by the goroutine that changes the file, so that the goroutines
	// of one process queue up instead of polling for the lock.
	busy chan struct{}
	// changing is true while this process holds the lock for a change.
	changing atomic.Bool

	mu     sync.Mutex
	doc    *document
	data   []byte
	piece  []byte // what the file is compared with data in
	info   os.FileInfo
	readAt time.Time
}

func newFile(path string) *file { return &file{path: path, busy: make(chan struct{}, 1)} }

// read returns the document as it is now. Nobody may change it.
func (f *file) read(ctx context.Context) (*document, error) {
	if f.inMemory || f.changing.Load() {
		// Nobody else has it; or the lock is ours, and the file is as it was before
		// the change.
		return f.load()
	}
	lock := flock.New(f.path + ".lock")
	locked, err := lock.TryRLockContext(ctx, lockPoll)
	if ctx.Err() != nil {
		return nil, f.fail(ctx.Err())
	}
	// A file is replaced as a whole, so reading without the lock is safe too: that is
	// how a fleet in a read-only directory is read. The lock is for Windows, where a
	// file that is open for reading cannot be replaced.
	if err == nil && locked {
		defer unlock(lock)
	}
	return f.load()
}

// update gives change a fork of the document and writes what it made of it, unless
// it fails.
func (f *file) update(ctx context.Context, change func(*document) error) error {
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	case <-ctx.Done():
		return f.fail(ctx.Err())
	}
	if !f.inMemory {
		lock := flock.New(f.path + ".lock")
		if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
			return f.fail(fmt.Errorf("the file cannot be locked, so it can only be read: %w", err))
		}
		defer unlock(lock)
	}
	f.changing.Store(true)
	defer f.changing.Store(false)

	now, err := f.load()
	if err != nil {
		return err
	}
	next := now.fork()
	if err := change(next); err != nil {
		return err
	}
	if err := next.checkTouched(); err != nil {
		return f.fail(fmt.Errorf("the change would make the file invalid: %w", err))
	}
	if f.inMemory {
		next.detach()
		f.store(next)
		return nil
	}
	data, err := next.encode()
	if err != nil {
		return f.fail(err)
	}
	if data == nil {
		return nil
	}
	return f.write(next, data)
}

// load reads the file if it may have changed since it was last read.
func (f *file) load() (*document, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inMemory {
		return f.doc, nil
	}

	in, err := os.Open(f.path)
	if err != nil {
		return nil, f.fail(err)
	}
	defer func() { _ = in.Close() }() // nothing was written
	info, err := in.Stat()
	if err != nil {
		return nil, f.fail(err)
	}
	if f.fresh(info) {
		return f.doc, nil
	}
	readAt := time.Now()
	same, err := f.holds(in)
	if err != nil {
		return nil, f.fail(err)
	}
	if !same {
		data, err := io.ReadAll(io.NewSectionReader(in, 0, math.MaxInt64))
		if err != nil {
			return nil, f.fail(err)
		}
		doc, err := parse(data, f.doc)
		if err != nil {
			return nil, f.fail(err)
		}
		f.doc, f.data = doc, data
	}
	f.info, f.readAt = info, readAt
	return f.doc, nil
}

// holds tells whether a file holds what was last read or written, which most do: it is
// compared in pieces, so that a large fleet is not kept twice.
func (f *file) holds(in io.Reader) (bool, error) {
	if f.doc == nil {
		return false, nil
	}
	if f.piece == nil {
		f.piece = make([]byte, 64<<10)
	}
	for rest := f.data; ; {
		n, err := in.Read(f.piece)
		if n > len(rest) || !bytes.Equal(f.piece[:n], rest[:n]) {
			return false, nil
		}
		rest = rest[n:]
		if errors.Is(err, io.EOF) {
			return len(rest) == 0, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// fresh tells whether the file is certainly the one that was last read.
func (f *file) fresh(info os.FileInfo) bool {
	return f.doc != nil && f.info != nil &&
		os.SameFile(f.info, info) &&
		f.info.Size() == info.Size() &&
		f.info.ModTime().Equal(info.ModTime()) &&
		f.readAt.Sub(info.ModTime()) > aged
}

// write replaces the file. What was read before is forgotten first, so that a write
// that failed half-way is never mistaken for one that did not happen.
func (f *file) write(doc *document, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.info = nil
	removeLeftovers(f.path)
	if err := replaceFile(f.path, data, 0o600); err != nil {
		return f.fail(err)
	}
	doc.touched, doc.recorded = nil, nil
	f.doc, f.data = doc, data
	return nil
}

// store replaces the document of a file that is not there.
func (f *file) store(doc *document) {
	f.mu.Lock()
	defer f.mu.Unlock()
	doc.touched, doc.recorded = nil, nil
	f.doc = doc
}

// removeLeftovers removes the temporary files of processes that died while they wrote.
// Nobody else writes now. One that stays is in nobody's way.
func removeLeftovers(path string) {
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, f := range files {
		number, isOurs := strings.CutPrefix(f.Name(), "."+filepath.Base(path))
		if _, err := strconv.ParseUint(number, 10, 64); isOurs && err == nil && f.Type().IsRegular() {
			_ = os.Remove(filepath.Join(filepath.Dir(path), f.Name()))
		}
	}
}

func (f *file) fail(err error) error { return &FileError{Path: f.path, Err: err} }

// unlock gives the lock back. Closing the descriptor releases it even when an
// explicit unlock fails, so there is nothing to report.
func unlock(lock *flock.Flock) { _ = lock.Unlock() }
