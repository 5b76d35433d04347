// Package libvirt reads which devices of a host the VMs of libvirt name, gives VMs vGPUs and takes them back, and starts and stops
// VMs. Of a definition it writes single devices only, into the one that is stored, never the whole and never what runs: another
// writer's part stays, since libvirt itself puts a device in and takes it out.
//
// What a VM that runs has open is seen in /proc; that one which is off needs a device at its next start,
// only libvirt knows, and libvirt itself compares it with nothing until then.
package libvirt

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/words"
)

// Options say where libvirt is. What is left out is this machine's.
type Options struct {
	// Sockets are those of the daemons that have QEMU's VMs; the first one that answers is read. They are
	// virtqemud's, and libvirtd's, which another daemon keeps where virtqemud is.
	Sockets []string
	// Patience is how long a reading may take, 5 seconds when it is 0. Where systemd holds the socket, as at
	// boot, a connection is accepted and nobody answers.
	Patience time.Duration
}

// In are the options of a machine whose root is elsewhere.
func (o Options) In(root string) Options {
	if len(o.Sockets) == 0 {
		for _, name := range []string{"virtqemud-sock", "libvirt-sock"} {
			o.Sockets = append(o.Sockets, filepath.Join("/", root, "run/libvirt", name))
		}
	}
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	return o
}

// Read are the devices that the definitions of VMs name, sorted; none where there is no libvirt. An error
// says what could not be read; VMs that it does not name were.
func Read(ctx context.Context, o Options) ([]gpu.HostDevice, error) {
	m, err := look(ctx, o, false)
	return m.Devices, err
}

// Machines are what libvirt has.
type Machines struct {
	// Manager is libvirt itself; nil where there is none.
	Manager *gpu.VMManager
	// VMs are all of them, without what they have.
	VMs []gpu.VM
	// Devices are those that their definitions name.
	Devices []gpu.HostDevice
}

// Look is Read of the VMs too.
func Look(ctx context.Context, o Options) (Machines, error) { return look(ctx, o, true) }

func look(ctx context.Context, o Options, vms bool) (Machines, error) {
	o = o.In("")
	ctx, cancel := context.WithTimeoutCause(ctx, o.Patience, fmt.Errorf("libvirt has not answered within %s", o.Patience))
	defer cancel()
	var r reading
	_, err := o.on(ctx, func(virt *golibvirt.Libvirt) error {
		r = reading{virt: virt, all: vms}
		return r.read()
	})
	if err != nil {
		return Machines{}, err
	}
	return r.Machines, together(r.unread)
}

// on does something through the first socket at which that succeeds; there reports whether any socket is there.
func (o Options) on(ctx context.Context, do func(*golibvirt.Libvirt) error) (there bool, err error) {
	var failed []error
	for _, socket := range o.Sockets {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			if err = through(ctx, conn, do); err == nil {
				return true, nil
			}
		}
		failed = append(failed, fmt.Errorf("%s: %w", socket, because(ctx, err)))
		if ctx.Err() != nil {
			break
		}
	}
	return len(failed) > 0, together(failed)
}

// together is one line of several errors, of many the first.
func together(all []error) error {
	const most = 3
	if len(all) == 0 {
		return nil
	}
	texts := words.Each(all[:min(len(all), most)], error.Error)
	if more := len(all) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(texts, "; "))
}

// because is what ended a call: that time ran out says more than that the connection was closed.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// reading is what one connection told.
type reading struct {
	virt *golibvirt.Libvirt
	Machines
	all bool // VMs without devices, too
	// unread are the VMs whose definitions cannot be read, each with why.
	unread []error
}

// through does something through a connection, and closes it. The library knows no deadlines, and reads again and again
// from a connection whose own has passed: it is closed instead, and each call of this package has a new one.
func through(ctx context.Context, conn net.Conn, do func(*golibvirt.Libvirt) error) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		stop()
		_ = conn.Close() // nothing is lost
	}()
	virt := golibvirt.NewWithDialer(dialed{&packets{Conn: conn}})
	if err := virt.ConnectToURI(golibvirt.QEMUSystem); err != nil {
		return fmt.Errorf("open %s: %w", golibvirt.QEMUSystem, err)
	}
	return do(virt)
}

// read reads all VMs.
func (r *reading) read() error {
	if r.all {
		version, err := r.virt.ConnectGetLibVersion()
		if err != nil {
			return fmt.Errorf("ask for the version: %w", err)
		}
		const major, minor = 1_000_000, 1000
		r.Manager = &gpu.VMManager{
			Name: gpu.Libvirt, Version: fmt.Sprintf("%d.%d.%d", version/major, version%major/minor, version%minor),
		}
	}
	domains, _, err := r.virt.ConnectListAllDomains(1, 0)
	if err != nil {
		return fmt.Errorf("list the VMs: %w", err)
	}
	for _, d := range domains {
		devices, err := r.domain(d)
		switch {
		case golibvirt.IsNotFound(err): // it was undefined meanwhile
		case isOfOne(err):
			r.unread = append(r.unread, fmt.Errorf("the definition of VM %s cannot be read: %w", gpu.Said(d.Name, mostOfText), err))
		case err != nil:
			return fmt.Errorf("read VM %s: %w", gpu.Said(d.Name, mostOfText), err)
		}
		r.Devices = append(r.Devices, devices...)
	}
	slices.SortFunc(r.VMs, func(a, b gpu.VM) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(r.Devices, func(a, b gpu.HostDevice) int {
		return cmp.Or(cmp.Compare(a.VM, b.VM), cmp.Compare(a.Address, b.Address), cmp.Compare(a.UUID, b.UUID))
	})
	return nil
}

// isOfOne reports whether an error is the daemon's answer about one VM, or about what it answered: it can be
// asked about the others.
func isOfOne(err error) bool {
	_, answered := errors.AsType[golibvirt.Error](err)
	_, malformed := errors.AsType[*definitionError](err)
	return answered || malformed
}

// mostOfText is as much of a name or of a definition as is said in an error.
const mostOfText = 100

// domain are the devices of one VM, as it will have them at its next start.
func (r *reading) domain(d golibvirt.Domain) ([]gpu.HostDevice, error) {
	text, err := r.virt.DomainGetXMLDesc(d, golibvirt.DomainXMLInactive)
	if err != nil {
		return nil, err
	}
	devices, err := parse(text)
	if err != nil || len(devices) == 0 && !r.all {
		return nil, err
	}
	state, err := stateOf(r.virt, d)
	if r.all && err == nil {
		var persistent int32
		persistent, err = r.virt.DomainIsPersistent(d)
		r.VMs = append(r.VMs, gpu.VM{
			ID: uuidText(d.UUID), Name: gpu.Printable(d.Name), State: state, Transient: err == nil && persistent == 0,
		})
	}
	for i := range devices {
		devices[i].VM, devices[i].VMID, devices[i].State = gpu.Printable(d.Name), uuidText(d.UUID), state
	}
	return devices, err
}

// state is a VM's. Whether one that is off is saved, only its flag says: neither its state nor the
// reason of that does.
func stateOf(virt *golibvirt.Libvirt, d golibvirt.Domain) (gpu.VMState, error) {
	state, _, err := virt.DomainGetState(d, 0)
	if err != nil {
		return "", err
	}
	switch golibvirt.DomainState(state) { //nolint:exhaustive // the others have no name of ours
	case golibvirt.DomainRunning, golibvirt.DomainBlocked:
		return gpu.VMRunning, nil
	case golibvirt.DomainPaused, golibvirt.DomainPmsuspended:
		return gpu.VMPaused, nil
	case golibvirt.DomainShutdown:
		return gpu.VMStopping, nil
	case golibvirt.DomainShutoff:
		saved, err := virt.DomainHasManagedSaveImage(d, 0)
		if saved != 0 {
			return gpu.VMSaved, err
		}
		return gpu.VMOff, err
	}
	return gpu.VMOther, nil
}

func uuidText(id golibvirt.UUID) string {
	t := hex.EncodeToString(id[:])
	return t[:8] + "-" + t[8:12] + "-" + t[12:16] + "-" + t[16:20] + "-" + t[20:]
}
