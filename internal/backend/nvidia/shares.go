//go:build linux && cgo

package nvidia

import (
	"context"
	"errors"
	"io/fs"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/mps"
	"github.com/gpufleet/terraform-provider-gpu/internal/cdi"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// sharedMemory is what clients of MPS and their server have in common. The daemon is a
// process of the host, and so it is the host's.
const sharedMemory = "/dev/shm"

func shareObject(name string) string { return "share " + name }

// WriteShare hands a share to containers, or brings what is handed over up to date.
func (b *Backend) WriteShare(ctx context.Context, s gpu.ShareSpec) error {
	const op = "hand it to containers"
	if len(b.stale()) > 0 {
		_ = b.RefreshDevices(ctx) // the share says what it lacks
	}
	// Nobody else has the driver until a partition that is made for the share is in its file.
	return b.ask(ctx, op, shareObject(s.Name), func(driver *session) error {
		found, err := b.shareOf(ctx, driver, s, true)
		if err == nil {
			err = ctx.Err() // nobody waits any more: it writes nothing
		}
		if err != nil {
			return err
		}
		b.handing.Lock()
		defer b.handing.Unlock()
		return cdiError(b.shares.Write(found))
	})
}

// OutdatedShares compares what is handed over with what would be written now.
func (b *Backend) OutdatedShares(ctx context.Context, shares []gpu.ShareSpec) (map[string]string, error) {
	var found []*cdi.Share
	err := b.ask(ctx, "compare what containers get", "", func(driver *session) error {
		for _, s := range shares {
			if share, err := b.shareOf(ctx, driver, s, false); err == nil { // else its devices or its daemon are the news
				found = append(found, share)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, s := range found {
		if how, err := b.shares.Outdated(s); err == nil && how != "" {
			out[s.Name] = how
		}
	}
	return out, ctx.Err()
}

// shareOf is a share as it is written, with the daemon that serves it. With write, a partition is
// made for it where the daemon has such.
func (b *Backend) shareOf(ctx context.Context, driver *session, s gpu.ShareSpec, write bool) (*cdi.Share, error) {
	share, err := driver.share(s)
	if err != nil {
		return nil, err
	}
	if share.MPS, err = b.clientOf(ctx, driver, s, write); err != nil {
		return nil, err
	}
	if err := share.Validate(); err != nil {
		return nil, refuse(backend.InvalidParameter, "%v", err)
	}
	return share, nil
}

// share is a share with its devices as the driver numbers them now.
func (s *session) share(spec gpu.ShareSpec) (*cdi.Share, error) {
	out := &cdi.Share{Name: spec.Name}
	if s.offers("nvmlDeviceSetMemoryLimits_v1") {
		out.MemoryRequest, out.MemoryLimit = spec.MemoryRequest, spec.MemoryLimit
	}
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
func (b *Backend) clientOf(ctx context.Context, s *session, spec gpu.ShareSpec, write bool) (*cdi.MPS, error) {
	if spec.Daemon == "" {
		return nil, nil
	}
	host := b.daemons(s)
	switch there, err := host.Declared(spec.Daemon); {
	case err != nil:
		return nil, err
	case !there:
		return nil, refuse(backend.NotFound, "the host has no MPS daemon %s", spec.Daemon)
	}
	have, kept, err := b.partitions(spec.Name)
	if err != nil {
		return nil, err
	}
	partition, err := host.Partition(ctx, spec.Daemon, spec.ActiveThreadPercentage, have, kept, write)
	if err != nil {
		return nil, err
	}
	return &cdi.MPS{
		Pipe: host.PipeDir(spec.Daemon), Shm: sharedMemory, Partition: partition,
		ThreadPercentage: spec.ActiveThreadPercentage, MemoryLimit: spec.PinnedMemoryLimit, Priority: spec.ClientPriority,
	}, nil
}

// partitions are the static partition that a share was given, and those of the others.
func (b *Backend) partitions(share string) (have string, kept []string, err error) {
	all, _, err := b.shares.List()
	for _, s := range all {
		switch id := s.Environment[cdi.PartitionVariable]; {
		case id == "":
		case s.Name == share:
			have = id
		default:
			kept = append(kept, id)
		}
	}
	return have, kept, err
}

// RemoveShare takes a share back, so that no process comes, and then ends its clients. It takes
// no driver.
func (b *Backend) RemoveShare(ctx context.Context, name string, endClients bool) error {
	err := b.takeShareBack(ctx, name)
	if err == nil && endClients {
		in := func(c mps.Client) bool { return gpu.SameID(b.identify(c.PID).Share, name) }
		err = b.daemons(nil).EndClients(ctx, in)
	}
	return complete(ctx, err, "take it back from containers", shareObject(name))
}

func (b *Backend) takeShareBack(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := cdi.ValidateName(name); err != nil {
		return refuse(backend.InvalidParameter, "%v", err)
	}
	b.handing.Lock()
	defer b.handing.Unlock()
	return cdiError(b.shares.Remove(name))
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
