//go:build linux && cgo

package nvidia

import (
	"context"
	"errors"
	"io/fs"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// sharedMemory is what clients of MPS and their server have in common. The daemon is a
// process of the host, and so it is the host's.
const sharedMemory = "/dev/shm"

func shareObject(name string) string { return "share " + name }

// WriteShare hands a share to containers, or brings what is handed over up to date.
func (b *Backend) WriteShare(ctx context.Context, s gpu.ShareSpec) error {
	const op = "hand it to containers"
	var found *cdi.Share
	err := b.ask(ctx, op, shareObject(s.Name), func(driver *session) error {
		share, err := driver.share(s)
		if err != nil {
			return err
		}
		if share.MPS, err = b.clientOf(driver, s); err != nil {
			return err
		}
		if err := share.Validate(); err != nil {
			return refuse(backend.InvalidParameter, "%v", err)
		}
		found = share
		return nil
	})
	if err != nil {
		return err
	}
	if len(b.stale()) > 0 {
		_ = b.RefreshDevices(ctx) // the share says what it lacks
	}
	b.handing.Lock()
	defer b.handing.Unlock()
	_, err = b.shares.Write(found)
	return complete(ctx, cdiError(err), op, shareObject(s.Name))
}

// share is a share with its devices as the driver numbers them now.
func (s *session) share(spec gpu.ShareSpec) (*cdi.Share, error) {
	out := &cdi.Share{Name: spec.Name, MemoryRequest: spec.MemoryRequest, MemoryLimit: spec.MemoryLimit}
	for _, device := range spec.Devices {
		at, err := s.locate(device)
		if err != nil {
			return nil, err
		}
		d := cdi.Device{UUID: at.uuid}
		if d.Minor, err = s.minor(at.device); err != nil {
			return nil, err
		}
		if at.instance != nil {
			d.Instance = &cdi.Instance{GPU: at.instance.ID, Compute: at.instance.Compute[0].ID}
		}
		out.Devices = append(out.Devices, d)
	}
	return out, nil
}

// clientOf is how the processes of a share reach their MPS daemon, nil without one.
func (b *Backend) clientOf(s *session, spec gpu.ShareSpec) (*cdi.MPS, error) {
	if spec.Daemon == "" {
		return nil, nil
	}
	host, err := b.daemons(s)
	if err != nil {
		return nil, err
	}
	switch there, err := host.Declared(spec.Daemon); {
	case err != nil:
		return nil, err
	case !there:
		return nil, refuse(backend.NotFound, "the host has no MPS daemon %s", spec.Daemon)
	}
	return &cdi.MPS{
		Pipe: host.PipeDir(spec.Daemon), Shm: sharedMemory,
		ThreadPercentage: spec.ActiveThreadPercentage, MemoryLimit: spec.PinnedMemoryLimit, Priority: spec.ClientPriority,
	}, nil
}

// RemoveShare takes a share back. Processes in it go on. It takes no driver.
func (b *Backend) RemoveShare(ctx context.Context, name string) error {
	const op = "take it back from containers"
	err := ctx.Err()
	if err == nil {
		err = cdi.ValidateName(name)
		if err != nil {
			err = refuse(backend.InvalidParameter, "%v", err)
		}
	}
	if err == nil {
		b.handing.Lock()
		defer b.handing.Unlock()
		err = cdiError(b.shares.Remove(name))
	}
	return complete(ctx, err, op, shareObject(name))
}

// cdiError is an error of the package cdi with a code.
func cdiError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cdi.ErrForeign):
		return refuse(backend.InUse, "%v", err)
	case errors.Is(err, fs.ErrPermission):
		return refuse(backend.AccessDenied, "%v; gpu-agent has to run as root for this", err)
	}
	return refuse(backend.Failed, "%v", err)
}

// readShares are the shares that containers can ask for.
func (b *Backend) readShares() ([]gpu.HandedShare, error) {
	found, err := b.shares.List()
	if err != nil {
		return nil, err
	}
	var out []gpu.HandedShare
	for _, f := range found {
		out = append(out, gpu.HandedShare{Name: f.Name, CDIDevice: f.Device, Environment: f.Environment, Note: f.Note})
	}
	return out, nil
}
