// Package fakelibvirt is a daemon of libvirt for tests, as far as VMs are read from it: it answers the five
// calls that take, in libvirt's protocol. What it says of a VM is whatever a test gives it.
package fakelibvirt

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
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
}

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
	getXML            = 14
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
	case listAllDomains:
		out := numbers(uint32(len(d.domains)))
		for i := range d.domains {
			out = append(out, d.domains[i].handle()...)
		}
		return append(out, numbers(uint32(len(d.domains)))...), nil
	}
	i := slices.IndexFunc(d.domains, func(o Domain) bool { h := o.handle(); return len(call) >= len(h) && string(h) == string(call[:len(h)]) })
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
		if o.Saved {
			return numbers(1), nil
		}
		return numbers(0), nil
	}
	return nil, errors.New("this daemon has no such procedure")
}

// handle is how libvirt names a domain: its name, its UUID and a number, which is -1 for one that is off.
func (o *Domain) handle() []byte {
	id := ^uint32(0)
	if o.State == Running {
		id = 1
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

var errGone = errors.New("no domain with matching uuid")

// refusal is an error of libvirt: code, domain, a message that is there, level, and fields that are not.
func refusal(err error) []byte {
	const internalError, noDomain, ofQEMU, there, level = 1, 42, 10, 1, 2
	code := uint32(internalError)
	if errors.Is(err, errGone) {
		code = noDomain
	}
	return slices.Concat(numbers(code, ofQEMU, there), text(err.Error()), numbers(level, 0, 0, 0, 0, 0, 0, 0))
}
