package simulated

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// replaceFile writes a file in such a way that a reader sees the old one or the new one,
// never a part, with the permissions of the old one. It is so for processes that run or are
// killed, which is all that a simulation needs: nothing waits for the disk, so that a power
// failure of this machine may take the last changes of the simulated ones.
//
// It returns what the new file looks like, and whether its time stamp is one that no other
// write gives: then the file is this one as long as it looks like that.
func replaceFile(path string, mode fs.FileMode, write func(io.Writer) error) (info fs.FileInfo, stamped bool, err error) {
	if old, err := os.Stat(path); err == nil {
		mode = old.Mode().Perm()
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"*")
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if err := write(tmp); err != nil {
		return nil, false, errors.Join(err, tmp.Close())
	}
	size, err := tmp.Seek(0, io.SeekCurrent)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err != nil {
		return nil, false, err
	}
	// The clock of a file system ticks in milliseconds: two writes look alike. No file
	// system that keeps parts of a second is coarser than 100 ns.
	stamp := time.Now().Add(-rand.N(time.Millisecond)).Truncate(100 * time.Nanosecond) //nolint:gosec // no secret
	if err := os.Chtimes(tmp.Name(), stamp, stamp); err != nil {
		return nil, false, err
	}
	if err := swap(tmp.Name(), path); err != nil {
		return nil, false, err
	}
	if info, err = os.Stat(path); err != nil {
		return nil, false, nil // somebody took it away at once: what is there is read
	}
	return info, info.ModTime().Equal(stamp) && info.Size() == size, nil
}
