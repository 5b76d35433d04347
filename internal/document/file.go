package document

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// ErrNotRegular is a link, a FIFO or whatever else stands in the place of a file.
var ErrNotRegular = errors.New("is no regular file")

// Open opens a file that others can replace. It follows no link, and does not wait for who
// would write to a FIFO.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|dontFollow, 0)
	if err != nil {
		if info, at := os.Lstat(path); at == nil && !info.Mode().IsRegular() {
			err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadFile reads all of such a file.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return io.ReadAll(f)
}
