package simulated

import (
	"os"

	"golang.org/x/sys/unix"
)

// swap puts a file in the place of another one. The two change places and the old one goes then:
// ext4 would else write the new one to the disk at once, for the sake of a power failure
// (its mount option auto_da_alloc), which takes longer than all the rest.
func swap(tmp, path string) error {
	if unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE) == nil {
		_ = os.Remove(tmp) // else it is a leftover, which the next process removes
		return nil
	}
	return os.Rename(tmp, path) // nothing is there yet, or the file system knows no exchange
}
