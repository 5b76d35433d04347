//go:build !windows

package connect

import "syscall"

// ownSession keeps Ctrl-C and the hangup of a terminal from the child.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
