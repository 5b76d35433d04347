package libvirt

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

// What libvirt answers tells little: success is that a request was sent, one code is of many things, and a call that was interrupted
// may have been done. So each call here reads before it acts, and reads again what came of it, through a connection of its own.

func refuse(code backend.Code, format string, args ...any) error {
	return &backend.Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// domainOf finds a VM by its id.
func domainOf(virt *golibvirt.Libvirt, id string) (golibvirt.Domain, error) {
	var uuid golibvirt.UUID
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.Trim(id, "{}"), "-", ""))
	if err != nil || len(raw) != len(uuid) {
		return golibvirt.Domain{}, refuse(backend.NotFound, "%q is no UUID of a VM", gpu.Said(id, mostOfText))
	}
	copy(uuid[:], raw)
	d, err := virt.DomainLookupByUUID(uuid)
	if golibvirt.IsNotFound(err) {
		return d, refuse(backend.NotFound, "libvirt has no such VM")
	}
	return d, err
}

// call does something with a VM within what is left of a call's time, once libvirt has answered that it has the VM. Where systemd holds
// the socket, as at boot, nobody answers: that is known after a reading's time, however long a start may take.
func (o Options) call(ctx context.Context, id string, do func(*golibvirt.Libvirt, golibvirt.Domain) error) error {
	if err := o.ask(ctx, id, func(*golibvirt.Libvirt, golibvirt.Domain) error { return nil }); err != nil {
		return err
	}
	return o.In("").once(ctx, id, do)
}

func (o Options) once(ctx context.Context, id string, do func(*golibvirt.Libvirt, golibvirt.Domain) error) error {
	var refused error
	there, err := o.on(ctx, func(virt *golibvirt.Libvirt) error {
		d, err := domainOf(virt, id)
		if err == nil {
			err = do(virt, d)
		}
		if e, answered := errors.AsType[golibvirt.Error](err); answered {
			err = refuse(backend.Failed, "libvirt: %s", gpu.Said(e.Message, mostOfText+mostOfText))
		}
		if _, is := errors.AsType[*backend.Error](err); is { // no other socket has another answer
			refused = err
			return nil
		}
		return err
	})
	switch {
	case refused != nil:
		return refused
	case ctx.Err() != nil:
		return refuse(backend.Timeout, "libvirt has not answered in time: %v", because(ctx, err))
	case err != nil:
		return refuse(backend.Unavailable, "%v", err)
	case !there:
		return refuse(backend.Unavailable, "there is no socket of libvirt (%s)", strings.Join(o.Sockets, ", "))
	}
	return nil
}

// ask is call for what only reads, also once the time of the caller is over.
func (o Options) ask(ctx context.Context, id string, do func(*golibvirt.Libvirt, golibvirt.Domain) error) error {
	o = o.In("")
	late := fmt.Errorf("libvirt has not answered within %s", o.Patience)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), o.Patience, late)
	defer cancel()
	return o.once(ctx, id, do)
}

// stored is what the definition of a VM that is off names; of any other VM it is refused.
func stored(virt *golibvirt.Libvirt, d golibvirt.Domain) ([]gpu.HostDevice, error) {
	state, err := stateOf(virt, d)
	if err != nil {
		return nil, err
	}
	if state != gpu.VMOff {
		return nil, refuse(backend.InvalidState, "the VM is %s, and must be off", state)
	}
	persistent, err := virt.DomainIsPersistent(d)
	if err != nil {
		return nil, err
	}
	if persistent == 0 {
		return nil, refuse(backend.InvalidState, "the VM is transient and has no stored definition")
	}
	return defined(virt, d)
}

func defined(virt *golibvirt.Libvirt, d golibvirt.Domain) ([]gpu.HostDevice, error) {
	text, err := virt.DomainGetXMLDesc(d, golibvirt.DomainXMLInactive)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// Attach writes a device into the definition of a VM that is off.
func Attach(ctx context.Context, o Options, id string, device gpu.HostDevice) error {
	same := func(x gpu.HostDevice) bool { return x.Address == device.Address && gpu.SameID(x.UUID, device.UUID) }
	done := false
	err := o.call(ctx, id, func(virt *golibvirt.Libvirt, d golibvirt.Domain) error {
		devices, err := stored(virt, d)
		if err != nil {
			return err
		}
		for _, x := range devices {
			switch {
			case x.Alias == device.Alias && same(x):
				done = true
				return nil
			case x.Alias == device.Alias:
				return refuse(backend.InUse, "the VM has another device of the alias %s", x.Alias)
			case same(x):
				return refuse(backend.InUse, "its definition names the device already, as %s", x.ID())
			}
		}
		return virt.DomainAttachDeviceFlags(d, hostdev(device), uint32(golibvirt.DomainDeviceModifyConfig))
	})
	if done || isRefused(err) {
		return err
	}
	return o.reads(ctx, id, err, "the definition does not name the device", func(devices []gpu.HostDevice) bool {
		return slices.ContainsFunc(devices, func(x gpu.HostDevice) bool { return x.Alias == device.Alias && same(x) })
	})
}

// Detach takes a device out of the definition of a VM that is off; one that is not there is no error. ID is the alias, or what the
// device is.
func Detach(ctx context.Context, o Options, id, device string) error {
	is := func(x gpu.HostDevice) bool { return x.ID() == device }
	done := false
	err := o.call(ctx, id, func(virt *golibvirt.Libvirt, d golibvirt.Domain) error {
		devices, err := defined(virt, d)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(devices, is)
		if i < 0 {
			done = true
			return nil
		}
		if _, err := stored(virt, d); err != nil {
			return err
		}
		return virt.DomainDetachDeviceFlags(d, hostdev(devices[i]), uint32(golibvirt.DomainDeviceModifyConfig))
	})
	if done || isRefused(err) {
		return err
	}
	return o.reads(ctx, id, err, "the definition still names the device", func(devices []gpu.HostDevice) bool {
		return !slices.ContainsFunc(devices, is)
	})
}

// isRefused reports whether a call ended before it changed anything.
func isRefused(err error) bool {
	e, is := errors.AsType[*backend.Error](err)
	return is && !slices.Contains([]backend.Code{backend.Unavailable, backend.Timeout, backend.Failed}, e.Code)
}

// reads reads what came of a call, whatever that said of itself.
func (o Options) reads(ctx context.Context, id string, said error, otherwise string, is func([]gpu.HostDevice) bool) error {
	var devices []gpu.HostDevice
	err := o.ask(ctx, id, func(virt *golibvirt.Libvirt, d golibvirt.Domain) (err error) {
		devices, err = defined(virt, d)
		return err
	})
	switch {
	case err == nil && is(devices):
		return nil
	case said != nil:
		return said
	case err != nil:
		return err
	}
	return refuse(backend.Failed, "libvirt said that it is done, and %s", otherwise)
}

// hostdev is a device as a definition has it. With managed='yes' libvirt would take the function from the driver that has the vGPU.
func hostdev(d gpu.HostDevice) string {
	alias := ""
	if d.Alias != "" {
		alias = "<alias name='" + html.EscapeString(d.Alias) + "'/>"
	}
	if d.UUID != "" {
		return "<hostdev mode='subsystem' type='mdev' model='vfio-pci' managed='no'><source><address uuid='" + html.EscapeString(d.UUID) +
			"'/></source>" + alias + "</hostdev>"
	}
	var domain, bus, slot, function uint
	_, _ = fmt.Sscanf(d.Address, "%x:%x:%x.%x", &domain, &bus, &slot, &function) // as parse writes it
	return fmt.Sprintf("<hostdev mode='subsystem' type='pci' managed='no'><source><address domain='0x%04x' bus='0x%02x' slot='0x%02x' "+
		"function='0x%x'/></source>%s</hostdev>", domain, bus, slot, function, alias)
}

// The mark of a VM whose guest was asked to shut down and has not yet: libvirt itself forgets that, and a guest may go off minutes
// later. It is kept in what runs only, so that it ends with that.
const (
	markSpace = "https://github.com/gpufleet/terraform-provider-gpu/shutdown"
	markKey   = "gpu"
	// Grace is how long after it a VM that runs still counts as one that shuts down.
	Grace = 5 * time.Minute
)

func mark(virt *golibvirt.Libvirt, d golibvirt.Domain, at time.Time) error {
	text := fmt.Sprintf("<asked at='%d'/>", at.Unix())
	return virt.DomainSetMetadata(d, int32(golibvirt.DomainMetadataElement), golibvirt.OptString{text}, golibvirt.OptString{markKey},
		golibvirt.OptString{markSpace}, golibvirt.DomainAffectLive)
}

// asked is when the guest of a VM that runs was asked to shut down; zero for never.
func asked(virt *golibvirt.Libvirt, d golibvirt.Domain) (time.Time, error) {
	text, err := virt.DomainGetMetadata(d, int32(golibvirt.DomainMetadataElement), golibvirt.OptString{markSpace}, golibvirt.DomainAffectLive)
	if e, is := errors.AsType[golibvirt.Error](err); is && e.Code == uint32(golibvirt.ErrNoDomainMetadata) {
		return time.Time{}, nil
	} else if err != nil {
		return time.Time{}, err
	}
	_, seconds, _ := strings.Cut(text, "at=")
	var at int64
	if n, _ := fmt.Sscanf(strings.Trim(seconds, `'"`), "%d", &at); n == 0 {
		return time.Time{}, nil // somebody else's
	}
	return time.Unix(at, 0), nil
}

// State is how a VM is. One that runs and whose guest was asked to shut down a short while ago still shuts down.
func State(ctx context.Context, o Options, id string) (state gpu.VMState, err error) {
	err = o.ask(ctx, id, func(virt *golibvirt.Libvirt, d golibvirt.Domain) (err error) {
		state, err = goingState(virt, d)
		return err
	})
	return state, err
}

func goingState(virt *golibvirt.Libvirt, d golibvirt.Domain) (gpu.VMState, error) {
	state, err := stateOf(virt, d)
	if err != nil || state != gpu.VMRunning {
		return state, err
	}
	at, err := asked(virt, d)
	if err == nil && !at.IsZero() && time.Since(at) < Grace {
		return gpu.VMStopping, nil
	}
	return state, err
}

// poll is how often a VM that shuts down is looked at.
const poll = 250 * time.Millisecond

// ShutDown asks the guest of a VM to shut down, and waits until the VM is off.
func ShutDown(ctx context.Context, o Options, id string) error {
	var run int32
	off := false
	err := o.call(ctx, id, func(virt *golibvirt.Libvirt, d golibvirt.Domain) error {
		state, err := stateOf(virt, d)
		switch {
		case err != nil:
			return err
		case state == gpu.VMOff:
			off = true
			return nil
		case state != gpu.VMRunning && state != gpu.VMStopping:
			return refuse(backend.InvalidState, "the VM is %s, so its guest cannot be asked", state)
		}
		run = d.ID
		if err := mark(virt, d, time.Now()); err != nil {
			return err
		}
		return virt.DomainShutdown(d)
	})
	if off || err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return refuse(backend.Timeout, "the guest had not shut down when time ran out; the VM still runs, and may go off later")
		case <-time.After(poll):
		}
		again := false
		err := o.ask(ctx, id, func(virt *golibvirt.Libvirt, d golibvirt.Domain) error {
			state, err := stateOf(virt, d)
			off, again = err == nil && state == gpu.VMOff, err == nil && state == gpu.VMRunning && d.ID != run
			return err
		})
		switch {
		case off:
			return nil
		case again:
			return refuse(backend.InUse, "it runs again: somebody started it as soon as it was off")
		case err != nil && isRefused(err):
			return err
		}
	}
}

// TurnOff cuts the power of a VM.
func TurnOff(ctx context.Context, o Options, id string) error {
	return o.become(ctx, id, gpu.VMOff, func(virt *golibvirt.Libvirt, d golibvirt.Domain, state gpu.VMState) error {
		if state == gpu.VMSaved {
			return refuse(backend.InvalidState, "the VM is saved: there is no power to cut")
		}
		return virt.DomainDestroy(d)
	})
}

// Start starts a VM that is off, and restores one that is saved. One that still shuts down is refused: it would go off later.
func Start(ctx context.Context, o Options, id string) error {
	return o.become(ctx, id, gpu.VMRunning, func(virt *golibvirt.Libvirt, d golibvirt.Domain, state gpu.VMState) error {
		if state != gpu.VMOff && state != gpu.VMSaved {
			return refuse(backend.InvalidState, "the VM is %s and cannot be started", state)
		}
		return virt.DomainCreate(d)
	})
}

// become does what brings a VM into a state, unless it is in it.
func (o Options) become(
	ctx context.Context, id string, wanted gpu.VMState, do func(*golibvirt.Libvirt, golibvirt.Domain, gpu.VMState) error,
) error {
	done := false
	err := o.call(ctx, id, func(virt *golibvirt.Libvirt, d golibvirt.Domain) error {
		state, err := goingState(virt, d)
		if done = state == wanted; err != nil || done {
			return err
		}
		return do(virt, d, state)
	})
	if done || isRefused(err) {
		return err
	}
	state, readErr := State(ctx, o, id)
	switch {
	case readErr == nil && state == wanted:
		return nil
	case err != nil:
		return err
	case readErr != nil:
		return readErr
	}
	return refuse(backend.Failed, "libvirt said that it is done, and the VM is %s", state)
}
