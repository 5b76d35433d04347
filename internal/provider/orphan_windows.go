package provider

import "os"

// waitForParent returns when the parent of this process is gone. On Windows any process
// can be waited for.
func waitForParent() {
	parent, err := os.FindProcess(os.Getppid())
	if err != nil {
		return // it is gone already
	}
	_, _ = parent.Wait() // it is gone, or never was
}
