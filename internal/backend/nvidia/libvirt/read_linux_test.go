package libvirt_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/nvidia/libvirt"
	fakelibvirt "github.com/gpufleet/terraform-provider-gpu/internal/fake/libvirt"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
)

const (
	mdevUUID = "844d691c-a9d8-4845-b288-b81b99b88ae6"
	function = `<hostdev mode='subsystem' type='pci' managed='no'><source><address domain='0x0000' bus='0x41' slot='0x00' function='0x4'/>` +
		`</source><address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/></hostdev>`
	mediated = `<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='` + mdevUUID + `'/></source></hostdev>`
	// others are devices that are none of a host's bus.
	others = `<disk type='file'/><hostdev mode='subsystem' type='usb'><source><vendor id='0x1234'/></source></hostdev>` +
		`<hostdev mode='subsystem' type='scsi'><source><adapter name='scsi_host0'/><address bus='0' target='0' unit='0'/></source></hostdev>` +
		`<hostdev mode='capabilities' type='misc'><source><char>/dev/input/event3</char></source></hostdev>`
)

func vm(name string, number byte, devices string) fakelibvirt.Domain {
	return fakelibvirt.Domain{
		Name: name, UUID: [16]byte{0xab, 15: number}, State: fakelibvirt.ShutOff,
		XML: "<domain type='kvm'><name>x</name><devices>" + others + devices + "</devices></domain>",
	}
}

const idOfFirst = "ab000000-0000-0000-0000-000000000001"

// host is a machine with daemons at both sockets.
type host struct {
	root                string
	modular, monolithic *fakelibvirt.Daemon
}

func newHost(t *testing.T) *host {
	t.Helper()
	root, err := os.MkdirTemp("", "libvirt") //nolint:usetesting // sockets have short paths, and t.TempDir is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.MkdirAll(filepath.Join(root, "run/libvirt"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &host{root: root}
}

func (h *host) socket(name string) string { return filepath.Join(h.root, "run/libvirt", name) }

// virtqemud and libvirtd start daemons with VMs.
func (h *host) virtqemud(t *testing.T, domains ...fakelibvirt.Domain) *host {
	t.Helper()
	h.modular = fakelibvirt.Listen(t, h.socket("virtqemud-sock"))
	h.modular.Define(domains...)
	return h
}

func (h *host) libvirtd(t *testing.T, domains ...fakelibvirt.Domain) *host {
	t.Helper()
	h.monolithic = fakelibvirt.Listen(t, h.socket("libvirt-sock"))
	h.monolithic.Define(domains...)
	return h
}

func (h *host) read(t *testing.T) ([]gpu.HostDevice, error) {
	t.Helper()
	return h.readIn(t, time.Minute)
}

func (h *host) readIn(t *testing.T, patience time.Duration) ([]gpu.HostDevice, error) {
	t.Helper()
	return libvirt.Read(t.Context(), libvirt.Options{Patience: patience}.In(h.root))
}

func TestRead(t *testing.T) {
	saved, running := vm("web-01", 1, function), vm("web-01", 1, function)
	saved.Saved, running.State = true, fakelibvirt.Running
	// Neither its reason nor a former save makes a VM that runs a saved one.
	runningSaved := running
	runningSaved.Saved = true
	at := func(state gpu.VMState) []gpu.HostDevice {
		return []gpu.HostDevice{{VM: "web-01", VMID: idOfFirst, State: state, Address: "0000:41:00.4"}}
	}
	tests := map[string]struct {
		on   func(*testing.T, *host)
		want []gpu.HostDevice
	}{
		"no libvirt": {on: func(*testing.T, *host) {}},
		"no VMs":     {on: func(t *testing.T, h *host) { h.libvirtd(t) }},
		"off":        {on: func(t *testing.T, h *host) { h.libvirtd(t, vm("web-01", 1, function)) }, want: at(gpu.VMOff)},
		"saved":      {on: func(t *testing.T, h *host) { h.libvirtd(t, saved) }, want: at(gpu.VMSaved)},
		"running":    {on: func(t *testing.T, h *host) { h.libvirtd(t, running) }, want: at(gpu.VMRunning)},
		"running, with an image": {
			on: func(t *testing.T, h *host) { h.libvirtd(t, runningSaved) }, want: at(gpu.VMRunning),
		},
		"several, in order": {
			on: func(t *testing.T, h *host) {
				h.libvirtd(t, vm("web-02", 2, mediated+function), vm("none", 3, ""), vm("web-01", 1, function))
			},
			want: append(at(gpu.VMOff),
				gpu.HostDevice{VM: "web-02", VMID: "ab000000-0000-0000-0000-000000000002", State: gpu.VMOff, UUID: mdevUUID},
				gpu.HostDevice{VM: "web-02", VMID: "ab000000-0000-0000-0000-000000000002", State: gpu.VMOff, Address: "0000:41:00.4"}),
		},
		"the modular daemon first": {
			on: func(t *testing.T, h *host) { h.virtqemud(t, vm("web-01", 1, function)).libvirtd(t) }, want: at(gpu.VMOff),
		},
		"a socket left behind": {
			on: func(t *testing.T, h *host) {
				h.virtqemud(t)
				h.modular.Stop()
				h.libvirtd(t, vm("web-01", 1, function))
			},
			want: at(gpu.VMOff),
		},
		"one undefined meanwhile": {
			on: func(t *testing.T, h *host) {
				gone := vm("gone", 9, function)
				gone.Gone = true
				h.libvirtd(t, gone, vm("web-01", 1, function))
			},
			want: at(gpu.VMOff),
		},
		"a name with control characters": {
			on:   func(t *testing.T, h *host) { h.libvirtd(t, vm("a\x1b[31m\nb", 1, mediated)) },
			want: []gpu.HostDevice{{VM: "a\uFFFD[31m\uFFFDb", VMID: idOfFirst, State: gpu.VMOff, UUID: mdevUUID}},
		},
		"a long definition": {
			on: func(t *testing.T, h *host) {
				h.libvirtd(t, vm("web-01", 1, strings.Repeat("<disk><a>", 9_000)+strings.Repeat("</a></disk>", 9_000)+
					"<!-- "+strings.Repeat("x", 3<<20)+" -->"+function))
			},
			want: at(gpu.VMOff),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			tt.on(t, h)
			got, err := h.read(t)
			if diff := gocmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("error %v, and the devices are otherwise (-want +got):\n%s", err, diff)
			}
		})
	}
}

// Whatever one VM's definition is like, those of the others are read, and the error names it.
func TestReadBesideUnreadable(t *testing.T) {
	tests := map[string]struct{ xml, says string }{
		"nothing":          {"", "it is no XML of a VM: EOF"},
		"cut off":          {"<domain><devices><hostdev type='pci'>", "it is no XML of a VM"},
		"another document": {"<network/>", "it is no XML of a VM"},
		"not UTF-8":        {"<domain>\xff</domain>", "it is no XML of a VM"},
		"no entity":        {"<domain>&lots;</domain>", "it is no XML of a VM"},
		"very deep":        {strings.Repeat("<domain>", 200_000), "it is no XML of a VM"},
		"a number of words": {
			"<domain><devices><hostdev type='pci'><source><address bus='a lot'/></source></hostdev></devices></domain>", `"a lot"`,
		},
		"no address of a pci":  {"<domain><devices><hostdev type='pci'/></devices></domain>", "a hostdev of type pci has no address"},
		"no address of a mdev": {"<domain><devices><hostdev type='mdev'/></devices></domain>", "a hostdev of type mdev has no address"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bad := vm("bad\nVM", 9, "")
			bad.XML = tt.xml
			got, err := newHost(t).libvirtd(t, bad, vm("web-01", 1, function)).read(t)
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), `VM bad\nVM cannot be read`) {
				t.Errorf("the error is %v, want one with %q and the VM's name", err, tt.says)
			}
			if len(got) != 1 || got[0].VM != "web-01" {
				t.Errorf("read %+v, want the device of web-01", got)
			}
		})
	}
	many := newHost(t)
	var all []fakelibvirt.Domain
	for i := range byte(5) {
		d := vm("bad", i, "")
		d.XML = ""
		all = append(all, d)
	}
	_, err := many.libvirtd(t, all...).read(t)
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.HasSuffix(err.Error(), "; and 2 more") {
		t.Errorf("the error is %v, want one line of the first", err)
	}
	refused := vm("secret", 9, "")
	refused.Refusal = "access denied"
	if got, err := newHost(t).libvirtd(t, refused, vm("web-01", 1, function)).read(t); len(got) != 1 || err == nil ||
		err.Error() != "the definition of VM secret cannot be read: access denied" {
		t.Errorf("read %+v, error %v, want the device of web-01 beside the refusal", got, err)
	}
}

// A daemon that is there and does not tell is not one without VMs.
func TestReadNotKnown(t *testing.T) {
	const hung = "libvirt has not answered within 100ms"
	length := func(n uint32) []byte { return append(binary.BigEndian.AppendUint32(nil, n), make([]byte, 24)...) }
	tests := map[string]struct {
		on   func(*testing.T, *host)
		says string
	}{
		"killed": {func(_ *testing.T, h *host) { h.monolithic.Stop() }, "connection refused"},
		"a file": {func(t *testing.T, h *host) {
			h.monolithic.Stop()
			if err := os.Remove(h.socket("libvirt-sock")); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(h.socket("libvirt-sock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "connection refused"},
		"hangs":              {func(_ *testing.T, h *host) { h.monolithic.Hang() }, hung},
		"a packet too long":  {func(_ *testing.T, h *host) { h.monolithic.Say(length(1 << 31)) }, "libvirt-sock: open qemu:///system"},
		"a packet too short": {func(_ *testing.T, h *host) { h.monolithic.Say(length(4)) }, "libvirt-sock: open qemu:///system"},
		"another protocol": {
			func(_ *testing.T, h *host) { h.monolithic.Say([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, "libvirt-sock: open qemu:///system",
		},
		"answers to no call":  {func(_ *testing.T, h *host) { h.monolithic.Say(length(28)) }, hung},
		"a handle like -2^31": {func(_ *testing.T, h *host) { h.monolithic.Say(length(1<<32 - 1)) }, "libvirt-sock: open qemu:///system"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t).libvirtd(t, vm("web-01", 1, function))
			tt.on(t, h)
			patience := time.Minute
			if tt.says == hung {
				patience = 100 * time.Millisecond
			}
			got, err := h.readIn(t, patience)
			if got != nil || err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("read %+v, error %v, want none and an error with %q", got, err, tt.says)
			}
		})
	}
}

// Each reading has a connection of its own, so that a daemon that was started again is read again.
func TestReadAgain(t *testing.T) {
	h := newHost(t).libvirtd(t, vm("web-01", 1, function))
	for range 2 {
		if got, err := h.read(t); len(got) != 1 || err != nil {
			t.Fatalf("read %+v, error %v", got, err)
		}
	}
	if n := h.monolithic.Asked(); n != 2 {
		t.Errorf("there were %d connections, want 2", n)
	}
	h.monolithic.Stop()
	if err := os.Remove(h.socket("libvirt-sock")); err != nil {
		t.Fatal(err)
	}
	if got, err := h.libvirtd(t, vm("web-02", 2, mediated)).read(t); len(got) != 1 || err != nil || got[0].VM != "web-02" {
		t.Errorf("read %+v, error %v, want what the new daemon has", got, err)
	}
}

// Who may not open the socket does not know.
func TestReadWithoutPermission(t *testing.T) {
	h := newHost(t).libvirtd(t, vm("web-01", 1, function))
	if err := os.Chmod(h.socket("libvirt-sock"), 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its user
		if os.Geteuid() == 0 {
			const nobody = 65534
			if err := unix.Setfsuid(nobody); err != nil {
				done <- err
				return
			}
		}
		_, err := libvirt.Read(context.Background(), libvirt.Options{}.In(h.root))
		done <- err
	}()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the error is %v, want that permission is denied", err)
	}
}
