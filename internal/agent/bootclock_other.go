//go:build !linux && !windows

package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is how long the machine has been up, what it slept included: when its clock is set,
// the system says that it started so much earlier or later.
func sinceBoot() time.Duration {
	started, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return 0 // a lease is then renewed before each effect
	}
	return time.Since(time.Unix(started.Unix()))
}
