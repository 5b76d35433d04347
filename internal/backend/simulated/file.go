package simulated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

// lockSuffix makes the name of the file that is locked. It remains on Windows, where a file
// cannot be removed while another process opens it.
const (
	lockSuffix  = ".lock"
	lockRemains = runtime.GOOS == "windows"
)

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
	queue  []*waiting // for busy
	doc    *document
	sum    func() (uint64, error) // of the file's bytes, which would keep a large fleet twice
	info   os.FileInfo
	readAt time.Time
	// stamped is true when info has the time stamp that our own last write gave the file.
	stamped bool

	// These are of the goroutine that holds busy: cleaned is true once leftovers were removed, took is what the last
	// replacement took, and shared that it was of several changes.
	cleaned, shared bool
	took            time.Duration
}

func newFile(path string) *file { return &file{path: path, busy: make(chan struct{}, 1)} }

// read returns the document as it is now. Nobody may change it.
func (f *file) read(ctx context.Context) (*document, error) {
	if f.inMemory || f.changing.Load() {
		// Nobody else has it; or the lock is ours, and the file is as it was before
		// the change.
		return f.load()
	}
	if ctx.Err() != nil {
		return nil, f.fail(ctx.Err())
	}
	if !lockRemains {
		return f.load() // a file is replaced as a whole, so reading needs no lock
	}
	// On Windows a file that is open cannot be replaced, and to look at it opens it.
	lock := flock.New(f.path + lockSuffix)
	locked, err := lock.TryRLockContext(ctx, lockPoll)
	if ctx.Err() != nil {
		return nil, f.fail(ctx.Err())
	}
	if err == nil && locked { // else in a directory that cannot be written
		defer release(lock)
	}
	return f.load()
}

// lock takes the lock under which one process at a time changes the file. Its own file goes
// with it, where the platform lets one go that others wait for; who waited sees that it has
// the lock of a file which is not there any more, and takes the next.
func (f *file) lock(ctx context.Context) (unlock func(), err error) {
	for {
		lock := flock.New(f.path + lockSuffix)
		if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
			return nil, err
		}
		if lockRemains {
			return func() { release(lock) }, nil
		}
		held, err := lock.Stat()
		if there, missing := os.Stat(lock.Path()); err == nil && missing == nil && os.SameFile(held, there) {
			return func() {
				_ = os.Remove(lock.Path()) // while it is held, so that it is nobody else's
				release(lock)
			}, nil
		}
		release(lock)
	}
}

// update gives change a fork of the document and writes what it made of it, unless it fails. Changes
// that come in while the file is being replaced go into it together, with the next replacement.
func (f *file) update(ctx context.Context, change func(*document) error) error {
	w := &waiting{change: change, done: make(chan struct{})}
	f.mu.Lock()
	f.queue = append(f.queue, w)
	f.mu.Unlock()
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	case <-w.done:
		return w.err
	case <-ctx.Done():
		if f.leave(w) {
			return f.fail(ctx.Err())
		}
		<-w.done
		return w.err
	}
	select {
	case <-w.done: // by the one before
		return w.err
	default:
	}
	if f.shared { // others are at work, and may join before it is paid for again
		select {
		case <-time.After(2 * f.took):
		case <-ctx.Done():
			f.leave(w)
			return f.fail(ctx.Err())
		}
	}
	if !f.inMemory {
		unlock, err := f.lock(ctx)
		if err != nil {
			if f.leave(w) {
				return f.fail(fmt.Errorf("the file cannot be locked, so it can only be read: %w", err))
			}
			return w.err
		}
		defer unlock()
	}
	f.changing.Store(true)
	defer f.changing.Store(false)
	f.mu.Lock()
	all := f.queue
	f.queue = nil
	f.mu.Unlock()
	f.shared = len(all) > 1
	f.carry(all)
	return w.err
}

// carry makes changes and tells those who wait for them, also where one of them panics.
func (f *file) carry(all []*waiting) {
	err := f.fail(errors.New("the change was cut off"))
	defer func() {
		for _, w := range all {
			w.err = cmp.Or(w.err, err)
			close(w.done)
		}
	}()
	err = f.make(all)
}

// waiting is a change that waits for the file.
type waiting struct {
	change func(*document) error
	err    error
	done   chan struct{} // closed when err is what came of it
}

// leave takes a change from the queue, and reports whether nobody has begun it.
func (f *file) leave(w *waiting) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.queue, w)
	if i >= 0 {
		f.queue = slices.Delete(f.queue, i, i+1)
	}
	return i >= 0
}

// make makes changes one after another, and the file once. One that fails leaves nothing.
func (f *file) make(all []*waiting) error {
	now, err := f.load()
	if err != nil {
		return err
	}
	changed := false
	for _, w := range all {
		next := now.fork()
		if w.err = w.change(next); w.err != nil {
			continue
		}
		if err := next.checkTouched(); err != nil {
			w.err = f.fail(fmt.Errorf("the change would make the file invalid: %w", err))
			continue
		}
		differs := f.inMemory
		if f.inMemory {
			next.detach()
		} else if differs, err = next.encode(); err != nil {
			w.err = f.fail(err)
			continue
		}
		if differs {
			next.touched, next.recorded = nil, nil
			now, changed = next, true
		}
	}
	if !changed {
		return nil
	}
	if f.inMemory {
		f.store(now)
		return nil
	}
	return f.write(now)
}

// unchanged is the document if the file is certainly the one that was last read or written,
// which takes one look at its name: none beside which this process replaces it.
func (f *file) unchanged() *document {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil || !f.fresh(info) {
		return nil
	}
	return f.doc
}

// load reads the file if it may have changed since it was last read.
func (f *file) load() (*document, error) {
	if !f.inMemory {
		if doc := f.unchanged(); doc != nil {
			return doc, nil
		}
	}
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
		sum := maphash.Bytes(seed, data)
		f.doc, f.sum = doc, func() (uint64, error) { return sum, nil }
	}
	f.info, f.readAt, f.stamped = info, readAt, false
	return f.doc, nil
}

// seed is of the sums of this process.
var seed = maphash.MakeSeed()

// holds tells whether a file holds what was last read or written, which most do.
func (f *file) holds(in io.Reader) (bool, error) {
	if f.doc == nil {
		return false, nil
	}
	var h maphash.Hash
	h.SetSeed(seed)
	if _, err := io.Copy(&h, in); err != nil {
		return false, err
	}
	sum, err := f.sum()
	return h.Sum64() == sum, err
}

// fresh tells whether the file is certainly the one that was last read.
func (f *file) fresh(info os.FileInfo) bool {
	return f.doc != nil && f.info != nil &&
		os.SameFile(f.info, info) &&
		f.info.Size() == info.Size() &&
		f.info.ModTime().Equal(info.ModTime()) &&
		(f.stamped || f.readAt.Sub(info.ModTime()) > aged)
}

// write replaces the file. What was read before is forgotten first, so that a write
// that failed half-way is never mistaken for one that did not happen.
func (f *file) write(doc *document) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.info = nil
	if !f.cleaned {
		removeLeftovers(f.path)
		f.cleaned = true
	}
	begun := time.Now()
	info, stamped, err := replaceFile(f.path, 0o600, doc.write)
	if err != nil {
		return f.fail(err)
	}
	f.took = time.Since(begun)
	// Our own file is known by its time stamp: its sum is seldom asked for.
	f.doc, f.info, f.stamped = doc, info, stamped
	f.sum = sync.OnceValues(func() (uint64, error) {
		var h maphash.Hash
		h.SetSeed(seed)
		err := doc.write(&h)
		return h.Sum64(), err
	})
	return nil
}

// store replaces the document of a file that is not there.
func (f *file) store(doc *document) {
	f.mu.Lock()
	defer f.mu.Unlock()
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

// release gives a lock back. Closing the descriptor releases it even when an
// explicit unlock fails, so there is nothing to report.
func release(lock *flock.Flock) { _ = lock.Unlock() }
