//go:build unix

package mps

import (
	"errors"
	"syscall"
)

// isFull tells whether an error means that a file system has no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
