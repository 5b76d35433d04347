// Package fakelibvirt is a daemon of libvirt for tests, as far as VMs are read from it and changed: it answers the
// calls that take, in libvirt's protocol. What it says of a VM is whatever a test gives it.
package fakelibvirt

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Domain is a VM. States are libvirt's: 1 is running, 5 shut off.
type Domain struct {
	Name  string
	UUID  [16]byte
	State int32
	Saved bool // it has a managed save
	XML   string
	// Refusal is what the daemon answers in place of the definition; of one that is Gone, that there is
	// no such VM.
	Refusal string
	Gone    bool
	// Transient is true for one without a stored definition.
	Transient bool
	// Guest is what the guest does when it is asked to shut down.
	Guest Guest

	metadata string
	run      uint32 // how often it was started
}

// Guest is what a guest does when it is asked to shut down.
type Guest int

// What guests do. A daemon says of all of them that it is done.
const (
	Obeys Guest = iota
	Deaf        // for good, as one without ACPI
)

// Lie is how the daemon answers a change.
type Lie int

// Lies.
const (
	Honest       Lie = iota
	Interrupted      // the change is done, and the connection ends before the answer
	OnlySaysDone     // it is not done
	SaysFailed       // it is done, and the answer is one of the many of code 55
)

// States of libvirt.
const (
	Running = 1
	ShutOff = 5
)

// Daemon answers at a socket.
type Daemon struct {
	listener net.Listener

	mu      sync.Mutex
	domains []Domain
	silent  bool
	lie     Lie
	changes []string
	raw     []byte
	asked   int
	conns   []net.Conn
}

// Listen starts a daemon, which ends with the test.
func Listen(t testing.TB, socket string) *Daemon {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{listener: listener}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serve()
	}()
	t.Cleanup(func() {
		d.Stop()
		<-done
	})
	return d
}

// Define gives the daemon its VMs.
func (d *Daemon) Define(domains ...Domain) { d.set(func() { d.domains = domains }) }

// Hang lets the daemon accept connections and answer nothing.
func (d *Daemon) Hang() { d.set(func() { d.silent = true }) }

// Say lets the daemon answer each call with these bytes.
func (d *Daemon) Say(raw []byte) { d.set(func() { d.raw = raw }) }

// Lie has the daemon answer changes in some way.
func (d *Daemon) Lie(how Lie) { d.set(func() { d.lie = how }) }

// Off has a VM go off, as when its guest is done.
func (d *Daemon) Off(name string) { d.set(func() { d.named(name).off() }) }

// Deafen has the guest of a VM, by its UUID, be deaf.
func (d *Daemon) Deafen(uuid string) {
	d.set(func() {
		for i := range d.domains {
			if hex.EncodeToString(d.domains[i].UUID[:]) == strings.ReplaceAll(uuid, "-", "") {
				d.domains[i].Guest = Deaf
			}
		}
	})
}

// Domain is a VM as it is now.
func (d *Daemon) Domain(name string) Domain {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *d.named(name)
}

// Changes are the changes that it was asked for: "attach", "detach", "create", "shutdown", "destroy".
func (d *Daemon) Changes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.changes)
}

func (d *Daemon) named(name string) *Domain {
	return &d.domains[slices.IndexFunc(d.domains, func(o Domain) bool { return o.Name == name })]
}

func (o *Domain) off() { o.State, o.metadata = ShutOff, "" }

// Asked is how many connections there were.
func (d *Daemon) Asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// Stop ends the daemon, and leaves its socket behind as one does that is killed.
func (d *Daemon) Stop() {
	if l, ok := d.listener.(*net.UnixListener); ok {
		l.SetUnlinkOnClose(false)
	}
	_ = d.listener.Close()
	d.set(func() {
		for _, c := range d.conns {
			_ = c.Close()
		}
	})
}

func (d *Daemon) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *Daemon) serve() {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.set(func() { d.asked, d.conns = d.asked+1, append(d.conns, conn) })
		all.Go(func() {
			for err := error(nil); err == nil; {
				err = d.answer(conn)
			}
			_ = conn.Close()
		})
	}
}

// The procedures of libvirt's remote protocol, and the parts of a packet's header.
const (
	connectOpen       = 1
	create            = 9
	destroy           = 12
	getXML            = 14
	lookupByUUID      = 24
	shutdown          = 33
	isPersistent      = 151
	getLibVersion     = 157
	attachDevice      = 160
	detachDevice      = 161
	setMetadata       = 264
	getMetadata       = 265
	authList          = 66
	hasManagedSave    = 183
	getState          = 212
	listAllDomains    = 273
	procedureAt       = 12
	typeAt, reply     = 16, 1
	statusAt, failure = 24, 1
	header            = 28
)

// answer reads a call and answers it.
func (d *Daemon) answer(conn net.Conn) error {
	head := make([]byte, header)
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	call := make([]byte, binary.BigEndian.Uint32(head)-header)
	if _, err := io.ReadFull(conn, call); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silent {
		return nil
	}
	if d.raw != nil {
		_, err := conn.Write(d.raw)
		return err
	}
	body, err := d.result(binary.BigEndian.Uint32(head[procedureAt:]), call)
	if errors.Is(err, errInterrupted) {
		return err
	}
	binary.BigEndian.PutUint32(head[typeAt:], reply)
	if err != nil {
		binary.BigEndian.PutUint32(head[statusAt:], failure)
		body = refusal(err)
	}
	binary.BigEndian.PutUint32(head, uint32(header+len(body)))
	_, err = conn.Write(slices.Concat(head, body))
	return err
}

// result is what a procedure answers.
func (d *Daemon) result(procedure uint32, call []byte) ([]byte, error) {
	switch procedure {
	case authList:
		return numbers(1, 0), nil // one way, which is none
	case connectOpen:
		return nil, nil
	case getLibVersion:
		return numbers(0, 11_003_000), nil
	case lookupByUUID:
		i := slices.IndexFunc(d.domains, func(o Domain) bool {
			return !o.Gone && len(call) >= len(o.UUID) && string(o.UUID[:]) == string(call[:16])
		})
		if i < 0 {
			return nil, errGone
		}
		return d.domains[i].handle(), nil
	case listAllDomains:
		out := numbers(uint32(len(d.domains)))
		for i := range d.domains {
			out = append(out, d.domains[i].handle()...)
		}
		return append(out, numbers(uint32(len(d.domains)))...), nil
	}
	i := slices.IndexFunc(d.domains, func(o Domain) bool { // its number is another one once it was started
		h := o.handle()
		return len(call) >= len(h) && string(h[:len(h)-4]) == string(call[:len(h)-4])
	})
	if i < 0 {
		return nil, errGone
	}
	switch o := &d.domains[i]; procedure {
	case getXML:
		switch {
		case o.Gone:
			return nil, errGone
		case o.Refusal != "":
			return nil, errors.New(o.Refusal)
		}
		return text(o.XML), nil
	case getState:
		return numbers(uint32(o.State), 0), nil
	case hasManagedSave:
		return flag(o.Saved), nil
	case isPersistent:
		return flag(!o.Transient), nil
	case getMetadata:
		if o.metadata == "" {
			return nil, errNoMetadata
		}
		return text(o.metadata), nil
	default:
		return nil, d.change(o, procedure, call[len(o.handle()):])
	}
}

// change makes a change of a domain, as honestly as the daemon is.
func (d *Daemon) change(o *Domain, procedure uint32, args []byte) error {
	var name string
	var does func() error
	switch procedure {
	case attachDevice:
		name, does = "attach", func() error { return o.attach(firstText(args)) }
	case detachDevice:
		name, does = "detach", func() error { return o.detach(firstText(args)) }
	case create:
		name, does = "create", o.start
	case shutdown:
		name, does = "shutdown", o.askToShutDown
	case destroy:
		name, does = "destroy", func() error { o.off(); return nil }
	case setMetadata:
		const before = 2 * 4 // its type, and that there is a text
		o.metadata = firstText(args[before:])
		return nil
	default:
		return errors.New("this daemon has no such procedure")
	}
	d.changes = append(d.changes, name)
	if d.lie == OnlySaysDone {
		return nil
	}
	err := does()
	switch {
	case err == nil && d.lie == Interrupted:
		return errInterrupted
	case err == nil && d.lie == SaysFailed:
		return errors.New("requested operation is not valid")
	}
	return err
}

func (o *Domain) start() error {
	if o.State == Running {
		return errors.New("domain is already running")
	}
	o.State, o.Saved = Running, false
	o.run++
	return nil
}

func (o *Domain) askToShutDown() error {
	if o.State != Running {
		return errors.New("domain is not running")
	}
	if o.Guest == Obeys {
		o.off()
	}
	return nil
}

// The stored definition takes a device at its end, and gives up the one of the same source.
const endOfDevices = "</devices>"

var source = regexp.MustCompile(`<source>.*?</source>`)

func (o *Domain) attach(device string) error {
	if strings.Contains(o.XML, source.FindString(device)) {
		return errors.New("device is already in the domain configuration")
	}
	o.XML = strings.Replace(o.XML, endOfDevices, device+endOfDevices, 1)
	return nil
}

var hostdev = regexp.MustCompile(`(?s)<hostdev .*?</hostdev>`)

func (o *Domain) detach(device string) error {
	for _, is := range hostdev.FindAllString(o.XML, -1) {
		if source.FindString(is) == source.FindString(device) {
			o.XML = strings.Replace(o.XML, is, "", 1)
			return nil
		}
	}
	return errors.New("device not found: device not present in domain configuration")
}

func flag(is bool) []byte {
	if is {
		return numbers(1)
	}
	return numbers(0)
}

// firstText is the text that arguments begin with.
func firstText(args []byte) string {
	n := binary.BigEndian.Uint32(args)
	return string(args[4 : 4+n])
}

// handle is how libvirt names a domain: its name, its UUID and a number, which is -1 for one that is off.
func (o *Domain) handle() []byte {
	id := ^uint32(0)
	if o.State == Running {
		id = 1 + o.run
	}
	return append(append(text(o.Name), o.UUID[:]...), numbers(id)...)
}

// numbers and text are as XDR writes them.
func numbers(all ...uint32) []byte {
	var out []byte
	for _, n := range all {
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return out
}

func text(s string) []byte {
	const word = 4
	out := append(numbers(uint32(len(s))), s...)
	return append(out, make([]byte, (word-len(s)%word)%word)...)
}

var (
	errGone        = errors.New("no domain with matching uuid")
	errNoMetadata  = errors.New("metadata not found: Requested metadata element is not present")
	errInterrupted = errors.New("the connection ends")
)

// refusal is an error of libvirt: code, domain, a message that is there, level, and fields that are not.
func refusal(err error) []byte {
	const internalError, noDomain, noMetadata, ofQEMU, there, level = 1, 42, 80, 10, 1, 2
	code := uint32(internalError)
	switch {
	case errors.Is(err, errGone):
		code = noDomain
	case errors.Is(err, errNoMetadata):
		code = noMetadata
	}
	return slices.Concat(numbers(code, ofQEMU, there), text(err.Error()), numbers(level, 0, 0, 0, 0, 0, 0, 0))
}
