package vgpu

import (
	"cmp"
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
	UUID string `json:"uuid,omitempty"`
	// Types are nvmlDeviceGetSupportedVgpus: unlike what is creatable, they do not depend
	// on what is in use.
	Types         []Type        `json:"types,omitempty"`
	Heterogeneous Heterogeneous `json:"heterogeneous"`
	// MIG is nil when the GPU has no MIG.
	MIG *gpu.MIG `json:"mig,omitempty"`
	// Processes use the GPU on the host itself.
	Processes []gpu.Process `json:"processes,omitempty"`
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
type Host struct{ Options }

// Options say where the parts of a host are. What is left out is this machine's.
type Options struct {
	// Sys and Proc are where sysfs and procfs are mounted. Procfs must be the host's own: that
	// of a container does not show who holds a vGPU.
	Sys, Proc string
	Files     Files
	// Script is NVIDIA's sriov-manage, which Run runs.
	Script string
	Run    Runner
	// NVML is the driver's library; nil for none.
	NVML NVML
	// Pause is how long to wait before sriov-manage is tried again, and Patience how long for the
	// kernel to show a result.
	Pause, Patience time.Duration
}

// New is the host that the options describe.
func New(o Options) *Host {
	o.Sys, o.Proc = cmp.Or(o.Sys, "/sys"), cmp.Or(o.Proc, "/proc")
	o.Files = cmp.Or[Files](o.Files, osFiles{})
	o.Script = cmp.Or(o.Script, "/usr/lib/nvidia/sriov-manage")
	if o.Run == nil {
		o.Run = execute
	}
	o.Pause, o.Patience = cmp.Or(o.Pause, time.Second), cmp.Or(o.Patience, 30*time.Second)
	return &Host{o}
}

func (h *Host) device(address string, more ...string) string {
	return filepath.Join(append([]string{h.Sys, "bus/pci/devices", address}, more...)...)
}

func (h *Host) mdevTypes(function string, more ...string) string {
	return filepath.Join(append([]string{h.Sys, "class/mdev_bus", function, "mdev_supported_types"}, more...)...)
}

func (h *Host) mdev(uuid string, more ...string) string {
	return filepath.Join(append([]string{h.Sys, "bus/mdev/devices", uuid}, more...)...)
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
