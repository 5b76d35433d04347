//go:build linux && cgo

package nvidia

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/timeslice"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// Options say where the driver's parts are. What is left out is looked for where a
// driver puts it.
type Options struct {
	// Library is the path or name of NVML.
	Library string
	// Root is put before the paths of /proc, /dev, /etc, /run and /var.
	Root string
	// SMI, CTK, Modprobe and Systemctl are nvidia-smi, nvidia-ctk, nvidia-modprobe and
	// systemctl, by path or name.
	SMI, CTK, Modprobe, Systemctl string
	// VGPU are settings of the package vgpu, such as where NVIDIA's sriov-manage is.
	VGPU []vgpu.Option
	// MPS is where MPS daemons are kept, and the program that runs them. Its Root, Systemctl
	// and Driver are the backend's.
	MPS mps.Options
}

const defaultLibrary = "libnvidia-ml.so.1"

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		at   *string
		name string
	}{
		{&o.Library, defaultLibrary},
		{&o.SMI, "nvidia-smi"},
		{&o.CTK, "nvidia-ctk"},
		{&o.Modprobe, "nvidia-modprobe"},
		{&o.Systemctl, "systemctl"},
	} {
		if *d.at == "" {
			*d.at = d.name
		}
	}
	return o
}

// Backend is a Linux host with NVIDIA GPUs.
type Backend struct {
	opt       Options
	vgpus     *vgpu.Host
	shares    *cdi.Directory
	intervals timeslice.SMI

	mu      sync.Mutex // writers one after the other; NVML itself may be called at once
	session *session   // nil until the first call
	toolkit toolkit

	derived sync.Mutex // who refreshes derived files
}

var (
	_ backend.MIG     = (*Backend)(nil)
	_ backend.VGPU    = (*Backend)(nil)
	_ backend.Sharing = (*Backend)(nil)
	_ backend.Meter   = (*Backend)(nil)
)

// New is a backend that loads the driver's library when it is first asked.
func New(o Options) *Backend {
	o = o.withDefaults()
	b := &Backend{opt: o, shares: &cdi.Directory{Root: o.Root}, intervals: timeslice.SMI{Program: o.SMI}}
	roots := vgpu.WithRoots(filepath.Join("/", o.Root, "sys"), filepath.Join("/", o.Root, "proc"))
	b.vgpus = vgpu.New(slices.Concat([]vgpu.Option{roots}, o.VGPU, []vgpu.Option{vgpu.WithNVML(library{b})})...)
	return b
}

// Close lets go of the driver.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hangUp()
}

// Inventory reads the host.
func (b *Backend) Inventory(ctx context.Context) (gpu.Host, error) {
	var host gpu.Host
	err := b.ask(ctx, "read the inventory", "the host", func(s *session) error {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		host = gpu.Host{Name: name, Platform: gpu.Linux, OS: b.os(), GPUs: []gpu.GPU{}, VMs: []gpu.VM{}, Pools: []gpu.Pool{}}
		driver, err := s.version()
		if isStale(err) {
			return err
		}
		lacks(&host, gpu.PartHost, err)
		devices, err := s.devices()
		if err != nil {
			return err
		}
		for _, d := range devices {
			if err := b.inspect(ctx, s, d, driver); err != nil {
				return err
			}
			host.GPUs = append(host.GPUs, d.GPU)
			host.Unknown = append(host.Unknown, d.unknown...)
			s.worn = s.worn || d.lost
		}
		host.Stale = b.stale()
		host.Units, host.Controllers = b.controllers(ctx)
		b.fillSharing(ctx, s, &host)
		return nil
	})
	return host, err
}

// lacks notes a part of the host that could not be read.
func lacks(host *gpu.Host, part gpu.Part, err error) {
	if err != nil {
		host.Unknown = append(host.Unknown, gpu.Unknown{Part: part, Why: err.Error()})
	}
}

// ask runs a call against the driver, which is loaded if it is not.
func (b *Backend) ask(ctx context.Context, op, object string, call func(*session) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return complete(ctx, ctx.Err(), op, object)
	}
	s, err := b.open()
	if err == nil {
		err = call(s)
	}
	if isStale(err) || b.session != nil && b.session.worn {
		_ = b.hangUp() // the next call loads the driver that is there then, with the GPUs that are
	}
	return complete(ctx, err, op, object)
}

// change is ask for one GPU, by its UUID.
func (b *Backend) change(ctx context.Context, op, gpuID string, call func(*session, *device) error) error {
	return b.ask(ctx, op, "GPU "+gpuID, func(s *session) error {
		d, err := s.byUUID(gpuID)
		if err != nil {
			return err
		}
		return call(s, d)
	})
}
