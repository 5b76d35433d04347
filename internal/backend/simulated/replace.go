package simulated

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceFile writes a file in such a way that a reader sees the old one or the new one,
// never a part, with the permissions of the old one. It is so for processes that run or are
// killed, which is all that a simulation needs: nothing waits for the disk, so that a power
// failure of this machine may take the last changes of the simulated ones.
func replaceFile(path string, data []byte, mode fs.FileMode) (err error) {
	if old, err := os.Stat(path); err == nil {
		mode = old.Mode().Perm()
	}
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
