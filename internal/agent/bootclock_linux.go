package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is how long the machine has been up. It runs on while it is suspended, and
// nobody can set it.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // a lease is then renewed before each effect
	}
	return time.Duration(t.Nano())
}
