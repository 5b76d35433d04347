//go:build linux && cgo

package nvidia

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/timeslice"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/vgpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
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
	// VGPU is where the parts of vGPUs are, such as NVIDIA's sriov-manage. Its NVML is the backend's.
	VGPU vgpu.Options
	// Libvirt is where libvirt is, which is asked on a host with vGPUs.
	Libvirt libvirt.Options
	// Patience is how long a GPU may take to tell all that is asked of it, 20 seconds when it
	// is 0. The host as a whole may take six times as long.
	Patience time.Duration
	// MPS is where MPS daemons are kept, and the program that runs them. Its Root, Systemctl
	// and Driver are the backend's.
	MPS mps.Options
	// Controllers are the programs that people declared to manage or use GPUs here.
	Controllers map[string]gpu.ControllerRole
}

func (o Options) withDefaults() Options {
	o.Library = cmp.Or(o.Library, "libnvidia-ml.so.1")
	o.SMI = cmp.Or(o.SMI, "nvidia-smi")
	o.CTK = cmp.Or(o.CTK, "nvidia-ctk")
	o.Modprobe = cmp.Or(o.Modprobe, "nvidia-modprobe")
	o.Systemctl = cmp.Or(o.Systemctl, "systemctl")
	o.Patience = cmp.Or(o.Patience, defaultPatience)
	o.Libvirt = o.Libvirt.In(o.Root)
	return o
}

// Backend is a Linux host with NVIDIA GPUs.
type Backend struct {
	opt       Options
	vgpus     *vgpu.Host
	shares    *cdi.Directory
	intervals timeslice.SMI

	busy    chan struct{} // held by who uses the session; NVML itself may be called at once
	holder  atomic.Value  // what the call that uses it does, a string
	silent  sync.Map      // by UUID, why a GPU does not answer, while a call for it has not ended
	session *session      // nil until the first call
	toolkit toolkit

	handing sync.Mutex // who writes shares, which takes no driver
	derived sync.Mutex // who refreshes derived files
}

var (
	_ backend.MIG       = (*Backend)(nil)
	_ backend.Refresher = (*Backend)(nil)
	_ backend.VGPU      = (*Backend)(nil)
	_ backend.Sharing   = (*Backend)(nil)
	_ backend.Meter     = (*Backend)(nil)
)

// New is a backend that loads the driver's library when it is first asked.
func New(o Options) *Backend {
	o = o.withDefaults()
	b := &Backend{busy: make(chan struct{}, 1), opt: o, shares: &cdi.Directory{Root: o.Root}, intervals: timeslice.SMI{Program: o.SMI}}
	o.VGPU.Sys = cmp.Or(o.VGPU.Sys, filepath.Join("/", o.Root, "sys"))
	o.VGPU.Proc = cmp.Or(o.VGPU.Proc, filepath.Join("/", o.Root, "proc"))
	o.VGPU.NVML = library{b}
	b.vgpus = vgpu.New(o.VGPU)
	return b
}

// Close lets go of the driver.
func (b *Backend) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), b.opt.Patience)
	defer cancel()
	if err := b.take(ctx, "close"); err != nil {
		return err // a call that hangs goes with the process
	}
	defer b.leave()
	return b.hangUp()
}

// Inventory reads the host.
func (b *Backend) Inventory(ctx context.Context) (gpu.Host, error) {
	return b.inventory(ctx, func(string) *gpu.GPU { return nil })
}

// Refresh implements backend.Refresher. A host with other GPUs than before, and one of which
// something could not be read, is read as a whole.
func (b *Backend) Refresh(ctx context.Context, before gpu.Host, of backend.Objects) (gpu.Host, bool, error) {
	if len(of.VMs) > 0 || len(before.Unknown) > 0 {
		return gpu.Host{}, false, nil
	}
	host, err := b.inventory(ctx, func(id string) *gpu.GPU {
		was, there := before.GPU(id)
		if !there || (backend.Objects{GPUs: []string{id}}).Within(of) {
			return nil
		}
		return was
	})
	gone := slices.ContainsFunc(before.GPUs, func(g gpu.GPU) bool {
		_, there := host.GPU(g.ID)
		return !there
	})
	return host, err == nil && !gone && len(host.GPUs) == len(before.GPUs) && len(host.Unknown) == 0, err
}

// inventory reads the host, but for the GPUs that keep says are as they were.
func (b *Backend) inventory(ctx context.Context, keep func(id string) *gpu.GPU) (gpu.Host, error) {
	var host gpu.Host
	ctx, cancel := context.WithTimeout(ctx, hostPatience*b.opt.Patience)
	defer cancel()
	err := b.ask(ctx, "read the inventory", "the host", func(s *session) error {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		host = gpu.Host{Name: name, Platform: gpu.Linux, OS: b.os(), Boot: b.boot(), GPUs: []gpu.GPU{}, VMs: []gpu.VM{}, Pools: []gpu.Pool{}}
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
			if was := keep(d.ID); was != nil {
				host.GPUs = append(host.GPUs, *was)
				continue
			}
			d, err := b.inspectInTime(ctx, s, d, driver)
			if err != nil {
				return err
			}
			if s.abandoned.Load() { // who hangs in it may still come back
				b.session = nil
				if s, err = b.open(); err != nil {
					return err
				}
			}
			host.GPUs = append(host.GPUs, d.GPU)
			host.Unknown = append(host.Unknown, d.unknown...)
			s.worn = s.worn || d.lost
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.nameVGPUs(ctx, &host)
		host.Stale = b.stale()
		host.Units, host.Controllers = b.controllers(ctx)
		b.fillSharing(ctx, s, &host)
		return nil
	})
	if err != nil {
		return gpu.Host{}, err // a call that was given up may still write to it
	}
	return host, nil
}

// lacks notes a part of the host that could not be read.
func lacks(host *gpu.Host, part gpu.Part, err error) {
	if err != nil {
		host.Unknown = append(host.Unknown, gpu.Unknown{Part: part, Why: err.Error()})
	}
}

const (
	defaultPatience = 20 * time.Second
	hostPatience    = 6
)

// take waits until nobody else uses the driver.
func (b *Backend) take(ctx context.Context, what string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case b.busy <- struct{}{}:
		b.holder.Store(what)
		return nil
	case <-ctx.Done():
		who, _ := b.holder.Load().(string)
		return refuse(backend.Timeout, "the driver is in use by another call, which has not ended (%s): a GPU may hang, see dmesg", who)
	}
}

func (b *Backend) leave() { <-b.busy }

// ask runs a call against the driver, which is loaded if it is not. A call that hangs in the
// driver cannot be stopped: who waits for it is answered when ctx ends, and it stays in use.
func (b *Backend) ask(ctx context.Context, op, object string, call func(*session) error) error {
	if err := b.take(ctx, op+", "+object); err != nil {
		return complete(ctx, err, op, object)
	}
	done := make(chan error, 1)
	go func() {
		defer b.leave()
		s, err := b.open()
		if err == nil {
			err = call(s)
		}
		if isStale(err) || b.session != nil && b.session.worn {
			_ = b.hangUp() // the next call loads the driver that is there then, with the GPUs that are
		}
		done <- err
	}()
	select {
	case err := <-done:
		return complete(ctx, err, op, object)
	case <-ctx.Done():
	}
	select { // what takes its own notice of ctx says more
	case err := <-done:
		return complete(ctx, err, op, object)
	case <-time.After(answerTime):
		return complete(ctx, refuse(backend.Timeout, "the driver has not answered when time ran out: a GPU may hang, see dmesg"), op, object)
	}
}

// answerTime is for a call to say that its time is over.
const answerTime = time.Second

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
