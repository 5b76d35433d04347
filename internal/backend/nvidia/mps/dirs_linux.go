package mps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/mpsconf"
)

// makeDirs makes a daemon's directories. The daemon would make them itself, open for all.
// Everybody may enter them, but with one user's daemon only that user passes the directory
// above the pipes. A container gets the pipes alone, by a mount.
func (h *Host) makeDirs(spec mpsconf.Spec) error {
	dirs := []string{h.opt.RunDir, h.dir(spec.Name), h.pipeDir(spec.Name), h.opt.LogDir, h.logDir(spec.Name)}
	for _, dir := range dirs {
		if err := ownDir(dir); err != nil {
			return h.explainFull(spec.Name, err, dir)
		}
	}
	if spec.User == nil {
		return openTo(h.dir(spec.Name), dirMode)
	}
	return restrict(spec.Name, h.dir(spec.Name), *spec.User)
}

const dirMode = 0o755

// ownDir makes a directory that nobody else can change.
func ownDir(path string) error {
	err := os.MkdirAll(path, dirMode)
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok {
		return fmt.Errorf("%s is not a directory but %s: remove it", path, info.Mode().Type())
	}
	if me := os.Geteuid(); int(owner.Uid) != me {
		return fmt.Errorf("%s belongs to user id %d, and the agent runs as %d: find out who made it, and remove it", path, owner.Uid, me)
	}
	// It may stand from a daemon with another access list, and umask cuts what Mkdir makes.
	if mode := info.Mode().Perm(); mode&0o022 != 0 || mode&0o500 != 0o500 {
		return os.Chmod(path, dirMode)
	}
	return nil
}

const accessList = "system.posix_acl_access"

// openTo gives a directory a mode and no access list.
func openTo(dir string, mode fs.FileMode) error {
	if err := unix.Removexattr(dir, accessList); err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return &fs.PathError{Op: "remove the access list of", Path: dir, Err: err}
	}
	return os.Chmod(dir, mode)
}

// restrict lets root and one user pass a directory. The daemon refuses no other user: it has
// it wait, and serves it in the place of the first. The user cannot own the directory, or it
// could put one of its own in the place of the pipes.
func restrict(name, dir string, user int) error {
	if user == os.Geteuid() {
		return openTo(dir, 0o700)
	}
	// With an access list the bits of the group are its mask: nobody passes meanwhile.
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	err := unix.Setxattr(dir, accessList, passableBy(uint32(user)), 0)
	if errors.Is(err, unix.ENOTSUP) {
		return refuse(backend.NotSupported, fmt.Sprintf("restrict it to user id %d", user), name,
			"the file system of %s has no access lists: mount it with them, or let several users in", dir)
	}
	if err != nil {
		return &fs.PathError{Op: "set the access list of", Path: dir, Err: err}
	}
	return nil
}

// passableBy is the access list "u::rwx,u:USER:--x,g::---,m::--x,o::---" as the kernel
// takes it: a version, then tag, permissions and id of each entry.
func passableBy(user uint32) []byte {
	const (
		version                             = 2
		userObj, oneUser, groupObj, mask, o = 0x01, 0x02, 0x04, 0x10, 0x20
		none, pass, all                     = 0, 1, 7
		noID                                = 0xFFFFFFFF
	)
	list := binary.LittleEndian.AppendUint32(nil, version)
	for _, e := range []struct {
		tag, permissions uint16
		id               uint32
	}{{userObj, all, noID}, {oneUser, pass, user}, {groupObj, none, noID}, {mask, pass, noID}, {o, none, noID}} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.permissions)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	return list
}

// stale are what a daemon leaves behind. The directory stays: containers have it mounted.
var stale = []string{"control", "control_privileged", "control_lock", "log", controlProgram + ".pid"}

// clean removes what a daemon that has ended left behind.
func (h *Host) clean(name string) error {
	for _, file := range stale {
		if err := os.Remove(filepath.Join(h.pipeDir(name), file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

const maxLog = 8 << 20

// rotate begins the logs anew when they are long: the daemon never does, and every command
// adds five lines.
func (h *Host) rotate(name string) error {
	for _, log := range []string{controlLog, "server.log"} {
		path := filepath.Join(h.logDir(name), log)
		if logSize(path) < maxLog {
			continue
		}
		if err := os.Rename(path, path+".1"); err != nil {
			return err
		}
	}
	return nil
}

// explainFull says of an error for want of room how much there is, and where.
func (h *Host) explainFull(name string, err error, dir string) error {
	if err == nil || !isFull(err) {
		return err
	}
	return refuse(backend.Insufficient, "start it", name, "%v. %s", err, h.room(dir))
}

// room says how much room there is below a directory.
func (h *Host) room(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		if err := unix.Statfs(filepath.Dir(dir), &s); err != nil {
			return ""
		}
	}
	return fmt.Sprintf("The file system of %s has %d KiB and %d files left: free some, and apply again",
		dir, s.Bavail*uint64(s.Bsize)>>10, s.Ffree)
}

// isCrowded tells whether a directory's file system has no room for a daemon's files.
func isCrowded(dir string) bool {
	var s unix.Statfs_t
	const pipes = 6
	return unix.Statfs(dir, &s) == nil && (s.Files > 0 && s.Ffree < pipes || s.Bavail == 0)
}
