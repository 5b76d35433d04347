//go:build !windows

package connect

import "syscall"

// errReset is the other end's refusal to go on with a connection.
const errReset = syscall.ECONNRESET
