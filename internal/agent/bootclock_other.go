//go:build !linux && !windows

package agent

import "time"

// sinceBoot is how long this process has run; it does not count what the machine slept.
func sinceBoot() time.Duration { return time.Since(started) }

var started = time.Now()
