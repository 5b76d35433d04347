package statedir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/gpufleet/terraform-provider-gpu/internal/agent/statedir"
)

// setAccess gives a directory an access control list, in the security descriptor
// definition language.
func setAccess(t *testing.T, dir, sddl string) {
	t.Helper()
	sd, err := windows.SecurityDescriptorFromString(sddl)
	if err != nil {
		t.Fatal(err)
	}
	acl, _, err := sd.DACL()
	if err != nil {
		t.Fatal(err)
	}
	err = windows.SetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, acl, nil)
	if err != nil {
		t.Fatal(err)
	}
}

func myself(t *testing.T) string {
	t.Helper()
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		t.Fatal(err)
	}
	return user.User.Sid.String()
}

// TestDirectoryIsPrivate asks the system who may do what in a directory that the agent
// made. Wine keeps what fits into a Unix mode: that others have nothing, not that
// nothing is inherited, nor who the administrators are.
func TestDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "below", "gpu-agent")
	open(t, dir)
	sd, err := windows.GetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		t.Fatal(err)
	}
	text := sd.String()
	if !strings.Contains(text, ";;;"+myself(t)+")") {
		t.Errorf("the agent's own user has no rights: %s", text)
	}
	for name, others := range map[string]string{"everybody": ";;;WD)", "users": ";;;BU)", "authenticated users": ";;;AU)"} {
		if strings.Contains(text, others) {
			t.Errorf("%s have rights: %s", name, text)
		}
	}
}

// TestDirectoryThatOthersCanChange is refused, with the command that puts it right.
func TestDirectoryThatOthersCanChange(t *testing.T) {
	me := myself(t)
	for name, sddl := range map[string]string{
		"everybody has all rights": "D:P(A;OICI;FA;;;" + me + ")(A;OICI;FA;;;WD)",
		"everybody may write":      "D:P(A;OICI;FA;;;" + me + ")(A;OICI;FRFWFX;;;WD)",
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			open(t, dir)
			setAccess(t, dir, sddl)
			t.Cleanup(func() { setAccess(t, dir, "D:P(A;OICI;FA;;;"+me+")") })
			_, err := statedir.Open(dir)
			wantError(t, err, statedir.Unsafe, dir, "can change it", `icacls "`+dir+`" /inheritance:d /remove *S-1-1-0`)
		})
	}
	t.Run("everybody may read", func(t *testing.T) {
		dir := newDir(t)
		open(t, dir)
		setAccess(t, dir, "D:P(A;OICI;FA;;;"+me+")(A;OICI;FRFX;;;WD)")
		open(t, dir)
	})
}

// TestDirectoryAboveThatOthersCanChange is refused where they could move the state's directory away.
func TestDirectoryAboveThatOthersCanChange(t *testing.T) {
	me := myself(t)
	above := t.TempDir()
	dir := filepath.Join(above, "between", "gpu-agent")
	open(t, dir)
	setAccess(t, above, "D:P(A;OICI;FA;;;"+me+")(A;;FA;;;WD)")
	t.Cleanup(func() { setAccess(t, above, "D:P(A;OICI;FA;;;"+me+")") })
	_, err := statedir.Open(dir)
	wantError(t, err, statedir.Unsafe, dir, "others can replace it by way of "+above+": ", "can change it",
		`icacls "`+above+`" /inheritance:d /remove *S-1-1-0`)
}

// TestProgramOfTheSystem asks of a program that would run as SYSTEM who may change it, its folder and what is above.
func TestProgramOfTheSystem(t *testing.T) {
	me := myself(t)
	above := t.TempDir()
	folder := filepath.Join(above, "between", "bin")
	program := filepath.Join(folder, "gpu-agent.exe")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := statedir.CheckProgram(program); err != nil {
		t.Error(err)
	}
	for _, path := range []string{program, folder, above} {
		setAccess(t, path, "D:P(A;OICI;FA;;;"+me+")(A;;FA;;;WD)")
		err := statedir.CheckProgram(program)
		setAccess(t, path, "D:P(A;OICI;FA;;;"+me+")")
		if err == nil || !strings.Contains(err.Error(), program+" would run as SYSTEM") ||
			!strings.Contains(err.Error(), path+": ") && !strings.Contains(err.Error(), path+" this is true: ") {
			t.Errorf("everybody may change %s, and: %v", path, err)
		}
	}
}

func TestDefaultDirIsTheSystems(t *testing.T) {
	t.Setenv("ProgramData", `C:\somebody\elses`)
	dir := statedir.DefaultDir()
	if filepath.Base(dir) != "gpu-agent" || strings.Contains(dir, "somebody") {
		t.Errorf("the default directory is %s", dir)
	}
	if _, err := os.Stat(filepath.Dir(dir)); err != nil {
		t.Errorf("the default directory %s has no parent: %v", dir, err)
	}
}
