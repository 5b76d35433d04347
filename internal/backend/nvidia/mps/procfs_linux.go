package mps

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	controlProgram = "nvidia-cuda-mps-control"
	serverProgram  = "nvidia-cuda-mps-server"
	visibleDevices = "CUDA_VISIBLE_DEVICES"
	pipeDirectory  = "CUDA_MPS_PIPE_DIRECTORY"
	multiUserFlag  = "-multiuser-server"
	partitionsFlag = "-S"

	defaultPipeDir  = "/tmp/nvidia-mps"
	defaultPipeDir3 = "/run/nvidia-mps"
)

// process is one of the host's.
type process struct {
	pid     int
	parent  int
	user    int
	started uint64 // in clock ticks after boot: the pid and it name a process for good
	args    []string
	env     map[string]string
	hidden  bool // env could not be read
}

// program is the name of what it runs. The kernel's own name for it is cut.
func (p process) program() string {
	if len(p.args) == 0 {
		return ""
	}
	return filepath.Base(p.args[0])
}

// isControl tells whether it is a control daemon, and not a command given to one.
func (p process) isControl() bool {
	return p.program() == controlProgram && slices.ContainsFunc(p.args[1:], func(a string) bool {
		return slices.Contains([]string{"-d", "-f", "--daemon", "--foreground"}, a)
	})
}

// speaksProtocol3 tells whether a control daemon was started with the protocol that drivers
// have from R615 on beside their old one, which is still their default.
func (p process) speaksProtocol3() bool {
	if p.env["CUDA_MPS_PROTOCOL_VERSION"] == "3" {
		return true
	}
	for i, a := range p.args {
		if (a == "-p" || a == "--protocol") && i+1 < len(p.args) && p.args[i+1] == "3" {
			return true
		}
	}
	return false
}

func (p process) isMultiUser() bool {
	return slices.ContainsFunc(p.args, func(a string) bool { return a == multiUserFlag || a == "-m" || a == "--multiuser" })
}

func (p process) hasPartitions() bool {
	return slices.Contains(p.args, partitionsFlag) || slices.Contains(p.args, "--static-partitioning")
}

func (p process) pipeDir() string {
	switch dir := p.env[pipeDirectory]; {
	case dir != "":
		return filepath.Clean(dir)
	case p.speaksProtocol3():
		return defaultPipeDir3
	}
	return defaultPipeDir
}

func (p process) devices() []string {
	if p.env[visibleDevices] == "" {
		return nil
	}
	return strings.Split(p.env[visibleDevices], ",")
}

func joinDevices(ids []string) string { return strings.Join(ids, ",") }

// mpsProcesses are the control daemons and servers of the host. Processes that end while
// they are read are left out, and so are those in other PID namespaces.
func (h *Host) mpsProcesses() ([]process, error) {
	entries, err := os.ReadDir(h.opt.ProcDir)
	if err != nil {
		return nil, err
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := readProcess(h.opt.ProcDir, pid)
		if err == nil && (p.isControl() || p.program() == serverProgram) {
			out = append(out, p)
		}
	}
	return out, nil
}

var errEnded = errors.New("the process has ended")

func readProcess(proc string, pid int) (process, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	p := process{pid: pid, env: map[string]string{}}
	var err error
	if p.parent, p.started, err = readStat(dir); err != nil {
		return p, err
	}
	cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return p, err
	}
	p.args = zeroSeparated(cmdline)
	if name := p.program(); name != controlProgram && name != serverProgram {
		return p, nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return p, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		p.user = int(owner.Uid)
	}
	// Without root another user's environment is not readable. What is known is kept.
	environ, err := os.ReadFile(filepath.Join(dir, "environ"))
	p.hidden = errors.Is(err, os.ErrPermission)
	if err != nil && !p.hidden {
		return p, err
	}
	if len(environ) == 0 { // as of a process that is ending, whose command line is empty then, too
		if again, err := os.ReadFile(filepath.Join(dir, "cmdline")); err != nil || len(again) == 0 {
			return p, errEnded
		}
	}
	for _, entry := range zeroSeparated(environ) {
		key, value, _ := strings.Cut(entry, "=")
		p.env[key] = value
	}
	return p, nil
}

// readStat reads a process's parent and start. A zombie has ended: nobody has asked yet
// how.
func readStat(dir string) (parent int, started uint64, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, 0, err
	}
	// The second field is the name in parentheses, which may have spaces and parentheses.
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	const state, ppid, start = 0, 1, 19
	if end < 0 || len(fields) <= start {
		return 0, 0, errEnded
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return 0, 0, errEnded
	}
	if parent, err = strconv.Atoi(fields[ppid]); err != nil {
		return 0, 0, err
	}
	started, err = strconv.ParseUint(fields[start], 10, 64)
	return parent, started, err
}

func zeroSeparated(data []byte) []string {
	text := strings.TrimRight(string(data), "\x00")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// processName is what people call a process, "" when it is gone.
func (h *Host) processName(pid int) string {
	data, err := os.ReadFile(filepath.Join(h.opt.ProcDir, strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return gpu.Printable(strings.TrimSpace(string(data)))
}

// runs tells whether a process is still the one that was seen.
func (h *Host) runs(p process) bool {
	_, started, err := readStat(filepath.Join(h.opt.ProcDir, strconv.Itoa(p.pid)))
	return err == nil && started == p.started
}

// gone waits until processes have ended.
func (h *Host) gone(ctx context.Context, timeout time.Duration, ps ...process) (bool, error) {
	for deadline := time.Now().Add(timeout); ; {
		if !slices.ContainsFunc(ps, h.runs) {
			return true, nil
		}
		if time.Now().After(deadline) {
			return false, nil
		}
		if err := pause(ctx); err != nil {
			return false, err
		}
	}
}

const (
	afterTerminate = 2 * time.Second
	afterKill      = 2 * time.Second
)

// end ends processes by signals, at last by one that they cannot refuse.
func (h *Host) end(ctx context.Context, ps ...process) error {
	for _, try := range []struct {
		signal os.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, afterTerminate}, {syscall.SIGKILL, afterKill}} {
		for _, p := range ps {
			if err := h.signal(p, try.signal); err != nil {
				return err
			}
		}
		if done, err := h.gone(ctx, try.wait, ps...); done || err != nil {
			return err
		}
	}
	return errors.New("it does not end, not even by SIGKILL: it waits for the driver or the disk")
}

// signal signals a process that still is the one that was seen: the handle is taken
// first, so that no other process that has got its number is hit.
func (h *Host) signal(p process, s os.Signal) error {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	defer handle.Release() //nolint:errcheck // it frees the handle, and nothing else
	if !h.runs(p) {
		return nil
	}
	if err := handle.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
