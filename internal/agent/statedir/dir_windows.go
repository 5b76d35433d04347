package statedir

import (
	"cmp"
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
const changing = windows.FILE_WRITE_DATA | windows.FILE_APPEND_DATA | windows.GENERIC_WRITE | replacing

// replacing are the rights with which what is in a directory can be moved away. That users may make folders in C:\ and
// in C:\ProgramData, as they may from the start, is none of them.
const replacing = fileDeleteChild | windows.DELETE | windows.WRITE_DAC | windows.WRITE_OWNER | windows.GENERIC_ALL

// fileDeleteChild is FILE_DELETE_CHILD of winnt.h.
const fileDeleteChild = 0x40

// trustedInstaller owns C:\, C:\Windows and C:\Program Files: Windows' own updates run as it.
const trustedInstaller = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"

// checkPrivate refuses a directory that others than the system, the administrators and
// the user of this process own or could change, or could replace by way of a directory above it.
func checkPrivate(path string, _ fs.FileInfo) error {
	switch found, fix, err := others(path, changing); {
	case err != nil:
		return unusable(path, err)
	case fix != "":
		return untrusted(path, found, fix)
	case found != "":
		return untrusted(path, found, "find out who made it, then remove it: the agent makes it anew")
	}
	switch found, fix, err := othersAbove(filepath.Dir(path)); {
	case err != nil:
		return unusable(path, err)
	case found != "":
		return untrusted(path, "others can replace it by way of "+found,
			cmp.Or(fix, "name a directory below one that only administrators may change"))
	}
	return nil
}

// CheckProgram refuses a program for the system to run that others than the system, the administrators and the user of
// this process could change or replace, or could lay a library beside.
func CheckProgram(path string) error {
	refuse := func(found, fix string) error {
		return fmt.Errorf("%s would run as SYSTEM, and %s; put it into a folder that only administrators may write to, such as "+
			"%%ProgramFiles%%\\gpu-agent%s", path, found, fix)
	}
	for _, part := range []string{path, filepath.Dir(path)} {
		switch found, fix, err := others(part, changing); {
		case err != nil:
			return fmt.Errorf("who may change %s is unknown: %w", part, err)
		case found != "":
			if fix != "" {
				fix = ", or " + fix
			}
			return refuse("of "+part+" this is true: "+found, fix)
		}
	}
	switch found, _, err := othersAbove(filepath.Dir(filepath.Dir(path))); {
	case err != nil:
		return fmt.Errorf("who may change a folder above %s is unknown: %w", path, err)
	case found != "":
		return refuse("others can replace it by way of "+found, "")
	}
	return nil
}

// othersAbove asks the same of a directory and all above it: who could move away what is in it?
func othersAbove(dir string) (found, fix string, err error) {
	for {
		info, err := os.Lstat(dir)
		if err != nil {
			return "", "", err
		}
		if info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 { // whoever may change the link is not who may change what it names
			return dir + ": it is a link", "name the directory itself", nil
		}
		if found, fix, err := others(dir, replacing); err != nil || found != "" {
			return dir + ": " + found, fix, err
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", "", nil
		}
		dir = above
	}
}

// others looks for somebody else who owns a file or directory or has some of these rights. fix is the command that
// takes the rights away.
func others(path string, rights windows.ACCESS_MASK) (found, fix string, err error) {
	user, err := currentUser()
	if err != nil {
		return "", "", err
	}
	trusted := func(sid *windows.SID) bool {
		return sid.Equals(user) || sid.IsWellKnown(windows.WinLocalSystemSid) ||
			sid.IsWellKnown(windows.WinBuiltinAdministratorsSid) || sid.String() == trustedInstaller
	}
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return "", "", err
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return "", "", err
	}
	if !trusted(owner) {
		return "it belongs to " + name(owner), "", nil
	}
	acl, _, err := sd.DACL()
	if err != nil {
		return "", "", err
	}
	if acl == nil {
		return "everybody can change it: it has no access control list", "", nil
	}
	for i := range uint32(acl.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(acl, i, &ace); err != nil {
			return "", "", err
		}
		if ace.Header.AceType != windows.ACCESS_ALLOWED_ACE_TYPE || ace.Mask&rights == 0 {
			continue
		}
		// What only holds for what is made in it is seen there.
		if rights == replacing && ace.Header.AceFlags&windows.INHERIT_ONLY_ACE != 0 {
			continue
		}
		sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart))
		// Who makes a file in it owns that file; only those who may write make one.
		if !trusted(sid) && !sid.IsWellKnown(windows.WinCreatorOwnerSid) {
			return name(sid) + " can change it", fmt.Sprintf(`run: icacls "%s" /inheritance:d /remove *%s`, path, sid), nil
		}
	}
	return "", "", nil
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
