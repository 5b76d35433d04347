package simulated

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile writes a file in such a way that a reader sees the old one or the new
// one, never a part. The library that other systems use has no Windows version,
// because Windows does not promise that its rename is atomic after a power failure.
// It is atomic for processes that run, which is all that a simulation needs.
func replaceFile(path string, data []byte, mode fs.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err := tmp.Write(data); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := errors.Join(tmp.Chmod(mode), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
