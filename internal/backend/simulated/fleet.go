package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Fleet is the hosts of one file. Open a file once and take all its hosts from the
// one Fleet: they share what was read.
type Fleet struct {
	file *file
}

// Open reads a fleet file. The error is a *FileError that says what is wrong and,
// for JSON, in which line.
func Open(path string) (*Fleet, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, &FileError{Path: path, Err: err}
	}
	// The file behind a link is the one to replace and the one to lock.
	if target, err := filepath.EvalSymlinks(absolute); err == nil {
		absolute = target
	}
	f := &Fleet{file: newFile(absolute)}
	if _, err := f.file.read(context.Background()); err != nil {
		return nil, err
	}
	return f, nil
}

// Create writes a new fleet file, in place of one that may be there, and opens it.
func Create(path string, s gpu.Snapshot) (*Fleet, error) {
	data, err := marshal(s)
	if err != nil {
		return nil, &FileError{Path: path, Err: err}
	}
	write := func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	}
	if _, _, err := replaceFile(path, 0o600, write); err != nil {
		return nil, &FileError{Path: path, Err: err}
	}
	return Open(path)
}

// InMemory makes a fleet that only this process has, without a file. It is for tests
// whose subject is not the file.
func InMemory(s gpu.Snapshot) (*Fleet, error) {
	const name = "in memory"
	data, err := marshal(s)
	if err != nil {
		return nil, &FileError{Path: name, Err: err}
	}
	doc, err := parse(data, nil)
	if err != nil {
		return nil, &FileError{Path: name, Err: err}
	}
	f := newFile(name)
	f.inMemory, f.doc = true, doc
	return &Fleet{file: f}, nil
}

// Copy is another fleet in memory that is as this one is now. It costs nothing.
func (f *Fleet) Copy(ctx context.Context) (*Fleet, error) {
	doc, err := f.file.read(ctx)
	if err != nil {
		return nil, err
	}
	c := newFile("in memory")
	c.inMemory, c.doc = true, doc
	return &Fleet{file: c}, nil
}

func marshal(s gpu.Snapshot) ([]byte, error) {
	if s.Format == "" {
		s.Format = gpu.SnapshotFormat
	}
	data, err := json.MarshalIndent(s, "", "  ")
	return append(data, '\n'), err
}

// Path is the fleet file.
func (f *Fleet) Path() string { return f.file.path }

// Hosts lists the names of the hosts in the order of the file. It is nil when the
// file cannot be read any more.
func (f *Fleet) Hosts() []string {
	doc, err := f.file.read(context.Background())
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(doc.hosts))
	for _, e := range doc.hosts {
		names = append(names, e.rec.Name)
	}
	return names
}

// Host returns one host, found without case.
func (f *Fleet) Host(name string) (*Host, error) {
	doc, err := f.file.read(context.Background())
	if err != nil {
		return nil, err
	}
	rec, ok := doc.host(name)
	if !ok {
		return nil, f.file.fail(fmt.Errorf("there is no host %q in it. %s", name, words.Instead(name, f.Hosts(), "")))
	}
	return &Host{fleet: f, name: rec.Name}, nil
}

// Snapshot returns all hosts as they stand, with their claims.
func (f *Fleet) Snapshot(ctx context.Context) (gpu.Snapshot, error) {
	doc, err := f.file.read(ctx)
	if err != nil {
		return gpu.Snapshot{}, err
	}
	return doc.shown(time.Now()), nil
}
