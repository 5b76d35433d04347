package vgpu

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// NVML is what only the driver's library tells and does. Addresses are those of
// [Address].
type NVML interface {
	VGPU(ctx context.Context, address string) (Facts, error)
	SetHeterogeneous(ctx context.Context, address string, on bool) error
	// Suspend closes the library until resume is called. The driver does not let go of a
	// GPU that a process has open, and that includes this process.
	Suspend(ctx context.Context) (resume func(context.Context) error, err error)
}

// Facts are what NVML knows of a GPU.
type Facts struct {
	UUID string
	// Types are nvmlDeviceGetSupportedVgpus: unlike what is creatable, they do not depend
	// on what is in use.
	Types         []Type
	Heterogeneous Heterogeneous
	MIG           *gpu.MIG
	Processes     []gpu.Process
}

// Files reads and writes single files of sysfs, which answer like a device rather than
// like a file.
type Files interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile writes a file that is there; it makes none.
	WriteFile(path string, data []byte) error
}

// Runner runs a program and gives back what it wrote, stdout and stderr together.
type Runner func(ctx context.Context, program string, args ...string) ([]byte, error)

// Host is one Linux KVM host.
type Host struct {
	sys, proc string
	files     Files
	run       Runner
	script    string
	nvml      NVML
	// attempts and pause are how often and how fast sriov-manage is tried; patience is how
	// long the kernel may take to show the result.
	attempts        int
	pause, patience time.Duration
}

// Option is a setting of a [Host].
type Option func(*Host)

// WithRoots says where sysfs and procfs are mounted. Procfs must be the host's own: that
// of a container does not show who holds a vGPU.
func WithRoots(sys, proc string) Option { return func(h *Host) { h.sys, h.proc = sys, proc } }

// WithFiles reads and writes sysfs by other means.
func WithFiles(f Files) Option { return func(h *Host) { h.files = f } }

// WithScript says where NVIDIA's sriov-manage is.
func WithScript(path string) Option { return func(h *Host) { h.script = path } }

// WithRunner runs programs by other means.
func WithRunner(r Runner) Option { return func(h *Host) { h.run = r } }

// WithNVML gives access to the driver's library.
func WithNVML(n NVML) Option { return func(h *Host) { h.nvml = n } }

// WithPatience says how long to wait before sriov-manage is tried again, and how long
// for the kernel to show a result.
func WithPatience(pause, patience time.Duration) Option {
	return func(h *Host) { h.pause, h.patience = pause, patience }
}

// New is this machine unless the options say otherwise.
func New(options ...Option) *Host {
	h := &Host{
		sys: "/sys", proc: "/proc",
		files:    osFiles{},
		run:      execute,
		script:   "/usr/lib/nvidia/sriov-manage",
		attempts: 5, pause: time.Second, patience: 30 * time.Second,
	}
	for _, o := range options {
		o(h)
	}
	return h
}

func (h *Host) device(address string, more ...string) string {
	return filepath.Join(append([]string{h.sys, "bus/pci/devices", address}, more...)...)
}

func (h *Host) mdevTypes(function string, more ...string) string {
	return filepath.Join(append([]string{h.sys, "class/mdev_bus", function, "mdev_supported_types"}, more...)...)
}

func (h *Host) mdev(uuid string, more ...string) string {
	return filepath.Join(append([]string{h.sys, "bus/mdev/devices", uuid}, more...)...)
}

type osFiles struct{}

func (osFiles) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

func (osFiles) WriteFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		_ = f.Close() // the write's error is the reason
		return err
	}
	return f.Close()
}

func execute(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}
