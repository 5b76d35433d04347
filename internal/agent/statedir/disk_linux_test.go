package statedir_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// mountSmallDisk mounts a disk of smallDisk bytes, in memory.
func mountSmallDisk(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", smallDisk)); err != nil {
		t.Skipf("a small disk cannot be mounted (%v); run the tests as root to include this one", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
