//go:build linux && cgo

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// SetMIGMode turns MIG mode on or off. A mode that could only be made pending is taken
// back: it would change at the next reset, whoever does that.
func (b *Backend) SetMIGMode(ctx context.Context, gpuID string, on, reset bool) error {
	op := "turn MIG mode off"
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		op, mode = "turn MIG mode on", nvml.DEVICE_MIG_ENABLE
	}
	return b.change(ctx, op, gpuID, func(s *session, d *device) error {
		current, pending, ret := d.handle.GetMigMode()
		switch {
		case ret == nvml.ERROR_NOT_SUPPORTED:
			return refuse(backend.NotSupported, "the GPU has no Multi-Instance GPU")
		case ret != nvml.SUCCESS:
			return failed("nvmlDeviceGetMigMode", ret)
		case current == mode && pending == mode:
			return nil
		}
		if current != mode { // else a pending mode is taken back, which disturbs nobody
			if err := b.mayChangeMode(s, d, on); err != nil {
				return err
			}
		}
		needsReset, err := s.needsReset(d)
		if err != nil {
			return err
		}
		if current != mode && needsReset {
			if !reset {
				return refuse(backend.InvalidState, "on this GPU the mode changes with a reset of the GPU, which this change does not allow")
			}
			if err := s.resetsAlone(d); err != nil {
				return err
			}
		}
		b.behind(instancesChange)
		activation, ret := d.handle.SetMigMode(mode)
		if ret != nvml.SUCCESS {
			return failed("nvmlDeviceSetMigMode", ret)
		}
		// The handle may be of a GPU that has been detached and attached again.
		s.attachedAnew(d.ID)
		if d, err = s.byUUID(gpuID); err != nil {
			return err
		}
		if current, _, ret = d.handle.GetMigMode(); ret != nvml.SUCCESS {
			return failed("nvmlDeviceGetMigMode", ret)
		}
		if current == mode {
			return nil
		}
		if needsReset && reset {
			err = b.reset(ctx, gpuID)
		} else {
			err = refuse(backend.InUse, "the driver would change it at the next reset only (%s): something holds the GPU open, %s%s",
				names[activation], b.watchHint(), b.drmHint())
		}
		return b.confirmMode(gpuID, mode, err)
	})
}

// confirmMode checks the mode after a change that went wrong or needed a reset, and takes
// back one that is only pending.
func (b *Backend) confirmMode(gpuID string, mode int, why error) error {
	s, err := b.open() // a reset has ended the session
	if err != nil {
		return errors.Join(why, err)
	}
	d, err := s.byUUID(gpuID)
	if err != nil {
		return errors.Join(why, err)
	}
	current, pending, ret := d.handle.GetMigMode()
	switch {
	case ret != nvml.SUCCESS:
		return errors.Join(why, failed("nvmlDeviceGetMigMode", ret))
	case current == mode:
		return nil
	case why == nil:
		why = refuse(backend.Failed, "the GPU was reset, and the mode is as it was")
	}
	if pending != current {
		if _, ret := d.handle.SetMigMode(current); ret != nvml.SUCCESS {
			return errors.Join(why, fmt.Errorf("and the mode stays pending: %w", failed("nvmlDeviceSetMigMode", ret)))
		}
	}
	return why
}

// mayChangeMode refuses while somebody uses the GPU: the driver may detach it.
func (b *Backend) mayChangeMode(s *session, d *device, on bool) error {
	users, err := b.processes(s, d, true)
	if err != nil {
		return err
	}
	if who := who(users); who != "" {
		return refuse(backend.InUse, "the GPU is in use by %s", who)
	}
	if on {
		return nil
	}
	profiles, err := s.profilesOf(d)
	if err != nil {
		return err
	}
	left, err := s.instances(d, profiles)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		name := func(i instance) string { return fmt.Sprintf("%s at %d", i.Profile, i.Start) }
		return refuse(backend.InUse, "the GPU still has the instances %s", strings.Join(words.Each(left, name), ", "))
	}
	return nil
}

// resetsAlone refuses a GPU that others are linked to without a switch between them: a
// reset would have to take them along.
func (s *session) resetsAlone(d *device) error {
	links, _ := s.links(d)
	var peers []string
	for _, l := range links {
		if l.GPU != "" {
			peers = append(peers, l.GPU)
		}
	}
	if len(peers) > 0 {
		return refuse(backend.InvalidState,
			"it is linked by NVLink to GPU %s, which would have to be reset as well; reset them together by hand, after the mode was set with "+
				"nvidia-smi", strings.Join(peers, ", "))
	}
	return nil
}

// reset resets one GPU. NVML has no function for it, and this process must not hold the GPU.
func (b *Backend) reset(ctx context.Context, gpuID string) error {
	if err := b.hangUp(); err != nil {
		return err
	}
	if _, err := run(ctx, resetTime, b.opt.SMI, "--gpu-reset", "-i", gpuID); err != nil {
		return refuse(backend.InUse, "the GPU could not be reset: %v%s", err, b.drmHint())
	}
	return nil
}

// resetTime bounds the reset of a GPU.
const resetTime = 2 * time.Minute

// oneLine is what a program said, for an error.
func oneLine(out []byte) string {
	const most = 500
	said := strings.Join(strings.Fields(string(out)), " ")
	if len(said) > most {
		return said[:most] + " (cut)"
	}
	return said
}
