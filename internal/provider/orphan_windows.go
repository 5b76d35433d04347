package provider

import "os"

// waitForParent returns when the parent of this process is gone. On Windows any process
// can be waited for, if it may be opened: a parent that may not is never taken for gone.
func waitForParent() {
	parent, err := os.FindProcess(os.Getppid())
	if err == nil {
		_, err = parent.Wait()
	}
	if err != nil {
		select {}
	}
}
