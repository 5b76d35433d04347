//go:build unix

package document

import "syscall"

const dontFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
