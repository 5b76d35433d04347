package statedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"
)

// noFollow is nothing on Windows, where making a link takes a privilege of its own.
const noFollow = 0

// DefaultDir is where an installed agent keeps its state. The folder is asked of the
// system, since the environment may be the caller's.
func DefaultDir() string {
	data, err := windows.KnownFolderPath(windows.FOLDERID_ProgramData, windows.KF_FLAG_DEFAULT)
	if err != nil {
		data = `C:\ProgramData`
	}
	return filepath.Join(data, "gpu-agent")
}

// makePrivate makes a directory for the system, the administrators and the user of
// this process. It inherits nothing: everybody may make files below %ProgramData%.
func makePrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	user, err := currentUser()
	if err != nil {
		return err
	}
	sd, err := windows.SecurityDescriptorFromString(
		"D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;" + user.String() + ")")
	if err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	sa := windows.SecurityAttributes{SecurityDescriptor: sd}
	sa.Length = uint32(unsafe.Sizeof(sa))
	if err := windows.CreateDirectory(name, &sa); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

func currentUser() (*windows.SID, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, fmt.Errorf("the user of this process is unknown: %w", err)
	}
	return user.User.Sid, nil
}

// changing are the rights with which files in a directory, or who may do what in it,
// can be changed.
const changing = windows.FILE_WRITE_DATA | windows.FILE_APPEND_DATA | fileDeleteChild |
	windows.DELETE | windows.WRITE_DAC | windows.WRITE_OWNER | windows.GENERIC_WRITE | windows.GENERIC_ALL

// fileDeleteChild is FILE_DELETE_CHILD of winnt.h.
const fileDeleteChild = 0x40

// checkPrivate refuses a directory that others than the system, the administrators and
// the user of this process own or could change.
func checkPrivate(path string, _ fs.FileInfo) error {
	user, err := currentUser()
	if err != nil {
		return unusable(path, err)
	}
	trusted := func(sid *windows.SID) bool {
		return sid.Equals(user) || sid.IsWellKnown(windows.WinLocalSystemSid) ||
			sid.IsWellKnown(windows.WinBuiltinAdministratorsSid)
	}
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return unusable(path, err)
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return unusable(path, err)
	}
	if !trusted(owner) {
		return untrusted(path, "it belongs to "+name(owner), "find out who made it, then remove it: the agent makes it anew")
	}
	acl, _, err := sd.DACL()
	if err != nil {
		return unusable(path, err)
	}
	if acl == nil {
		return untrusted(path, "everybody can change it: it has no access control list", "remove it: the agent makes it anew")
	}
	for i := range uint32(acl.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(acl, i, &ace); err != nil {
			return unusable(path, err)
		}
		if ace.Header.AceType != windows.ACCESS_ALLOWED_ACE_TYPE || ace.Mask&changing == 0 {
			continue
		}
		sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart))
		// Who makes a file in it owns that file; only those who may write make one.
		if !trusted(sid) && !sid.IsWellKnown(windows.WinCreatorOwnerSid) {
			return untrusted(path, name(sid)+" can change it", fmt.Sprintf(`run: icacls "%s" /inheritance:d /remove *%s`, path, sid))
		}
	}
	return nil
}

func name(sid *windows.SID) string {
	if account, domain, _, err := sid.LookupAccount(""); err == nil {
		return domain + `\` + account
	}
	return sid.String()
}

// lockForReading keeps writers out: a file that is open cannot be replaced.
func (d *Dir) lockForReading(ctx context.Context) (func(), error) {
	lock := d.lock()
	if _, err := lock.TryRLockContext(ctx, lockPoll); err != nil {
		return nil, lockFailed(ctx, d.lockPath(), err)
	}
	return func() { unlock(lock) }, nil
}

// replaceFile writes the file anew, under the lock, and returns when it is on the
// disk. What an agent that died while it wrote left behind is overwritten.
func replaceFile(path string, data []byte) error {
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = move(fresh, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return nil
}

func move(from, to string) error {
	source, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	target, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	err = windows.MoveFileEx(source, target, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// diskFull tells whether an error means that there is no space for a file.
func diskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}
