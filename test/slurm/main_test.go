//go:build linux

// Package slurm_test has Slurm's own daemons read what slurm_gres writes, word for word, and looks at
// the jobs that come of it: their environment, and which devices are open to them.
package slurm_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const (
	required = "GPU_TEST_SLURM"
	// inside is what GPU_TEST_SLURM is in a process that has namespaces of its own.
	inside = "inside"
)

// TestMain runs the tests again in namespaces of their own: /dev has the GPUs that a test gives it, and
// no daemon or job outlives the tests.
func TestMain(m *testing.M) {
	switch os.Getenv(required) {
	case "": // each test is skipped
	case inside:
		if err := settle(); err != nil {
			fmt.Fprintln(os.Stderr, "namespaces of their own:", err)
			os.Exit(1)
		}
	default:
		os.Exit(apart())
	}
	os.Exit(m.Run())
}

// apart runs this program in a mount and a process namespace.
func apart() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "it needs root, for device nodes and daemons")
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // bounded by its own -test.timeout
	cmd.Env = append(os.Environ(), required+"="+inside)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	removeControlGroups()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// removeControlGroups removes what Slurm leaves in the device controller once nobody is inside. One
// that has a process stays.
func removeControlGroups() {
	found, _ := filepath.Glob(deviceController + "/slurm_*")
	for _, top := range found {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := range dirs {
			_ = os.Remove(dirs[len(dirs)-1-i])
		}
	}
}

// settle makes the namespaces what they are for: /proc shows the tests' processes, and /dev has what
// programs need and no GPU.
func settle() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", "/dev", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for name, minor := range map[string]int{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := node("/dev/"+name, 1, minor); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err := os.Symlink("/proc/self/fd"+to, "/dev/"+name); err != nil {
			return err
		}
	}
	return nil
}

// node makes a character device that all may open.
func node(path string, major, minor int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, major<<8|minor); err != nil {
		return fmt.Errorf("mknod %s: %w", path, err)
	}
	return os.Chmod(path, 0o666)
}
