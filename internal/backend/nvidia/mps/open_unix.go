//go:build unix

package mps

import (
	"os"
	"syscall"
)

// openNoFollow opens a file for reading, and no link or FIFO that stands in its place.
func openNoFollow(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
