package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

var errEnded = errors.New("the connection to the agent has ended")

// link is one open connection under gRPC. It tells when and with what it has ended.
type link struct {
	net.Conn
	once sync.Once
	done chan struct{}

	mu   sync.Mutex
	used bool
	err  error
}

func newLink(c net.Conn) *link { return &link{Conn: c, done: make(chan struct{})} }

// dial gives the connection once. gRPC dials again when it has ended, and is told so:
// a second agent would know nothing of the first one's lease.
func (l *link) dial(context.Context, string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.used {
		l.used = true
		return l, nil
	}
	if l.err != nil {
		return nil, fmt.Errorf("%w: %w", errEnded, l.err)
	}
	return nil, errEnded
}

// Read remembers the first failure, for the calls that come after it.
func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil {
			l.err = err
		}
	}
	return n, err
}

// Close is what gRPC calls, at both ends, as soon as the connection fails.
func (l *link) Close() error {
	var err error
	l.once.Do(func() {
		err = l.Conn.Close()
		close(l.done)
	})
	return err
}
