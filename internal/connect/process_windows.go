package connect

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// ownSession keeps Ctrl-C and the closing of a console window from the child.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW}
}
