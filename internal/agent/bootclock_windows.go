package agent

import (
	"time"

	"golang.org/x/sys/windows"
)

// sinceBoot is how long the machine has been up, what it slept included.
func sinceBoot() time.Duration { return windows.DurationSinceBoot() }
