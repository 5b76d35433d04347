package fakemps

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// EndBelow ends every process, at the end of the test, whose pipe directory is below a
// directory: the real daemon as well as the one of this package.
func EndBelow(t testing.TB, dir string) {
	t.Helper()
	t.Cleanup(func() {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			left := below(dir)
			if len(left) == 0 {
				return
			}
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended already
			}
		}
		t.Errorf("processes %v of the test do not end", below(dir))
	})
}

func below(dir string) []int {
	var out []int
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue // of the kernel
		}
		data, err := os.ReadFile(filepath.Join("/proc", p.Name(), "environ"))
		if err != nil {
			continue // it has ended
		}
		for entry := range bytes.SplitSeq(data, []byte{0}) {
			value, ok := strings.CutPrefix(string(entry), pipeVariable+"=")
			if ok && strings.HasPrefix(value, dir+"/") {
				out = append(out, pid)
			}
		}
	}
	return out
}
