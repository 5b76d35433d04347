//go:build !windows

package connect

import "syscall"

// ownSession keeps Ctrl-C and the hangup of a terminal from the child.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// programVariables are what a program needs of the environment: where programs and libraries are (NVIDIA's may be
// where only LD_LIBRARY_PATH says), whose files it uses, and in which words it speaks.
var programVariables = []string{"PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL"}
