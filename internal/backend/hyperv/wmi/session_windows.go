package wmi

import (
	"context"
	"sync"

	"github.com/go-ole/go-ole"
	cim "github.com/microsoft/wmi/pkg/wmiinstance"
)

// namespace is a namespace and the session with it, which is opened when it is
// needed and opened again when the service has gone.
type namespace struct {
	name  string
	queue queue

	mu      sync.Mutex
	current *session
}

// session is the library's, with the number of calls that use it.
type session struct {
	*cim.WmiSession
	users int
}

// request is one call, as those see it who make it.
type request struct {
	ctx     context.Context
	session *cim.WmiSession
	// sent is set when what must not be asked twice has been asked.
	sent bool
}

// send is called right before something is changed. Nothing is, any more, for a
// caller who has gone.
func (r *request) send() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	r.sent = true
	return nil
}

// perform runs f with a session of the namespace. When the service turns out to have
// gone since the session was last used, a new one is opened and f runs once more,
// unless it has sent what must not be sent twice.
func (c *connection) perform(ctx context.Context, name, op string, f func(*request) error) error {
	n := c.namespace(name)
	return c.do(ctx, &n.queue, op, func() error {
		r := &request{ctx: ctx}
		used, err := n.run(c.locator, r, f)
		if used && gone(err) && !r.sent {
			_, err = n.run(c.locator, r, f)
		}
		return err
	})
}

// run is one attempt. It tells whether the session had been used before.
func (n *namespace) run(locator *ole.IDispatch, r *request, f func(*request) error) (used bool, err error) {
	s, used, err := n.acquire(locator)
	if err != nil {
		return used, err
	}
	r.session = s.WmiSession
	err = guard(func() error { return f(r) })
	n.release(s, gone(err))
	return used, err
}

// acquire opens the session when there is none. It holds the lock while it does, so
// that one call connects and the others wait for it.
func (n *namespace) acquire(locator *ole.IDispatch) (s *session, used bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current == nil {
		opened, err := connect(locator, n.name)
		if err != nil {
			return nil, false, err
		}
		n.current = &session{WmiSession: opened}
		n.current.users++
		return n.current, false, nil
	}
	n.current.users++
	return n.current, true, nil
}

// release closes a session that has been given up when its last user leaves it.
func (n *namespace) release(s *session, giveUp bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.users--
	if giveUp && n.current == s {
		n.current = nil
	}
	if n.current != s && s.users == 0 {
		s.Close()
	}
}

// drop closes the session of a connection that nobody uses any more.
func (n *namespace) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		n.current.Close()
		n.current = nil
	}
}

// connect opens a session with a namespace of the local host. No server and no
// credentials: WMI refuses credentials for the host itself.
func connect(locator *ole.IDispatch, name string) (*cim.WmiSession, error) {
	s, err := cim.CreateSession(locator, name, "", "", "", "")
	if err != nil {
		return nil, err
	}
	err = guard(func() error {
		ok, err := s.Connect()
		if err == nil && !ok {
			return unexpected("no session")
		}
		return err
	})
	if err != nil {
		if s.RawSession != nil {
			s.Close()
		}
		return nil, err
	}
	return s, nil
}
