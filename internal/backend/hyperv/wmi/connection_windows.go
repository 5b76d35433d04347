package wmi

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/go-ole/go-ole"

	"github.com/gpufleet/terraform-provider-gpu/internal/backend/hyperv"
)

// connection is a connection to the WMI service of the local host. It may be used
// from many goroutines at once.
type connection struct {
	locator *ole.IDispatch

	mu         sync.Mutex
	running    int
	closed     bool
	namespaces map[string]*namespace
}

// Open connects to the WMI service of the local host. Namespaces are connected to
// when they are first used.
func Open(ctx context.Context) (hyperv.WMI, error) {
	c := &connection{namespaces: map[string]*namespace{}}
	err := c.do(ctx, &queue{}, "connect", func() (err error) {
		c.locator, err = newLocator()
		return err
	})
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection. Calls that are still under way end it when they end.
func (c *connection) Close() error {
	err := c.do(context.Background(), &queue{}, "disconnect", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
		return nil
	})
	if errors.Is(err, hyperv.Disconnected) {
		return nil // it was closed before
	}
	return err
}

// begin counts a call. Each begin is followed by an end.
func (c *connection) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &hyperv.Fault{Code: hyperv.Disconnected, Text: "the connection has been closed"}
	}
	c.running++
	return nil
}

// end lets go of everything when the last call of a closed connection has ended.
func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if !c.closed || c.running > 0 {
		return
	}
	for _, n := range c.namespaces {
		n.drop()
	}
	c.namespaces = nil
	if c.locator != nil {
		c.locator.Release()
		c.locator = nil
	}
}

// namespace finds a namespace under any of its spellings.
func (c *connection) namespace(name string) *namespace {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.ToLower(strings.ReplaceAll(name, "/", `\`))
	n, ok := c.namespaces[key]
	if !ok {
		n = &namespace{name: name}
		if c.namespaces != nil {
			c.namespaces[key] = n
		}
	}
	return n
}
