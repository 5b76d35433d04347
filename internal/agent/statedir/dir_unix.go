//go:build !windows

package statedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// noFollow makes opening a link fail.
const noFollow = unix.O_NOFOLLOW

// DefaultDir is where an installed agent keeps its state.
func DefaultDir() string { return "/var/lib/gpu-agent" }

// makePrivate makes a directory that is its owner's alone.
func makePrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.Mkdir(path, 0o700)
}

// checkPrivate refuses a directory that another user could change. Root's is as good
// as one's own: who cannot trust root has no host.
func checkPrivate(path string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return untrusted(path, fmt.Sprintf("others can write to it (mode %04o)", mode), "run: chmod go-w "+path)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if me := os.Geteuid(); ok && int(owner.Uid) != me && owner.Uid != 0 {
		return untrusted(path, fmt.Sprintf("it belongs to user id %d, and the agent runs as %d", owner.Uid, me),
			fmt.Sprintf("find out who made it, then run: chown %d %s", me, path))
	}
	return checkParents(path, filepath.Dir(path))
}

// checkParents refuses a directory that another user could move away, and put another in its place: one of those above
// it is theirs, or they can write to it. sshd holds the directories above authorized_keys to the same. Unlike sshd
// it accepts a directory with the sticky bit, such as /tmp: there only root, the directory's owner and an entry's own
// owner can rename that entry, and all three are checked. It begins at the root, so that it follows no link that
// another user could change.
func checkParents(path, dir string) error {
	if above := filepath.Dir(dir); above != dir {
		if err := checkParents(path, above); err != nil {
			return err
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return unusable(path, err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if me := os.Geteuid(); ok && int(owner.Uid) != me && owner.Uid != 0 {
		return untrusted(path, fmt.Sprintf("user id %d can replace it: %s is theirs", owner.Uid, dir),
			fmt.Sprintf("name a directory below your own or root's, or run: chown %d %s", me, dir))
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(dir)
		if err == nil && !filepath.IsAbs(target) {
			var above string
			above, err = filepath.EvalSymlinks(filepath.Dir(dir))
			target = filepath.Join(above, target)
		}
		if err != nil {
			return unusable(path, err)
		}
		return checkParents(path, target)
	}
	if mode := info.Mode(); mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0 {
		return untrusted(path, fmt.Sprintf("others can replace it: they can write to %s (mode %04o)", dir, mode.Perm()), "run: chmod go-w "+dir)
	}
	return nil
}

// lockForReading takes no lock: a file is replaced as a whole, so it can be read at any
// time, even by a user who may not write.
func (d *Dir) lockForReading(context.Context) (unlock func(), err error) {
	return func() {}, nil
}

// replaceFile writes the file anew, under the lock. It is on the disk when
// replaceFile returns, and so is its name.
func replaceFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := removeLeftovers(dir, filepath.Base(path)); err != nil {
		return err
	}
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600)); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		// Whatever kept the name from the disk, it is not that the old state stands.
		return fmt.Errorf("the state is written, but may not survive a power failure: %v", err) //nolint:errorlint // see above
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeLeftovers removes what agents that died while they wrote left behind. Nobody
// else writes now.
func removeLeftovers(dir, name string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "."+name) {
			if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// diskFull tells whether an error means that there is no space for a file, on the
// disk or in what its user may take of it.
func diskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}
