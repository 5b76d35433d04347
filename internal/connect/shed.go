package connect

import (
	"container/list"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// How many connections an agent holds: in all, and of clients that have not shown a
// certificate yet. A run has one.
const (
	maxConnections = 128
	maxStrangers   = 64
)

// Shed is a listener that holds a limited number of connections. When strangers, who have
// not ended their handshake, are too many, the one that came first is hung up on: whoever
// opens connections and says nothing only sheds his own. The server must have been made with
// TLSServerOptions, which say who is known.
func Shed(l net.Listener) net.Listener { return &shed{Listener: l} }

type shed struct {
	net.Listener

	mu        sync.Mutex
	held      int
	strangers list.List // of *heldConn, in the order in which they came
}

// heldConn is a connection that counts.
type heldConn struct {
	net.Conn
	shed *shed
	// place is its place among the strangers, or nil.
	place *list.Element
	once  sync.Once
}

func (s *shed) Accept() (net.Conn, error) {
	for {
		raw, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &heldConn{Conn: raw, shed: s}
		first, ok := s.admit(c)
		if first != nil {
			_ = first.Close()
		}
		if ok {
			return c, nil
		}
		_ = raw.Close()
	}
}

// admit finds a place for a connection, and who has to leave for it.
func (s *shed) admit(c *heldConn) (first *heldConn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := s.held >= maxConnections
	if full || s.strangers.Len() >= maxStrangers {
		if at := s.strangers.Front(); at != nil {
			first, _ = at.Value.(*heldConn)
		} else if full {
			return nil, false
		}
	}
	s.held++
	c.place = s.strangers.PushBack(c)
	return first, true
}

// known takes a connection from among the strangers.
func (c *heldConn) known() {
	c.shed.mu.Lock()
	defer c.shed.mu.Unlock()
	if c.place != nil {
		c.shed.strangers.Remove(c.place)
		c.place = nil
	}
}

// Close gives the place free.
func (c *heldConn) Close() error {
	c.once.Do(func() {
		c.known()
		c.shed.mu.Lock()
		defer c.shed.mu.Unlock()
		c.shed.held--
	})
	return c.Conn.Close()
}

// introduces tells a listener made by Shed whose handshake has ended.
type introduces struct {
	credentials.TransportCredentials
}

func (i introduces) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := i.TransportCredentials.ServerHandshake(raw)
	if held, ok := raw.(*heldConn); ok && err == nil {
		held.known()
	}
	return conn, info, err
}

func (i introduces) Clone() credentials.TransportCredentials {
	return introduces{i.TransportCredentials.Clone()}
}
