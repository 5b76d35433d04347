//go:build !windows

package provider

import (
	"os"
	"time"
)

// waitForParent returns when the parent of this process is gone: it is another's child
// then.
func waitForParent() {
	for parent := os.Getppid(); os.Getppid() == parent; time.Sleep(parentPoll) { //nolint:revive // there is nothing else to do
	}
}
