package connect

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// ownSession keeps Ctrl-C and the closing of a console window from the child.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW}
}

// programVariables are what a program needs of the environment: where programs and libraries are, the system's
// folders, and whose files it uses. Windows does not tell capitals from small letters in names.
var programVariables = []string{
	"Path", "PATHEXT", "ComSpec", "SystemRoot", "windir", "SystemDrive", "ProgramData", "ALLUSERSPROFILE", "ProgramFiles",
	"TEMP", "TMP", "USERPROFILE", "USERNAME", "USERDOMAIN", "COMPUTERNAME", "APPDATA", "LOCALAPPDATA",
}
